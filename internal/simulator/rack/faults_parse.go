package rack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind says which fields go with an action, condition or event: those that it
// needs, and those that it may have.
type kind struct{ needs, may string }

const (
	whichCalls = "operation method path token skip count probability seed "
	whichTime  = "from until since "
)

var actions = map[Action]kind{
	ActionError:        {"", "status code message retry_after"},
	ActionProxyPage:    {"", "status retry_after content_type body"},
	ActionDelay:        {"delay", ""},
	ActionHang:         {},
	ActionReset:        {},
	ActionLoseAnswer:   {},
	ActionCommitLate:   {"", "delay"},
	ActionErrorAfter:   {"", "status code message retry_after"},
	ActionTruncate:     {},
	ActionWrongContent: {"", "status content_type body"},
	ActionUnknownState: {"", "value"},
	ActionStripHeader:  {"header", ""},
	ActionLostStop:     {},
	ActionFaultDelete:  {},
}

var conditions = map[Condition]kind{
	ConditionMaintenance:  {"", "sagas away"},
	ConditionOldAPI:       {"", "version"},
	ConditionTokenRevoked: {"token", ""},
	ConditionTokenExpired: {"token", ""},
	ConditionRole:         {"token role", "project"},
	ConditionStuck:        {"kind state", "object"},
	ConditionPantryAway:   {"", "pantry disk"},
	ConditionPantryGone:   {"", "pantry disk"},
	ConditionSledAway:     {"sled", "status delay"},
	ConditionQuota:        {"", "cpus memory storage"},
}

var events = map[Event]kind{
	EventProjectRenamed:   {"project to", ""},
	EventProjectDeleted:   {"project", ""},
	EventInstanceCrashed:  {"instance", ""},
	EventInstanceHalted:   {"instance", ""},
	EventInstanceReboot:   {"instance", ""},
	EventInstanceMigrated: {"instance", ""},
	EventInstanceDeleted:  {"instance", ""},
	EventDiskDeleted:      {"disk", ""},
	EventDiskFaulted:      {"disk", ""},
	EventPantryForgetting: {"", "pantry disk"},
}

// stuckStates are those that an object can be held in.
var stuckStates = map[string][]string{
	kindInstance: {string(stateStarting), string(stateStopping), string(stateRebooting)},
	kindDisk:     {string(diskCreating), string(diskFinalizing), string(diskMaintenance), string(diskDetaching)},
	kindSnapshot: {snapshotCreating},
}

// kind of a rule, and what of whichCalls and whichTime goes with it.
func (f *Fault) kind() (kind, error) {
	switch {
	case btoi(f.Action != "")+btoi(f.Condition != "")+btoi(f.Event != "") != 1:
		return kind{}, errors.New("it must have one of action, condition and event")
	case f.Action != "":
		k, known := actions[f.Action]
		if !known {
			return k, unknownWord("action", string(f.Action), actions)
		}

		k.may += " action " + whichCalls + whichTime

		return k, nil
	case f.Condition != "":
		k, known := conditions[f.Condition]
		if !known {
			return k, unknownWord("condition", string(f.Condition), conditions)
		}

		k.may += " condition " + whichTime

		return k, nil
	default:
		k, known := events[f.Event]
		if !known {
			return k, unknownWord("event", string(f.Event), events)
		}

		k.may += " event " + whichCalls + whichTime

		return k, nil
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}

	return 0
}

func unknownWord[K ~string, V any](field, got string, known map[K]V) error {
	words := make([]string, 0, len(known))
	for w := range known {
		words = append(words, string(w))
	}

	slices.Sort(words)

	return fmt.Errorf("%s is %q: it can be %s", field, got, strings.Join(words, ", "))
}

// check refuses a rule that would not do what it says.
func (f *Fault) check() error {
	k, err := f.kind()
	if err != nil {
		return err
	}

	set := f.fields()

	for _, need := range strings.Fields(k.needs) {
		if set[need] == nil {
			return fmt.Errorf("%s is missing: %s needs it", need, f.name())
		}
	}

	allowed := strings.Fields(k.needs + " " + k.may)

	for _, field := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(allowed, field) {
			return fmt.Errorf("%s is %s: %s has no such field, it can have %s", field, set[field], f.name(), strings.Join(strings.Fields(k.needs+" "+strings.SplitN(k.may, " action ", 2)[0]), ", "))
		}
	}

	for _, check := range []func() error{f.checkCalls, f.checkTime, f.checkAnswer, f.checkObjects} {
		if err := check(); err != nil {
			return err
		}
	}

	return nil
}

// onlyOperation is the one that an action is made for.
var onlyOperation = map[Action]string{ActionLostStop: "instance_stop", ActionFaultDelete: "disk_delete"}

func (f *Fault) checkCalls() error {
	only := onlyOperation[f.Action]

	switch {
	case f.Operation != "" && !isOperation(f.Operation):
		return fmt.Errorf("operation is %q: the rack has no such operation", f.Operation)
	case only != "" && f.Operation != "" && f.Operation != only:
		return fmt.Errorf("operation is %q: %s is for %s", f.Operation, f.Action, only)
	case f.Method != "" && f.Method != strings.ToUpper(f.Method):
		return fmt.Errorf("method is %q: it is written in capitals", f.Method)
	}

	return f.checkCounts()
}

func (f *Fault) checkCounts() error {
	switch {
	case f.Skip < 0:
		return fmt.Errorf("skip is %d: it must not be below 0", f.Skip)
	case f.Count < 0:
		return fmt.Errorf("count is %d: it must not be below 0", f.Count)
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("probability is %v: it must be within 0 and 1", f.Probability)
	case f.happensOnce() && (f.Skip != 0 || f.Count != 0 || f.Probability != 0):
		return errors.New("skip, count and probability are for calls: an event that waits for one needs operation, method, path or token")
	}

	return nil
}

func isOperation(name string) bool {
	return name == opNotServed || slices.ContainsFunc(apiRoutes(), func(r route) bool { return r.op == name })
}

func (f *Fault) checkTime() error {
	for name, d := range map[string]Duration{"from": f.From, "until": f.Until, "delay": f.Delay, "sagas": f.Sagas, "away": f.Away} {
		if d < 0 {
			return fmt.Errorf("%s is %s: it must not be below 0", name, d.duration())
		}
	}

	switch {
	case f.Until != 0 && f.Until <= f.From:
		return fmt.Errorf("until is %s: it must be after from, which is %s", f.Until.duration(), f.From.duration())
	case f.Since != "" && f.Since != "start" && f.Since != "armed":
		return fmt.Errorf("since is %q: it can be armed, start", f.Since)
	case f.Event != "" && !f.picksCalls() && f.Until != 0:
		return fmt.Errorf("until is %s: an event that waits for no call has no end", f.Until.duration())
	}

	return nil
}

func (f *Fault) checkAnswer() error {
	least := 400
	if f.Action == ActionProxyPage || f.Action == ActionWrongContent {
		least = 200
	}

	switch {
	case f.Status != 0 && (f.Status < least || f.Status > 599):
		return fmt.Errorf("status is %d: it must be within %d and 599", f.Status, least)
	case f.Condition == ConditionSledAway && f.Status != 0 && f.Status != http.StatusBadGateway && f.Status != http.StatusGatewayTimeout:
		return fmt.Errorf("status is %d: a sled that can not be reached gives 502 or 504", f.Status)
	case f.Version != "" && badVersion(f.Version):
		return fmt.Errorf("version is %q: it must be such as %q", f.Version, APIVersion)
	}

	if f.RetryAfter != "" {
		_, notSeconds := strconv.ParseUint(f.RetryAfter, 10, 31)
		_, notDate := http.ParseTime(f.RetryAfter)

		if notSeconds != nil && notDate != nil {
			return fmt.Errorf("retry_after is %q: it must be seconds or a date such as %q", f.RetryAfter, time.Unix(0, 0).UTC().Format(http.TimeFormat))
		}
	}

	return nil
}

func badVersion(v string) bool {
	var major uint64

	n, err := fmt.Sscanf(v, "%d.0.0", &major)

	return err != nil || n != 1 || v != strconv.FormatUint(major, 10)+".0.0"
}

func (f *Fault) checkObjects() error {
	if f.Condition == ConditionStuck {
		states, known := stuckStates[f.Kind]
		if !known {
			return unknownWord("kind", f.Kind, stuckStates)
		}

		if !slices.Contains(states, f.State) {
			return fmt.Errorf("state is %q: a %s can be held in %s", f.State, f.Kind, strings.Join(states, ", "))
		}
	}

	switch f.name() {
	case string(ConditionPantryAway), string(ConditionPantryGone), string(EventPantryForgetting):
		if (f.Pantry == "") == (f.Disk == "") {
			return fmt.Errorf("%s needs one of pantry and disk", f.name())
		}
	case string(ConditionQuota):
		if f.CPUs == nil && f.Memory == nil && f.Storage == nil {
			return errors.New("quota needs cpus, memory or storage")
		}
	case string(ConditionRole):
		if f.Role.rank() == 0 && f.Role != SiloNone {
			return fmt.Errorf("role is %q: it can be none, viewer, limited-collaborator, collaborator, admin", f.Role)
		}
	case string(EventProjectRenamed):
		if err := checkName(f.To); err != nil {
			return fmt.Errorf("to is %q: %w", f.To, err)
		}
	}

	return nil
}

// ParseFaults reads a JSON array of rules, or a single one. Keys that no rule
// has, in this very spelling, are errors.
func ParseFaults(raw []byte) ([]Fault, error) {
	raw = bytes.TrimSpace(raw)

	var each []json.RawMessage

	if bytes.HasPrefix(raw, []byte("[")) {
		if err := json.Unmarshal(raw, &each); err != nil {
			return nil, fmt.Errorf("reading faults: %w", err)
		}
	} else {
		each = []json.RawMessage{raw}
	}

	out := make([]Fault, len(each))

	for n, one := range each {
		err := parseFault(one, &out[n])
		if err == nil {
			err = out[n].check()
		}

		if err != nil && len(each) > 1 {
			return nil, fmt.Errorf("fault %d of %d: %w", n+1, len(each), err)
		}

		if err != nil {
			return nil, fmt.Errorf("fault: %w", err)
		}
	}

	return out, nil
}

func parseFault(raw []byte, f *Fault) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil || keys == nil {
		return fmt.Errorf("%.80q is no JSON object", raw)
	}

	for key := range keys {
		if !slices.Contains(strings.Fields(faultFields()), key) {
			return fmt.Errorf("unknown field %q", key)
		}
	}

	err := json.Unmarshal(raw, f)

	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]

		return fmt.Errorf("%s is %s: its type is %s", field, keys[field], wrong.Type.Kind())
	}

	if err != nil { // a duration, of which the decoder does not say the field
		for _, field := range []string{"from", "until", "delay", "sagas", "away"} {
			var d Duration
			if v := keys[field]; v != nil && json.Unmarshal(v, &d) != nil {
				return fmt.Errorf("%s is %s: it must be a duration such as \"1m30s\"", field, v)
			}
		}

		return err
	}

	return nil
}

// faultFields are all that a rule may have.
func faultFields() string {
	all := "action condition event " + whichCalls + whichTime

	for _, k := range actions {
		all += k.needs + " " + k.may + " "
	}

	for _, k := range conditions {
		all += k.needs + " " + k.may + " "
	}

	for _, k := range events {
		all += k.needs + " " + k.may + " "
	}

	return all
}
