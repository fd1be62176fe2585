package provider

import (
	"net/http"
	"strings"
	"testing"
	"time"

	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
)

// overview is what a command beside the daemon sees.
func (b *bench) overview() *Overview {
	b.t.Helper()

	o, err := (&Connection{state: b.st, endpoint: b.omni.Endpoint()}).Overview(b.t.Context())
	b.ok(err)

	return o
}

func (o *Overview) request(id string) RequestView {
	for _, r := range o.Requests {
		if r.ID == id {
			return r
		}
	}

	return RequestView{}
}

// Invariant: an overview shows each request with its stage and what it waits for,
// the upload that they wait for once, with its progress, and who works.
func TestAnOverviewShowsWaitsUploadsAndWhoWorks(t *testing.T) {
	t.Parallel()

	const second, broken, done = "talos-workers-ghijkl", "talos-workers-broken", "talos-workers-done"

	bubble(t, func(t *testing.T, b *bench) {
		if o := b.overview(); o.Lease != nil || o.Health != nil || len(o.Requests) != 0 || len(o.Uploads) != 0 || o.Owner == "" {
			t.Errorf("before the daemon: %+v", o)
		}

		slowly := http.HandlerFunc(trickle)
		b.download.Store(&slowly)

		times := lease.Times{Duration: lease.DefaultDuration, Renew: lease.DefaultRenew, Stop: lease.DefaultStop}
		d := b.serve(func(o *Options) { o.Lease, o.Host = &times, "here" })
		b.untilReady(d)

		waiting := func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = "1.13.4" }
		b.ask(theRequest, waiting)
		b.ask(second, waiting)
		b.ask(broken, class("project: demo\ncpus: 300\n"))
		b.ask(done)
		b.untilStage(done, stageProvisioned)
		b.untilStage(broken, stageFailed)
		b.until("the upload to go on", func() bool { return len(b.overview().Uploads) == 1 && b.overview().Uploads[0].Percent >= 0 })

		o := b.overview()

		if o.Lease == nil || o.Lease.Holder != "here" || o.Lease.Term != 1 || time.Since(o.Lease.Renewed) > lease.DefaultDuration {
			t.Errorf("the lease is %+v", o.Lease)
		}

		if o.Health == nil || time.Since(o.Health.Heartbeat) > shownConnected {
			t.Errorf("health is %+v", o.Health)
		}

		if u := o.Uploads[0]; u.Requests != 2 || u.Talos != "1.13.4" || u.Schematic != factorySchematic || u.Project != "demo" || u.Percent > 99 {
			t.Errorf("the upload is %+v", u)
		}

		for id, want := range map[string]RequestView{
			theRequest: {Stage: stageProvisioning, Step: stepImage, Waits: "%"},
			second:     {Stage: stageProvisioning, Step: stepImage, Waits: "%"},
			broken:     {Stage: stageBroken, Waits: "cpus: 300 is over the limit of 254"},
			done:       {Stage: stageDone, Step: stepStart, Waits: "for the machine to join Omni"},
		} {
			r := o.request(id)
			if r.Stage != want.Stage || want.Step != "" && r.Step != want.Step || !strings.Contains(r.Waits, want.Waits) || r.Created.IsZero() {
				t.Errorf("%s is %+v", id, r)
			}
		}

		if r := o.request(done); r.InstanceID == "" || r.Instance == "" || r.RunningSince == "" || r.Machine != "" {
			t.Errorf("%+v", r)
		}

		b.remove(broken)
		b.remove(done)

		if r := b.overview().request(done); r.ID != "" && (r.Stage != stageRemoving || r.Waits != removalWords) {
			t.Errorf("while it is removed: %+v", r)
		}
	})
}
