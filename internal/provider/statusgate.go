package provider

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
)

const (
	// maxText is the length in characters of what Omni is shown: one line of its
	// page. Omni itself cuts nothing.
	maxText = 200
	// steadyFor is how long a text stays although its numbers change.
	steadyFor = 10 * time.Second
)

// statusGate is the state that the SDK writes through. Omni's page renders a
// request's stage and `status`, and `error` only with FAILED; the SDK puts the
// reason of a wait into `error`. So on the SDK's own write of a waiting
// request's status the reason is copied to where it is seen. All texts for
// Omni are cut here.
//
// After each step that has nothing to tell the SDK writes that it has run it. That is
// a write for each of many machines that nobody reads, and on the page it takes the
// place of what is still true, so what was told stands until there is something else.
//
// It wraps the core state, so that the wrapper's read-modify-writes come
// through it too.
type statusGate struct {
	state.CoreState

	now func() time.Time

	mu    sync.Mutex
	shown map[resource.ID]shownText
	// written are the statuses as they were last written, of requests under way.
	written map[resource.ID]*infra.MachineRequestStatus
}

type shownText struct {
	text string
	at   time.Time
}

// newStatusGate wraps st.
func newStatusGate(st state.CoreState) *statusGate {
	return &statusGate{CoreState: st, now: time.Now, shown: map[resource.ID]shownText{}, written: map[resource.ID]*infra.MachineRequestStatus{}}
}

// Create implements state.CoreState.
func (g *statusGate) Create(ctx context.Context, res resource.Resource, opts ...state.CreateOption) error {
	g.explain(res)

	return g.CoreState.Create(ctx, res, opts...)
}

// Update implements state.CoreState.
func (g *statusGate) Update(ctx context.Context, res resource.Resource, opts ...state.UpdateOption) error {
	g.explain(res)

	if g.tellsNothing(res) {
		return nil
	}

	err := g.CoreState.Update(ctx, res, opts...)
	if err == nil {
		g.note(res)
	}

	return err
}

// note remembers what was written of a request under way.
func (g *statusGate) note(res resource.Resource) {
	st, ok := res.(*infra.MachineRequestStatus)
	if !ok {
		return
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	if written, ok := st.DeepCopy().(*infra.MachineRequestStatus); ok && underWay(st) {
		g.written[st.Metadata().ID()] = written
	} else {
		delete(g.written, st.Metadata().ID())
	}
}

func underWay(st *infra.MachineRequestStatus) bool {
	return st.TypedSpec().Value.GetStage() == omnispecs.MachineRequestStatusSpec_PROVISIONING
}

// tellsNothing says that a write would change nothing, as its text is kept steady, or
// would only take a text away for the name of the step that has just passed.
func (g *statusGate) tellsNothing(res resource.Resource) bool {
	st, ok := res.(*infra.MachineRequestStatus)
	if !ok || !underWay(st) {
		return false
	}

	g.mu.Lock()
	last := g.written[st.Metadata().ID()]
	g.mu.Unlock()

	if last == nil {
		return false
	}

	same, ok := st.DeepCopy().(*infra.MachineRequestStatus)
	if !ok {
		return false
	}

	spec := same.TypedSpec().Value
	if spec.GetError() == "" && strings.HasPrefix(spec.GetStatus(), sdkStepText) {
		spec.Status, spec.Error = last.TypedSpec().Value.GetStatus(), last.TypedSpec().Value.GetError()
	}

	same.Metadata().SetVersion(last.Metadata().Version())

	return resource.Equal(same, last)
}

// sdkStepText begins what the SDK writes after a step.
const sdkStepText = "Running Step: "

// Destroy implements state.CoreState.
func (g *statusGate) Destroy(ctx context.Context, ptr resource.Pointer, opts ...state.DestroyOption) error {
	if ptr.Type() == infra.MachineRequestStatusType {
		g.mu.Lock()
		delete(g.shown, ptr.ID())
		delete(g.written, ptr.ID())
		g.mu.Unlock()
	}

	return g.CoreState.Destroy(ctx, ptr, opts...)
}

func (g *statusGate) explain(res resource.Resource) {
	st, ok := res.(*infra.MachineRequestStatus)
	if !ok {
		return
	}

	spec := st.TypedSpec().Value
	spec.Error = oneLine(spec.GetError())

	if spec.GetStage() != omnispecs.MachineRequestStatusSpec_PROVISIONING || spec.GetError() == "" {
		return
	}

	spec.Error = g.steady(st.Metadata().ID(), spec.GetError())
	spec.Status = spec.GetError()
}

// steady keeps a text that differs from the one shown only in its numbers, the
// rack's request IDs among them, unless it has stood for a while or a percentage
// has moved by ten.
func (g *statusGate) steady(id resource.ID, text string) string {
	g.mu.Lock()
	defer g.mu.Unlock()

	now := g.now()

	if last, ok := g.shown[id]; ok && now.Sub(last.at) < steadyFor &&
		withoutIDs(last.text) == withoutIDs(text) && !movedTen(last.text, text) {
		return last.text
	}

	if last := g.shown[id]; last.text != text {
		g.shown[id] = shownText{text: text, at: now}
	}

	return text
}

func movedTen(before, after string) bool {
	a, okA := percentage(before)
	b, okB := percentage(after)

	return okA && okB && (b-a >= 10 || a-b >= 10)
}

// percentage is the number before the first percent sign.
func percentage(s string) (int, bool) {
	head, _, found := strings.Cut(s, "%")
	if !found {
		return 0, false
	}

	head = strings.TrimRight(head, " ")
	n, scale := 0, 1

	for i := len(head) - 1; i >= 0 && head[i] >= '0' && head[i] <= '9' && scale <= 1000; i-- {
		n += int(head[i]-'0') * scale
		scale *= 10
	}

	return n, scale > 1
}

// oneLine cuts a text for Omni's page.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")

	if runes := []rune(s); len(runes) > maxText {
		s = string(runes[:maxText-1]) + "…"
	}

	return s
}
