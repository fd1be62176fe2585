package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"go.uber.org/zap"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
)

// SubjectStates is the note about stored states on the health board.
const SubjectStates = "stored states"

// Oddity is a way in which a stored state is not one that this version made for
// its request. None of them is ever passed over in silence.
type Oddity string

// The oddities, worst first.
const (
	// OddRequest: the plan is of another request; what it names is left alone.
	OddRequest Oddity = "other_request"
	// OddFormat: a newer version planned it; nothing is done with it.
	OddFormat Oddity = "newer_format"
	// OddOwner: another owner planned it; nothing is done with it.
	OddOwner Oddity = "other_owner"
	// OddPublished: it is of the published provider, and held.
	OddPublished Oddity = "published"
	// OddStep: a step that this version does not know; begun again.
	OddStep Oddity = "unknown_step"
	// OddFields: fields that this version does not know; kept as they are.
	OddFields Oddity = "unknown_fields"
)

// oddities are all of them in the order in which they are told, with their words
// for health and for the log.
var oddities = []struct {
	is          Oddity
	brief, full string
}{
	{OddRequest, "plan of another request", "the stored plan is of another request, what it names is left alone: delete this request, Omni makes a new one"},
	{OddFormat, "planned by a newer version", "the stored plan was made by a newer version of the provider, nothing is done with it: run that version"},
	{OddOwner, "planned by another owner", "the stored plan is of another owner, nothing is done with it"},
	{OddPublished, "made by the published provider, not taken over", "the published Oxide provider made this machine, it is left alone until it is taken over"},
	{OddStep, "stored step unknown, begun again", "the stored step is unknown to this version, the request begins again at its first step"},
	{OddFields, "fields of a newer version", "the stored state has fields that this version does not know: they are kept, and what they ask for is not done"},
}

// stateLook looks stored states over for oddities: each is logged once, counted,
// and stands in health.
type stateLook struct {
	logger *zap.Logger
	board  *health.Board

	mu   sync.Mutex
	odd  map[Oddity][]resource.ID
	said map[Oddity]map[resource.ID]bool
}

func newStateLook(logger *zap.Logger, board *health.Board) *stateLook {
	return &stateLook{logger: logger, board: board, odd: map[Oddity][]resource.ID{}, said: map[Oddity]map[resource.ID]bool{}}
}

// Counts is how many stored states had each oddity at the last look.
func (l *stateLook) Counts() map[Oddity]int {
	l.mu.Lock()
	defer l.mu.Unlock()

	counts := map[Oddity]int{}
	for _, o := range oddities {
		counts[o.is] = len(l.odd[o.is])
	}

	return counts
}

// look takes all stored states as they are now.
func (l *stateLook) look(owner string, states []*Instance, published []*Published) {
	found := map[Oddity][]resource.ID{}

	for _, res := range states {
		for _, o := range odd(owner, res) {
			found[o] = append(found[o], res.Metadata().ID())
		}
	}

	for _, res := range published {
		found[OddPublished] = append(found[OddPublished], res.Metadata().ID())
	}

	l.tell(found)
}

func (l *stateLook) tell(found map[Oddity][]resource.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()

	var keys, texts []string

	for _, o := range oddities {
		ids := slices.Sorted(slices.Values(found[o.is]))
		said := map[resource.ID]bool{}

		for _, id := range ids {
			if said[id] = true; !l.said[o.is][id] {
				l.logger.Warn(o.full, zap.String("omni.request.id", id), zap.String("oddity", string(o.is)))
			}
		}

		l.said[o.is] = said

		if len(ids) > 0 {
			keys = append(keys, fmt.Sprint(o.is, len(ids)))
			texts = append(texts, o.brief+": "+some(ids))
		}
	}

	l.odd = maps.Clone(found)

	if len(keys) == 0 {
		l.board.OK(SubjectStates)
	} else {
		l.board.Note(SubjectStates, strings.Join(keys, " "), strings.Join(texts, "; "))
	}
}

// some names the first of many.
func some(ids []string) string {
	const most = 3

	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(ids[:most], ", "), len(ids)-most)
}

// odd is what is odd about one state.
func odd(owner string, res *Instance) []Oddity {
	var (
		out  []Oddity
		plan = res.TypedSpec().Value.GetPlan()
	)

	if stepOf(res) == "" {
		out = append(out, OddStep)
	}

	switch {
	case plan == nil:
	case otherRequest(plan, res.Metadata().ID()):
		out = append(out, OddRequest)
	case checkFormat(plan) != nil:
		out = append(out, OddFormat)
	case plan.GetOwner() != "" && plan.GetOwner() != owner:
		out = append(out, OddOwner)
	}

	if hasUnknown(res.TypedSpec().Value.ProtoReflect()) {
		out = append(out, OddFields)
	}

	return out
}

// otherRequest says that a plan was made for another request than the one whose
// state it stands in.
func otherRequest(plan *specs.Plan, requestID string) bool { return plan.GetRequestId() != requestID }

// hasUnknown finds fields that this version does not know, at any depth.
func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}

	unknown := false

	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range v.List().Len() {
				unknown = unknown || hasUnknown(v.List().Get(i).Message())
			}
		default:
			unknown = hasUnknown(v.Message())
		}

		return !unknown
	})

	return unknown
}
