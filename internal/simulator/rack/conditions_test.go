package rack

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// soon is a context of a call that is not expected to be answered.
func soon(t *testing.T) context.Context {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)

	return ctx
}

// A maintenance window refuses sagas, then all, and then is over.
func TestMaintenance(t *testing.T) {
	clock := NewStepClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := newRig(t, func(c *Config) { c.Clock, c.TimeScale, c.Latencies = clock, 1, &Latencies{} })
	r.fault(Fault{Condition: ConditionMaintenance, From: Duration(time.Minute), Sagas: Duration(30 * time.Minute), Away: Duration(10 * time.Minute)})

	view := func() error {
		_, err := r.client.ProjectView(t.Context(), oxide.ProjectViewParams{Project: demo})

		return err
	}
	step := func(d time.Duration) {
		clock.Sleepers(t.Context(), 1)
		clock.Step(d)
	}

	r.disk("before", gib, blank(0))
	step(time.Minute)
	eventually(t, "the window", func() bool { return r.Faults()[0].Active })

	_, err := r.createDisk("meanwhile", gib, blank(0))
	wantError(t, err, 503, "ServiceNotAvailable", "Service Unavailable")
	must(0, view())(t)

	step(30 * time.Minute)
	eventually(t, "the rack away", func() bool { return view() != nil })
	noAnswer(t, view())

	step(10 * time.Minute)
	eventually(t, "the rack back", func() bool { return view() == nil })
	r.disk("after", gib, blank(0))

	if r.exists("meanwhile") || r.Faults()[0].Active {
		t.Error("the window left something")
	}
}

// Invariant: while a rack that serves is away nobody listens at its address,
// what was under way there is dropped and yet carried out, nobody else can take
// the address, and the control endpoint answers.
func TestARackThatIsAwayRefusesConnections(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) { awayAt(t, host) })
	}
}

func awayAt(t *testing.T, host string) {
	clock := NewStepClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s, err := New(Config{Clock: clock, Latencies: &Latencies{DiskCreate: 5 * time.Minute}})
	must(0, err)(t)
	defer s.Close()

	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)

	go func() { served <- s.Serve(ctx, l) }()

	defer func() {
		cancel()
		must(0, <-served)(t)
	}()

	address := l.Addr().String()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()

	client, err := oxide.NewClient(oxide.WithHost("http://"+address), oxide.WithToken(DefaultToken), oxide.WithHTTPClient(&http.Client{Transport: tr}))
	must(0, err)(t)

	must(client.Ping(ctx))(t)

	lost := make(chan error, 1)

	go func() {
		_, err := client.DiskCreate(ctx, oxide.DiskCreateParams{Project: demo, Body: &oxide.DiskCreate{
			Name: "under-way", Size: oxide.ByteCount(gib), DiskBackend: blank(0),
		}})
		lost <- err
	}()

	clock.Sleepers(ctx, 1)

	for window := range 2 {
		id := must(s.AddFault(Fault{Condition: ConditionMaintenance, Away: Duration(10 * time.Minute)}))(t)

		eventually(t, "connections to be refused", func() bool {
			_, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)

			return errors.Is(err, syscall.ECONNREFUSED)
		})

		if window == 0 {
			noAnswer(t, <-lost)
		}

		if _, err := client.Ping(ctx); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("a client sees %v", err)
		}

		w := httptest.NewRecorder()
		s.Control().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/simulator/faults", nil))

		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "maintenance") {
			t.Errorf("the control endpoint: %d %s", w.Code, w.Body)
		}

		clock.Step(10 * time.Minute)
		eventually(t, "the rack to be back", func() bool {
			_, err := client.Ping(ctx)

			return err == nil
		})
		s.RemoveFault(id)
	}

	must(client.DiskView(ctx, oxide.DiskViewParams{Disk: "under-way", Project: demo}))(t)

	// A rack that is ended while it is away ends.
	must(s.AddFault(Fault{Condition: ConditionMaintenance, Away: Duration(time.Hour)}))(t)
	eventually(t, "the rack away", func() bool {
		_, err := client.Ping(ctx)

		return err != nil
	})
}

// A rack that is older than the client refuses each of its calls.
func TestOldAPI(t *testing.T) {
	r := newRig(t)
	id := r.fault(Fault{Condition: ConditionOldAPI})

	_, err := r.client.Ping(t.Context())
	wantError(t, err, 400, "", "server does not support this API version: "+APIVersion)
	_, err = r.createDisk("d", gib, blank(0))
	wantError(t, err, 400, "", "server does not support this API version")

	if status, _, _, err := r.get("/v1/ping"); status != 200 {
		t.Errorf("a call without version: %d %v", status, err)
	}

	r.RemoveFault(id)
	must(r.client.Ping(t.Context()))(t)
}

func TestTokensAreLostAndRestored(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Tokens = []Token{{Value: DefaultToken}, {Name: "second", Value: "second", User: "other"}}
	})

	for _, c := range []Condition{ConditionTokenRevoked, ConditionTokenExpired} {
		id := r.fault(Fault{Condition: c, Token: "second"})
		_, err := r.as("second").CurrentUserView(t.Context())
		wantError(t, err, 401, "Unauthorized", "")
		must(r.client.CurrentUserView(t.Context()))(t)

		r.RemoveFault(id)
		must(r.as("second").CurrentUserView(t.Context()))(t)
	}
}

// A role that is taken away hides what it let read, or forbids what it let do.
func TestRolesAreLostAndRestored(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Tokens = []Token{
			{Value: DefaultToken},
			{Name: "p", Value: "p", User: "p", SiloRole: SiloNone, ProjectRoles: map[string]Role{"demo": RoleCollaborator}},
		}
	})
	d := r.disk("d", gib, blank(0))
	view := func() error {
		_, err := r.as("p").DiskView(t.Context(), oxide.DiskViewParams{Disk: oxide.NameOrId(d.Id)})

		return err
	}
	remove := func(as string) error {
		return r.as(as).DiskDelete(t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)})
	}

	id := r.fault(Fault{Condition: ConditionRole, Token: "p", Project: "demo", Role: SiloNone})
	wantError(t, view(), 404, "ObjectNotFound", "")
	r.RemoveFault(id)
	must(0, view())(t)

	id = r.fault(Fault{Condition: ConditionRole, Token: "p", Project: "demo", Role: RoleViewer})
	must(0, view())(t)
	wantError(t, remove("p"), 403, "Forbidden", "")
	r.RemoveFault(id)

	id = r.fault(Fault{Condition: ConditionRole, Token: "provider", Role: RoleViewer})
	wantError(t, remove(DefaultToken), 403, "Forbidden", "")
	r.RemoveFault(id)
	must(0, remove("p"))(t)
}

func TestQuotaChanges(t *testing.T) {
	r := newRig(t, onlyVMs)
	none := int64(0)
	storage := gib
	id := r.fault(Fault{Condition: ConditionQuota, CPUs: &none, Storage: &storage})

	r.disk("one", gib, blank(0))

	_, err := r.createDisk("two", gib, blank(0))
	wantError(t, err, 507, "InsufficientCapacity", "Storage Limit Exceeded")

	i := r.instance("i")
	wantError(t, r.startInstance(i.Id), 507, "InsufficientCapacity", "vCPU Limit Exceeded")

	if u := must(r.client.UtilizationView(t.Context()))(t); *u.Capacity.Cpus != 0 || u.Capacity.Storage != oxide.ByteCount(gib) {
		t.Errorf("%+v", u.Capacity)
	}

	r.RemoveFault(id)
	r.disk("two", gib, blank(0))
	must(0, r.startInstance(i.Id))(t)
}

// Objects stay in a state until they are let go, and calls with them.
func TestStuckInstances(t *testing.T) {
	r := newRig(t, onlyVMs)
	i := r.instance("i")
	stuck := func(state string) func() {
		id := r.fault(Fault{Condition: ConditionStuck, Kind: kindInstance, State: state, Object: "i"})

		return func() { r.RemoveFault(id) }
	}

	free := stuck("starting")
	must(0, r.startInstance(i.Id))(t)
	// A delay after it in time has passed when one that came later has.
	other := r.instance("other")
	must(0, r.startInstance(other.Id))(t)
	r.reaches(other.Id, oxide.InstanceStateRunning)

	if st := r.runState(i.Id); st != oxide.InstanceStateStarting {
		t.Errorf("it is %s", st)
	}

	free()
	r.reaches(i.Id, oxide.InstanceStateRunning)

	free = stuck("rebooting")
	must(0, r.reboot(i.Id))(t)
	must(0, r.reboot(other.Id))(t)
	r.reaches(other.Id, oxide.InstanceStateRunning)

	if st := r.runState(i.Id); st != oxide.InstanceStateRebooting {
		t.Errorf("it is %s", st)
	}

	free()
	r.reaches(i.Id, oxide.InstanceStateRunning)

	free = stuck("stopping")
	must(0, r.stopInstance(i.Id))(t)
	must(0, r.stopInstance(other.Id))(t)
	r.reaches(other.Id, oxide.InstanceStateStopped)
	wantError(t, r.deleteInstance(i.Id), 400, "InvalidRequest", "not yet fully stopped")

	if st := r.runState(i.Id); st != oxide.InstanceStateStopping {
		t.Errorf("it is %s", st)
	}

	free()
	r.reaches(i.Id, oxide.InstanceStateStopped)
}

// One that starts and does not come up can be stopped.
func TestAStuckStartCanBeStopped(t *testing.T) {
	r := newRig(t, onlyVMs)
	i := r.instance("i")
	r.fault(Fault{Condition: ConditionStuck, Kind: kindInstance, State: "starting"})
	must(0, r.startInstance(i.Id))(t)
	must(0, r.stopInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateStopped)
	r.RemoveFault(0)

	if st := r.runState(i.Id); st != oxide.InstanceStateStopped {
		t.Errorf("it is %s", st)
	}
}

func TestStuckDisksAndSnapshots(t *testing.T) {
	r := newRig(t, onlyVMs)
	stuck := func(kind, state string) {
		r.fault(Fault{Condition: ConditionStuck, Kind: kind, State: state})
	}
	state := func(name string) string {
		d, err := r.client.DiskView(t.Context(), oxide.DiskViewParams{Project: demo, Disk: oxide.NameOrId(name)})
		if err != nil {
			return ""
		}

		return string(d.State.State())
	}

	t.Run("creating", func(t *testing.T) {
		stuck(kindDisk, "creating")

		_, err := r.client.DiskCreate(soon(t), oxide.DiskCreateParams{Project: demo, Body: &oxide.DiskCreate{Name: "c", Size: oxide.ByteCount(gib), DiskBackend: blank(0)}})
		noAnswer(t, err)

		if st := state("c"); st != "creating" {
			t.Errorf("it is %s", st)
		}

		r.RemoveFault(0)
		eventually(t, "the disk", func() bool { return state("c") == "detached" })
	})

	t.Run("finalizing", func(t *testing.T) {
		d := r.disk("f", gib, importing())
		stuck(kindDisk, "finalizing")
		noAnswer(t, r.client.DiskFinalizeImport(soon(t), oxide.DiskFinalizeImportParams{Disk: oxide.NameOrId(d.Id), Body: &oxide.FinalizeDisk{}}))

		if st := state("f"); st != "finalizing" {
			t.Errorf("it is %s", st)
		}

		r.RemoveFault(0)
		eventually(t, "the disk", func() bool { return state("f") == "detached" })
	})

	t.Run("snapshot", func(t *testing.T) {
		stuck(kindSnapshot, "creating")

		_, err := r.client.SnapshotCreate(soon(t), oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: "s", Disk: "f"}})
		noAnswer(t, err)

		if s := must(r.snapshotNamed("s"))(t); s.State != oxide.SnapshotStateCreating {
			t.Errorf("it is %s", s.State)
		}

		r.RemoveFault(0)
		eventually(t, "the snapshot", func() bool { return must(r.snapshotNamed("s"))(t).State == oxide.SnapshotStateReady })
	})

	t.Run("maintenance", func(t *testing.T) {
		stuck(kindDisk, "maintenance")

		_, err := r.client.SnapshotCreate(soon(t), oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: "m", Disk: "f"}})
		noAnswer(t, err)

		if st := state("f"); st != "maintenance" {
			t.Errorf("it is %s", st)
		}

		r.RemoveFault(0)
		eventually(t, "the disk", func() bool { return state("f") == "detached" })
	})

	t.Run("detaching", func(t *testing.T) {
		i := r.instance("i", func(b *oxide.InstanceCreate) { b.BootDisk = newDiskNamed("boot", gib) })
		d := must(r.client.DiskView(t.Context(), oxide.DiskViewParams{Project: demo, Disk: "boot"}))(t)

		stuck(kindDisk, "detaching")
		must(0, r.deleteInstance(i.Id))(t)

		if st := state("boot"); st != "detaching" {
			t.Errorf("it is %s", st)
		}

		remove := func() error {
			return r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)})
		}
		wantError(t, remove(), 400, "InvalidRequest", "disk is attached")
		r.RemoveFault(0)
		eventually(t, "the disk", func() bool { return state("boot") == "detached" })
		must(0, remove())(t)
	})
}

// A sled that does not answer fails what is asked of it, and after a while
// what ran there; then nothing is placed there any more.
func TestSledUnreachable(t *testing.T) {
	r := newRig(t, onlyVMs, func(c *Config) { c.Sleds = DefaultSleds(1) })
	i, other := r.instance("i"), r.instance("other")
	must(0, r.startInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateRunning)

	id := r.fault(Fault{Condition: ConditionSledAway, Sled: "BRMA"})
	wantError(t, r.reboot(i.Id), 502, "Internal", "Internal Server Error")
	wantError(t, r.startInstance(other.Id), 502, "Internal", "Internal Server Error")

	if st := r.runState(other.Id); st != oxide.InstanceStateStopped {
		t.Errorf("it is %s", st)
	}

	wantError(t, r.stopInstance(i.Id), 502, "Internal", "Internal Server Error")
	r.RemoveFault(id)

	r.fault(Fault{Condition: ConditionSledAway, Sled: "BRMA", Status: 504, Delay: Duration(time.Second)})
	wantError(t, r.stopInstance(i.Id), 504, "Internal", "Internal Server Error")
	r.reaches(i.Id, oxide.InstanceStateFailed) // and stays: it was to stop
	wantError(t, r.startInstance(other.Id), 507, "InsufficientCapacity", "Failed to place instance")
	must(0, r.deleteInstance(i.Id))(t)
	r.RemoveFault(0)
	must(0, r.startInstance(other.Id))(t)
}
