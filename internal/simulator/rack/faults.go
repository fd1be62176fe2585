package rack

import (
	"encoding/json"
	"net/http"
	"time"
)

// Action is what a rule does to the calls that it picks.
type Action string

// The actions.
const (
	ActionNone         Action = ""
	ActionError        Action = "error"          // answer Status, Code, Message; no work
	ActionProxyPage    Action = "proxy_page"     // answer a page that is no JSON; no work
	ActionDelay        Action = "delay"          // wait Delay, then go on as usual
	ActionHang         Action = "hang"           // no answer, no work, until the client leaves
	ActionReset        Action = "reset"          // drop the connection, no work
	ActionLoseAnswer   Action = "lose_answer"    // do the work, drop the connection
	ActionCommitLate   Action = "commit_late"    // drop the connection, do the work Delay later
	ActionErrorAfter   Action = "error_after"    // do the work, answer Status (500)
	ActionTruncate     Action = "truncate"       // do the work, break off in the middle of the answer
	ActionWrongContent Action = "wrong_content"  // do the work, answer Body
	ActionUnknownState Action = "unknown_state"  // do the work, answer with states that are Value
	ActionStripHeader  Action = "strip_header"   // as a proxy that drops Header from request and answer
	ActionLostStop     Action = "lost_stop"      // accept a stop without effect
	ActionFaultDelete  Action = "faulted_delete" // a disk's deletion fails, and it comes back faulted
)

// Condition is how the rack is while a rule holds.
type Condition string

// The conditions.
const (
	ConditionMaintenance  Condition = "maintenance"        // 503 on sagas for Sagas, then refused connections for Away, then over
	ConditionOldAPI       Condition = "api_too_old"        // the newest API version is Version
	ConditionTokenRevoked Condition = "token_revoked"      // Token is refused
	ConditionTokenExpired Condition = "token_expired"      // Token is refused
	ConditionRole         Condition = "role"               // Token's role in Project, or the silo, is Role
	ConditionStuck        Condition = "stuck"              // objects of Kind in State stay so
	ConditionPantryAway   Condition = "pantry_unreachable" // it is in DNS, so whoever needs it tries for ever
	ConditionPantryGone   Condition = "pantry_out_of_dns"  // it is known to be no more
	ConditionSledAway     Condition = "sled_unreachable"   // Status for starts and stops there; after Delay its instances fail
	ConditionQuota        Condition = "quota"              // the silo's quota is CPUs, Memory, Storage
)

// Event is what a rule makes happen once.
type Event string

// The events.
const (
	EventProjectRenamed   Event = "project_renamed"    // Project is called To
	EventProjectDeleted   Event = "project_deleted"    // Project is gone with all that was in it
	EventInstanceCrashed  Event = "instance_crashed"   // Instance
	EventInstanceHalted   Event = "instance_power_off" // Instance, by its guest
	EventInstanceReboot   Event = "instance_reboot"    // Instance, by its guest
	EventInstanceMigrated Event = "instance_migrated"  // Instance goes to another sled
	EventInstanceDeleted  Event = "instance_deleted"   // Instance is gone, its disks stay
	EventDiskDeleted      Event = "disk_deleted"       // Disk is gone
	EventDiskFaulted      Event = "disk_faulted"       // Disk
	EventPantryForgetting Event = "pantry_forgot"      // Pantry has restarted and knows none of the disks that it had, or not Disk
)

// Duration is a time.Duration that is a string such as "1.5s" in JSON.
type Duration time.Duration

func (d Duration) duration() time.Duration { return time.Duration(d) }

// MarshalText writes the duration in Go's notation.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration in Go's notation.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)

	return err
}

// Fault is a rule. It has either an action, for each call that it picks, of
// which the first rule that fires is applied; or a condition, which holds
// until the rule is removed; or an event. Durations are scaled by the rack's
// TimeScale. Which fields go with which is in the table of kinds.
type Fault struct {
	ID int `json:"id,omitempty"`

	Action    Action    `json:"action,omitempty"`
	Condition Condition `json:"condition,omitempty"`
	Event     Event     `json:"event,omitempty"`

	// Which calls. Operation is the operation ID, such as
	// disk_bulk_write_import, Path a part of the request's path and query, and
	// Token the name of the caller's token; empty matches all. An event with
	// none of these does not wait for a call.
	Operation string `json:"operation,omitempty"`
	Method    string `json:"method,omitempty"`
	Path      string `json:"path,omitempty"`
	Token     string `json:"token,omitempty"` // of a condition: whose

	// Skip lets so many matching calls pass first, Count ends the rule after it
	// has fired so often (0 is never; an event happens once), Probability is
	// that of a matching call to be hit, drawn from Seed; 0 means 1.
	Skip        int     `json:"skip,omitempty"`
	Count       int     `json:"count,omitempty"`
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`

	// From and Until bound the time in which the rule works; Until 0 is no end.
	// They run from when the rule is added, or with Since "start" from when the
	// rack was.
	From  Duration `json:"from,omitempty"`
	Until Duration `json:"until,omitempty"`
	Since string   `json:"since,omitempty"`

	Status      int      `json:"status,omitempty"` // 0: 500; of a proxy page and a sled 502
	Code        string   `json:"code,omitempty"`
	Message     string   `json:"message,omitempty"`
	RetryAfter  string   `json:"retry_after,omitempty"` // as it stands in the header
	Delay       Duration `json:"delay,omitempty"`
	ContentType string   `json:"content_type,omitempty"`
	Body        string   `json:"body,omitempty"`
	Header      string   `json:"header,omitempty"`
	Value       string   `json:"value,omitempty"`

	Sagas   Duration `json:"sagas,omitempty"`
	Away    Duration `json:"away,omitempty"`
	Version string   `json:"version,omitempty"`

	Project string `json:"project,omitempty"` // a name
	To      string `json:"to,omitempty"`
	Role    Role   `json:"role,omitempty"`

	// Disk, Instance and Object are names or IDs; an empty Object is any.
	Kind     string `json:"kind,omitempty"` // disk, snapshot or instance
	State    string `json:"state,omitempty"`
	Object   string `json:"object,omitempty"`
	Disk     string `json:"disk,omitempty"`
	Instance string `json:"instance,omitempty"`
	Pantry   string `json:"pantry,omitempty"`
	Sled     string `json:"sled,omitempty"`

	CPUs    *int64 `json:"cpus,omitempty"`
	Memory  *int64 `json:"memory,omitempty"`
	Storage *int64 `json:"storage,omitempty"`

	// Active says whether the rule works now, Matched and Fired count the calls
	// so far.
	Active  bool `json:"active,omitempty"`
	Matched int  `json:"matched,omitempty"`
	Fired   int  `json:"fired,omitempty"`
}

// name is what the rule does, in a word.
func (f *Fault) name() string {
	return string(f.Action) + string(f.Condition) + string(f.Event)
}

// picksCalls says whether the rule waits for calls.
func (f *Fault) picksCalls() bool {
	return f.Action != ActionNone ||
		f.Event != "" && (f.Operation != "" || f.Method != "" || f.Path != "" || f.Token != "")
}

func (f *Fault) status(otherwise int) int {
	if f.Status != 0 {
		return f.Status
	}

	return otherwise
}

func (f *Fault) asError() error {
	e := &apiError{status: f.status(http.StatusInternalServerError), code: f.Code, message: f.Message}

	if e.message == "" {
		e.message = http.StatusText(e.status)
	}

	if e.code == "" && e.status == http.StatusInternalServerError {
		e.code = "Internal"
	}

	return e
}

// fields are the names of the fields that are set, and how they are written.
func (f Fault) fields() map[string]json.RawMessage {
	f.ID, f.Active, f.Matched, f.Fired = 0, false, 0, 0

	var out map[string]json.RawMessage

	raw, err := json.Marshal(f)
	if err != nil || json.Unmarshal(raw, &out) != nil {
		return nil
	}

	return out
}
