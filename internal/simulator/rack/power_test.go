package rack

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
)

func (r *rig) startInstance(id string) error {
	_, err := r.client.InstanceStart(r.t.Context(), oxide.InstanceStartParams{Instance: oxide.NameOrId(id)})

	return err
}

func (r *rig) stopInstance(id string) error {
	_, err := r.client.InstanceStop(r.t.Context(), oxide.InstanceStopParams{Instance: oxide.NameOrId(id)})

	return err
}

func (r *rig) reboot(id string) error {
	_, err := r.client.InstanceReboot(r.t.Context(), oxide.InstanceRebootParams{Instance: oxide.NameOrId(id)})

	return err
}

func (r *rig) deleteInstance(id string) error {
	return r.client.InstanceDelete(r.t.Context(), oxide.InstanceDeleteParams{Instance: oxide.NameOrId(id)})
}

// onlyVMs takes time for what VMs do, and for nothing else.
func onlyVMs(c *Config) {
	c.Latencies = &Latencies{Start: time.Second, Stop: time.Second, Reboot: time.Second, Fail: time.Second, RestartCooldown: time.Minute}
}

func TestPowerTable(t *testing.T) {
	r, step := newStepped(t, onlyVMs)
	i := r.instance("i")
	id := i.Id

	is := func(want oxide.InstanceState) {
		t.Helper()

		if st := r.runState(id); st != want {
			t.Fatalf("instance is %s, not %s", st, want)
		}
	}

	must(0, r.stopInstance(id))(t) // nothing to do
	wantError(t, r.reboot(id), 400, "InvalidRequest", "state")
	is(oxide.InstanceStateStopped)

	must(0, r.startInstance(id))(t)
	is(oxide.InstanceStateStarting)
	must(0, r.startInstance(id))(t) // nothing to do
	wantError(t, r.deleteInstance(id), 400, "InvalidRequest", "running or has not yet fully stopped")
	step()
	r.reaches(id, oxide.InstanceStateRunning)
	must(0, r.startInstance(id))(t)

	must(0, r.reboot(id))(t)
	is(oxide.InstanceStateRebooting)
	step()
	r.reaches(id, oxide.InstanceStateRunning)

	must(0, r.stopInstance(id))(t)
	is(oxide.InstanceStateStopping)
	must(0, r.stopInstance(id))(t)
	wantError(t, r.startInstance(id), 409, "Conflict", "must finish stopping")
	wantError(t, r.reboot(id), 400, "InvalidRequest", "stopping")
	wantError(t, r.deleteInstance(id), 400, "InvalidRequest", "running or has not yet fully stopped")
	step()
	r.reaches(id, oxide.InstanceStateStopped)

	must(0, r.startInstance(id))(t)
	must(0, r.stopInstance(id))(t) // while starting
	is(oxide.InstanceStateStopping)
	step() // two timers, one of them void
	step()
	r.reaches(id, oxide.InstanceStateStopped)
	must(0, r.deleteInstance(id))(t)

	for _, err := range []error{r.startInstance(id), r.stopInstance(id), r.reboot(id), r.deleteInstance(id)} {
		wantError(t, err, 404, "ObjectNotFound", "instance with id")
	}
}

// A delete that is refused does harm all the same.
func TestRefusedDeleteTakesNATAndRestart(t *testing.T) {
	r := newRig(t)
	i := r.instance("i")
	must(0, r.startInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateRunning)

	wantError(t, r.deleteInstance(i.Id), 400, "InvalidRequest", "")

	if in, _ := r.Inspect(i.Id); !in.NATLost || in.Intent != string(intentDestroyed) || in.RunState != "running" {
		t.Errorf("instance is %+v", in)
	}

	must(0, r.Crash(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateFailed)
	must(0, r.stopInstance(i.Id))(t)

	if st := r.runState(i.Id); st != oxide.InstanceStateStopped {
		t.Errorf("a failed instance that was stopped is %s", st)
	}

	must(0, r.deleteInstance(i.Id))(t)
}

// The start of a create fails silently, the start by itself says why.
func TestStartFailures(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Quota = Quota{CPUs: 8, Memory: 16 * gib}
		c.Sleds = []Sled{{Name: "a", CPUs: 4, Memory: 64 * gib}, {Name: "b", CPUs: 4, Memory: 64 * gib}}
	})
	sized := func(cpus int, memory int64) func(*oxide.InstanceCreate) {
		return func(b *oxide.InstanceCreate) {
			b.Ncpus, b.Memory, b.Start = oxide.InstanceCpuCount(cpus), oxide.ByteCount(memory), nil
		}
	}

	for _, tt := range []struct {
		name   string
		cpus   int
		memory int64
		part   string
	}{
		{"cpus", 9, gib, "Insufficient capacity: vCPU Limit Exceeded"},
		{"memory", 1, 17 * gib, "Insufficient capacity: Memory Limit Exceeded"},
		{"sleds", 5, gib, "Insufficient capacity: Failed to place instance: "},
	} {
		i := r.instance(tt.name, sized(tt.cpus, tt.memory))
		if i.RunState != oxide.InstanceStateStopped {
			t.Errorf("%s: created as %s", tt.name, i.RunState)
		}

		wantError(t, r.startInstance(i.Id), 507, "InsufficientCapacity", tt.part)
	}

	full := r.instance("full", sized(4, 15*gib))
	if full.RunState != oxide.InstanceStateStarting {
		t.Errorf("created as %s", full.RunState)
	}

	u := must(r.client.UtilizationView(t.Context()))(t)
	if *u.Provisioned.Cpus != 4 || u.Provisioned.Memory != oxide.ByteCount(15*gib) {
		t.Errorf("provisioned is %+v", u.Provisioned)
	}

	must(0, r.stopInstance(full.Id))(t)
	r.reaches(full.Id, oxide.InstanceStateStopped)

	if u := must(r.client.UtilizationView(t.Context()))(t); *u.Provisioned.Cpus != 0 {
		t.Errorf("after the stop provisioned is %+v", u.Provisioned)
	}

	zero := r.instance("zero", sized(0, gib))
	wantError(t, r.startInstance(zero.Id), 500, "Internal", "")
}

func (r *rig) group(name string, policy oxide.AffinityPolicy) *oxide.AntiAffinityGroup {
	r.t.Helper()

	return must(r.client.AntiAffinityGroupCreate(r.t.Context(), oxide.AntiAffinityGroupCreateParams{Project: demo, Body: &oxide.AntiAffinityGroupCreate{
		Name: oxide.Name(name), Policy: policy, FailureDomain: oxide.FailureDomainSled,
	}}))(r.t)
}

// Members of a group come to different sleds; with policy fail one too many
// does not start, and a stopped member does not stand in the way.
func TestAntiAffinity(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Sleds = DefaultSleds(2) })
	ctx := t.Context()
	g := r.group("apart", oxide.AffinityPolicyFail)
	in := func(b *oxide.InstanceCreate) { b.AntiAffinityGroups = []oxide.NameOrId{oxide.NameOrId(g.Id)} }

	var ids []string

	for n := range 3 {
		ids = append(ids, r.instance(fmt.Sprintf("i%d", n), in).Id)
	}

	must(0, r.startInstance(ids[0]))(t)
	must(0, r.startInstance(ids[1]))(t)
	wantError(t, r.startInstance(ids[2]), 507, "InsufficientCapacity", "Failed to place instance")

	a, _ := r.Inspect(ids[0])
	b, _ := r.Inspect(ids[1])

	if a.Sled == b.Sled {
		t.Errorf("both run on %s", a.Sled)
	}

	_, err := r.client.AntiAffinityGroupMemberInstanceAdd(ctx, oxide.AntiAffinityGroupMemberInstanceAddParams{
		AntiAffinityGroup: oxide.NameOrId(g.Id), Instance: oxide.NameOrId(ids[2]),
	})
	wantError(t, err, 400, "ObjectAlreadyExists", "member")

	other := r.group("other", oxide.AffinityPolicyAllow)
	_, err = r.client.AntiAffinityGroupMemberInstanceAdd(ctx, oxide.AntiAffinityGroupMemberInstanceAddParams{
		AntiAffinityGroup: oxide.NameOrId(other.Id), Instance: oxide.NameOrId(ids[0]),
	})
	wantError(t, err, 400, "InvalidRequest", "with reservation")

	must(0, r.stopInstance(ids[0]))(t)
	r.reaches(ids[0], oxide.InstanceStateStopped)
	must(0, r.startInstance(ids[2]))(t)

	members := must(r.client.AntiAffinityGroupMemberListAllPages(ctx, oxide.AntiAffinityGroupMemberListParams{Project: demo, AntiAffinityGroup: "apart"}))(t)
	if len(members) != 3 {
		t.Errorf("%d members", len(members))
	}

	must(0, r.client.AntiAffinityGroupMemberInstanceDelete(ctx, oxide.AntiAffinityGroupMemberInstanceDeleteParams{
		Project: demo, AntiAffinityGroup: "apart", Instance: "i0",
	}))(t)
	must(0, r.client.AntiAffinityGroupDelete(ctx, oxide.AntiAffinityGroupDeleteParams{AntiAffinityGroup: oxide.NameOrId(g.Id)}))(t)
}

// A crash shows as stopping, failed, starting; the next one waits for the end
// of the cool-down.
func TestAutoRestart(t *testing.T) {
	r, step := newStepped(t, onlyVMs)
	i := r.instance("i")
	must(0, r.startInstance(i.Id))(t)
	step()
	r.reaches(i.Id, oxide.InstanceStateRunning)

	must(0, r.Crash(i.Id))(t)

	if st := r.runState(i.Id); st != oxide.InstanceStateStopping {
		t.Errorf("right after the crash it is %s", st)
	}

	step()
	r.reaches(i.Id, oxide.InstanceStateFailed)
	step()
	r.reaches(i.Id, oxide.InstanceStateStarting)

	v := must(r.client.InstanceView(t.Context(), oxide.InstanceViewParams{Instance: oxide.NameOrId(i.Id)}))(t)
	if v.TimeLastAutoRestarted == nil || v.AutoRestartCooldownExpiration == nil {
		t.Errorf("restart times are %v and %v", v.TimeLastAutoRestarted, v.AutoRestartCooldownExpiration)
	}

	step()
	r.reaches(i.Id, oxide.InstanceStateRunning)
	must(0, r.Crash(i.Id))(t)
	step()
	r.reaches(i.Id, oxide.InstanceStateFailed)
	must(0, r.startInstance(i.Id))(t) // by hand, at once
	step()
	step()
	r.reaches(i.Id, oxide.InstanceStateRunning)

	never := r.instance("never", func(b *oxide.InstanceCreate) { b.AutoRestartPolicy = oxide.InstanceAutoRestartPolicyNever })
	must(0, r.startInstance(never.Id))(t)
	must(0, r.Crash(never.Id))(t)
	step()
	step()
	r.reaches(never.Id, oxide.InstanceStateFailed)
	must(0, r.deleteInstance(never.Id))(t)

	if err := r.Crash(never.Id); err == nil {
		t.Error("a deleted instance crashed")
	}
}

// The second restart by itself waits for what is left of the cool-down.
func TestRestartCooldown(t *testing.T) {
	r := newRig(t)

	var (
		mu    sync.Mutex
		waits []time.Duration
	)

	r.sleep = func(ctx context.Context, d time.Duration) bool {
		mu.Lock()
		waits = append(waits, d)
		mu.Unlock()

		return d < time.Second && ctx.Err() == nil
	}

	i := r.instance("i")
	must(0, r.startInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateRunning)
	must(0, r.Crash(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateRunning)
	must(0, r.Crash(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateFailed)

	eventually(t, "a long wait", func() bool {
		mu.Lock()
		defer mu.Unlock()

		last := waits[len(waits)-1] // three seconds are five minutes here

		return last > 2*time.Second && last <= 3*time.Second
	})
}

// recorder is a guest that waits to be told how to end.
type recorder struct {
	boots   atomic.Int32
	running atomic.Int32
	off     chan struct{}
	last    atomic.Pointer[guest.Hardware]
}

func (g *recorder) Boot(ctx context.Context, hw guest.Hardware, _ *zap.Logger) guest.Exit {
	g.boots.Add(1)
	g.running.Add(1)
	defer g.running.Add(-1)
	g.last.Store(&hw)

	select {
	case <-g.off:
		return guest.ExitPowerOff
	case <-ctx.Done():
		return guest.ExitStopped
	}
}

// Invariant: a guest runs while its instance is running, and at no other time.
func TestGuestLivesAsItsInstance(t *testing.T) {
	g := &recorder{off: make(chan struct{})}
	r := newRig(t, func(c *Config) { c.Booter = g; c.SwapGuestUUID = true })
	i := r.instance("i", func(b *oxide.InstanceCreate) { b.BootDisk = newDiskNamed("boot", 2*gib) })

	if g.boots.Load() != 0 {
		t.Error("a stopped instance has booted")
	}

	must(0, r.startInstance(i.Id))(t)
	eventually(t, "guest up", func() bool { return g.running.Load() == 1 })

	hw := g.last.Load()
	if hw.UUID == i.Id || swapUUID(hw.UUID) != i.Id || hw.Hostname != "i" || hw.BootDiskSize != 2*gib || hw.Addresses[0] != "172.30.0.5" || hw.Store == nil {
		t.Errorf("guest found %+v", hw)
	}

	must(0, r.reboot(i.Id))(t)
	eventually(t, "guest up again", func() bool { return g.boots.Load() == 2 && g.running.Load() == 1 })

	if again := g.last.Load(); again.Store != hw.Store {
		t.Error("a reboot has lost the disk's store")
	}

	must(0, r.stopInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateStopped)

	if g.running.Load() != 0 {
		t.Error("the guest of a stopped instance runs")
	}

	must(0, r.startInstance(i.Id))(t)
	eventually(t, "third boot", func() bool { return g.running.Load() == 1 })
	close(g.off)
	r.reaches(i.Id, oxide.InstanceStateStopped)

	if in, _ := r.Inspect(i.Id); in.Intent != string(intentGuestShutdown) {
		t.Errorf("after it powered itself off its intent is %s", in.Intent)
	}
}

func TestUUIDSwap(t *testing.T) {
	if got := swapUUID("c99ec374-b1ed-4af7-8000-000000000001"); got != "74c39ec9-edb1-f74a-8000-000000000001" {
		t.Error(got)
	}
}
