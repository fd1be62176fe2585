package rack

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func (r *rig) fault(f Fault) int {
	r.t.Helper()

	return must(r.AddFault(f))(r.t)
}

func (r *rig) exists(disk string) bool {
	_, err := r.client.DiskView(r.t.Context(), oxide.DiskViewParams{Project: demo, Disk: oxide.NameOrId(disk)})

	return err == nil
}

// noAnswer wants an error that is not the rack's own.
func noAnswer(t *testing.T, err error) {
	t.Helper()

	var h *oxide.HTTPError
	if err == nil || errors.As(err, &h) {
		t.Fatalf("got %v, want a lost connection", err)
	}
}

func TestFaultActions(t *testing.T) {
	r := newRig(t)
	const op = "disk_create"

	r.fault(Fault{Operation: op, Count: 1, Action: ActionError, Status: 503, Code: "ServiceNotAvailable", Message: "Service Unavailable"})
	_, err := r.createDisk("error", gib, blank(0))
	wantError(t, err, 503, "ServiceNotAvailable", "Service Unavailable")

	r.fault(Fault{Operation: op, Count: 1, Action: ActionReset})
	_, err = r.createDisk("reset", gib, blank(0))
	noAnswer(t, err)

	r.fault(Fault{Operation: op, Count: 1, Action: ActionLoseAnswer})
	_, err = r.createDisk("lost", gib, blank(0))
	noAnswer(t, err)

	r.fault(Fault{Operation: op, Count: 1, Action: ActionErrorAfter})
	_, err = r.createDisk("after", gib, blank(0))
	wantError(t, err, 500, "Internal", "Internal Server Error")

	r.fault(Fault{Operation: op, Count: 1, Action: ActionCommitLate, Delay: Duration(10 * time.Second)})
	_, err = r.createDisk("late", gib, blank(0))
	noAnswer(t, err)

	eventually(t, "the late commit", func() bool { return r.exists("late") })

	r.fault(Fault{Operation: op, Count: 1, Action: ActionDelay, Delay: Duration(5 * time.Second)})

	began := time.Now()
	r.disk("delayed", gib, blank(0))

	if d := time.Since(began); d < 50*time.Millisecond {
		t.Errorf("delayed by %s", d)
	}

	r.fault(Fault{Operation: op, Count: 1, Action: ActionHang})

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	_, err = r.client.DiskCreate(ctx, oxide.DiskCreateParams{Project: demo, Body: &oxide.DiskCreate{Name: "hung", Size: oxide.ByteCount(gib), DiskBackend: blank(0)}})
	noAnswer(t, err)

	for name, want := range map[string]bool{"error": false, "reset": false, "hung": false, "lost": true, "after": true} {
		if r.exists(name) != want {
			t.Errorf("disk %s exists: %t", name, !want)
		}
	}
}

func TestLostStop(t *testing.T) {
	r := newRig(t)
	i := r.instance("i")
	must(0, r.startInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateRunning)
	r.fault(Fault{Operation: "instance_stop", Count: 1, Action: ActionLostStop})

	must(0, r.stopInstance(i.Id))(t)

	if st := r.runState(i.Id); st != oxide.InstanceStateRunning {
		t.Errorf("after a lost stop it is %s", st)
	}

	must(0, r.stopInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateStopped)
}

// Rules pick their calls by operation, path, method, token, skip, count and
// chance.
func TestFaultSelection(t *testing.T) {
	call := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/disks?x=1", http.NoBody)

	draw := func(f Fault, n int) string {
		s := must(New(Config{}))(t)
		defer s.Close()

		must(s.AddFault(f))(t)

		var b strings.Builder
		for range n {
			if s.faults.pick("disk_list", call, "provider").Action == ActionNone {
				b.WriteByte('.')
			} else {
				b.WriteByte('x')
			}
		}

		return b.String()
	}

	for _, tt := range []struct {
		fault Fault
		want  string
	}{
		{Fault{}, "xxxxxx"},
		{Fault{Operation: "disk_list", Path: "disks?x"}, "xxxxxx"},
		{Fault{Operation: "disk_view"}, "......"},
		{Fault{Path: "/v1/b"}, "......"},
		{Fault{Method: "GET", Token: "provider"}, "xxxxxx"},
		{Fault{Method: "POST"}, "......"},
		{Fault{Token: "other"}, "......"},
		{Fault{Skip: 2}, "..xxxx"},
		{Fault{Skip: 1, Count: 2}, ".xx..."},
		{Fault{From: Duration(time.Hour)}, "......"},
	} {
		tt.fault.Action = ActionReset
		if got := draw(tt.fault, 6); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.fault, got, tt.want)
		}
	}

	chance := Fault{Action: ActionReset, Probability: 0.5, Seed: 7}
	a, b := draw(chance, 64), draw(chance, 64)

	if a != b || !strings.Contains(a, "x") || !strings.Contains(a, ".") {
		t.Errorf("a seeded chance gave %s and %s", a, b)
	}

	chance.Seed = 8
	if draw(chance, 64) == a {
		t.Error("another seed gave the same draws")
	}
}

func TestFaultsAreChecked(t *testing.T) {
	r := newRig(t)

	for _, f := range []Fault{{}, {Action: "explode"}, {Action: ActionError, Status: 200}, {Action: ActionReset, Probability: 2}} {
		if _, err := r.AddFault(f); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}

	if _, err := New(Config{Faults: []Fault{{Action: "explode"}}}); err == nil {
		t.Error("a bad rule in the configuration was taken")
	}
}

func (r *rig) control(method, path, body string) (int, string) {
	r.t.Helper()

	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	must(0, err)(r.t)

	resp, err := r.http.Do(req)
	must(0, err)(r.t)

	defer resp.Body.Close()

	return resp.StatusCode, string(must(io.ReadAll(resp.Body))(r.t))
}

func TestControlEndpoints(t *testing.T) {
	r := newRig(t)

	status, body := r.control("POST", "/simulator/faults", `[{"operation":"ping","action":"error","status":503},{"action":"delay","delay":"1ms"}]`)
	if status != 201 || body != "[1,2]" {
		t.Fatalf("%d %s", status, body)
	}

	for _, bad := range []string{`{"action":"none"}`, `{"action":"reset","operaton":"ping"}`, `[`, `7`} {
		if status, _ := r.control("POST", "/simulator/faults", bad); status != 400 {
			t.Errorf("%s: %d", bad, status)
		}
	}

	_, err := r.client.Ping(t.Context())
	wantError(t, err, 503, "", "Service Unavailable")

	_, body = r.control("GET", "/simulator/faults", "")

	var rules []Fault
	if err := json.Unmarshal([]byte(body), &rules); err != nil || len(rules) != 2 || rules[0].Fired != 1 || rules[1].Delay != Duration(time.Millisecond) {
		t.Errorf("%v %+v", err, rules)
	}

	r.control("DELETE", "/simulator/faults?id=1", "")
	must(r.client.Ping(t.Context()))(t)

	r.control("DELETE", "/simulator/faults", "")

	if n := len(r.Faults()); n != 0 {
		t.Errorf("%d rules left", n)
	}

	i := r.instance("i")
	if status, _ := r.control("POST", "/simulator/instances/"+i.Id+"/crash", ""); status != 409 {
		t.Errorf("crash of a stopped instance: %d", status)
	}

	must(0, r.startInstance(i.Id))(t)

	if status, _ := r.control("POST", "/simulator/instances/"+i.Id+"/power-off", ""); status != 204 {
		t.Errorf("power-off: %d", status)
	}

	r.reaches(i.Id, oxide.InstanceStateStopped)

	var s Summary

	_, body = r.control("GET", "/simulator/summary", "")
	if err := json.Unmarshal([]byte(body), &s); err != nil || s.Instances["stopped"] != 1 || s.Calls["ping"] != 2 {
		t.Errorf("%v %s", err, body)
	}
}

// Every call is in the log, in order, and the hooks see each before and after
// its work.
func TestCallLogAndHooks(t *testing.T) {
	var (
		mu   sync.Mutex
		seen []string
		r    *rig
	)

	hook := func(when string) func(int, string) {
		return func(seq int, op string) {
			mu.Lock()
			defer mu.Unlock()

			if op == "disk_create" {
				seen = append(seen, when)
				_ = r.Summary() // no lock is held
			}

			if seq == 0 {
				t.Error("call without a number")
			}
		}
	}

	r = newRig(t, func(c *Config) { c.BeforeCall, c.AfterCall = hook("before"), hook("after") })
	must(r.client.Ping(t.Context()))(t)
	r.disk("d", gib, blank(0))
	r.exists("e")

	calls := r.Calls()
	if len(calls) != 3 {
		t.Fatalf("%d calls", len(calls))
	}

	c := calls[1]
	if c.Seq != 2 || c.Operation != "disk_create" || c.Status != 201 || !c.Done || c.Token != "provider" ||
		!strings.HasPrefix(c.UserAgent, "oxide.go/") || c.Path != "/v1/disks?project=demo" || calls[2].Status != 404 {
		t.Errorf("calls are %+v", calls)
	}

	mu.Lock()
	defer mu.Unlock()

	if strings.Join(seen, " ") != "before after" {
		t.Errorf("hooks saw %v", seen)
	}
}

// A hook can drop a call before it does anything.
func TestAHookDropsACall(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.BeforeCall = func(_ int, op string) {
			if op == "disk_create" {
				panic(http.ErrAbortHandler)
			}
		}
	})

	_, err := r.client.DiskCreate(t.Context(), oxide.DiskCreateParams{
		Project: demo, Body: &oxide.DiskCreate{Name: "d", Size: oxide.ByteCount(gib), DiskBackend: blank(0)},
	})
	noAnswer(t, err)

	if c, ok := r.Call(1); !ok || c.Operation != "disk_create" || c.Done {
		t.Errorf("the call is %+v", c)
	}

	if r.exists("d") {
		t.Error("the dropped call made a disk")
	}

	if _, ok := r.Call(99); ok {
		t.Error("a call that was not made is in the log")
	}
}

// What was begun goes on although the client has left.
func TestWorkGoesOnWithoutTheClient(t *testing.T) {
	r, step := newStepped(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)

	go func() {
		_, err := r.client.DiskCreate(ctx, oxide.DiskCreateParams{Project: demo, Body: &oxide.DiskCreate{Name: "d", Size: oxide.ByteCount(gib), DiskBackend: blank(0)}})
		left <- err
	}()

	eventually(t, "the record", func() bool { return r.exists("d") })
	cancel()
	noAnswer(t, <-left)

	d := must(r.client.DiskView(t.Context(), oxide.DiskViewParams{Project: demo, Disk: "d"}))(t)
	if d.State.State() != oxide.DiskStateStateCreating {
		t.Errorf("meanwhile it is %s", d.State.State())
	}

	step()
	eventually(t, "the disk", func() bool { return r.diskState(d.Id) == "detached" })
}
