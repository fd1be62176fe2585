package provider

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// Rule B62: Omni is cut off and restarted, also in the middle of an upload: it goes on
// by itself, no step has its effect twice, and the upload is not begun anew.
func TestB62OmniIsRestartedInMidUpload(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		var finish atomic.Bool

		download := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { trickleUntil(&finish, w, r) })
		b.download.Store(&download)
		d := b.serve(leased)
		b.untilReady(d)

		ops := []string{"disk_bulk_write_import_start", "image_create", "instance_create"}
		before := map[string]int{}

		for _, op := range ops {
			before[op] = b.sim.CallCount(op)
		}

		b.ask(theRequest, func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = "1.13.6" })
		b.until("the upload to be on its way", func() bool { return b.sim.CallCount(ops[0]) > before[ops[0]] })

		b.pass(time.Minute)
		b.omni.CutStreams()
		b.pass(time.Minute)
		b.omni.Stop()
		b.pass(2 * time.Minute)
		b.ok(b.omni.Start(t.Context()))
		finish.Store(true)
		b.untilStage(theRequest, stageProvisioned)

		for _, op := range ops {
			if n := b.sim.CallCount(op) - before[op]; n != 1 {
				t.Errorf("%d calls of %s", n, op)
			}
		}
	})
}

// trickleUntil sends an image slowly, and the rest of it at once when told so.
func trickleUntil(finish *atomic.Bool, w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	body := compressed()

	for sent, n := 0, len(body)/2; sent < len(body); sent, n = sent+n, 1 {
		if finish.Load() {
			n = len(body)
		}

		if _, err := w.Write(body[sent:min(sent+n, len(body))]); err != nil || flush.Flush() != nil {
			return
		}

		select {
		case <-r.Context().Done():
			return
		case <-time.After(5 * time.Second):
		}
	}
}

// Rule B64: a rack that is too old answers every call with 400, and one that hangs
// answers none: both are one clear line of health that names our version, neither a
// bad class nor gone, and the daemon goes on when it is over.
func TestB64ARackThatIsTooOldOrHangs(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		fault simrack.Fault
		want  string
	}{
		"too old": {
			simrack.Fault{Condition: simrack.ConditionOldAPI, Until: simrack.Duration(30 * time.Minute)},
			"rack: the rack at http://rack.test/ does not speak our API version 2026060800 (release 20 or later), update it or use an older provider: ",
		},
		"hangs": {
			simrack.Fault{Action: simrack.ActionDelay, Delay: simrack.Duration(60 * time.Second), Until: simrack.Duration(30 * time.Minute)},
			"rack: the rack at http://rack.test/ can not be reached: no answer from the rack in time",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				d := b.serve(leased)
				b.wantServing(d, theRequest)
				b.fault(tc.fault)
				b.remove(theRequest)
				b.ask(secondRequest)
				b.untilTrouble(d, tc.want)

				if got := d.healthText(); strings.Contains(got, "\n") || strings.Count(got, "rack: ") != 1 {
					t.Errorf("health says %q", got)
				}

				b.pass(15 * time.Minute)

				if b.released(theRequest) {
					t.Error("it was taken for gone")
				}

				if said := b.notReady(); len(said) != 1 {
					t.Errorf("told in %q", said)
				}

				b.untilStage(secondRequest, stageProvisioned)
				b.untilReleased(theRequest)
				b.wantLeft(1, 1)
			})
		})
	}
}

// Rule B65: the rack is updated for forty minutes with a dozen requests open: no request
// fails for good, the calls stay few and spread, and all goes on by itself.
func TestB65TheRackIsUpdatedForFortyMinutes(t *testing.T) {
	t.Parallel()

	const open = 12

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve(leased, func(o *Options) { o.Concurrency = 10 })
		b.untilReady(d)

		for _, f := range []simrack.Fault{
			{Action: simrack.ActionReset, Until: simrack.Duration(10 * time.Minute)},
			{Action: simrack.ActionError, Status: 503, Code: "ServiceNotAvailable", Message: "Service Unavailable", From: simrack.Duration(10 * time.Minute), Until: simrack.Duration(40 * time.Minute)},
		} {
			b.fault(f)
		}

		for i := range open {
			b.ask(fmt.Sprintf("open-%02d", i))
		}

		before := len(b.sim.Calls())
		b.pass(10 * time.Minute)

		refused := len(b.sim.Calls()) - before

		b.pass(30 * time.Minute)

		busy := len(b.sim.Calls()) - before - refused
		t.Logf("%d calls in 10 minutes of resets, %d in 30 minutes of 503", refused, busy)

		// While the rack is cut off each request tries at most twice a minute; with 503
		// one tries for all, and the watch besides.
		if refused > 10*open*2+10*6 || busy > 30*5 {
			t.Errorf("%d calls in ten minutes of resets and %d in thirty of 503", refused, busy)
		}

		for i := range open {
			if st := b.status(fmt.Sprintf("open-%02d", i)); st.GetStage() == stageFailed {
				t.Errorf("open-%02d has failed: %s", i, st.GetError())
			}
		}

		back := time.Now()

		for i := range open {
			b.untilStage(fmt.Sprintf("open-%02d", i), stageProvisioned)
		}

		if took := time.Since(back); took > 5*time.Minute {
			t.Errorf("it took %s after the rack was back", took)
		}

		b.wantLeft(open, open)
	}, func(s *setup) { s.rack.Sleds = simrack.DefaultSleds(16) })
}

// Rule B67: a wait of minutes for the same reason can be read nearly all the time.
func TestB67TheReasonOfAWaitStands(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.fault(simrack.Fault{
			Operation: "instance_create", Action: simrack.ActionError, Status: 507, Code: "InsufficientCapacity",
			Message: "Insufficient capacity: Storage Limit Exceeded", Until: simrack.Duration(10 * time.Minute),
		})

		d := b.serve(leased)
		b.untilReady(d)
		b.ask(theRequest)
		b.until("the reason", func() bool { return strings.Contains(b.status(theRequest).GetStatus(), "Storage Limit Exceeded") })

		shown := 0

		for range 300 {
			b.pass(time.Second)

			st := b.status(theRequest)
			if strings.Contains(st.GetStatus(), "Storage Limit Exceeded") && st.GetStage() != stageFailed {
				shown++
			}

			if strings.Contains(st.GetStatus()+st.GetError(), simrack.DefaultToken) {
				t.Fatal("the token is shown")
			}
		}

		if shown < 290 {
			t.Errorf("shown in %d of 300 seconds", shown)
		}

		b.untilStage(theRequest, stageProvisioned)
	})
}

// Rule B69: a list of many pages of which one fails is no list: nothing is taken for
// gone, and with the next one the teardown ends.
func TestB69APageThatFailsMakesNoList(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		c := b.operator()

		for i := range 1200 {
			_, err := c.DiskCreate(t.Context(), oxide.DiskCreateParams{Project: oxide.NameOrId(b.project.Id), Body: &oxide.DiskCreate{
				Name: oxide.Name(fmt.Sprintf("theirs-%04d", i)), Description: "theirs", Size: gib,
				DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{DiskSource: oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: 512}}}},
			}})
			b.ok(err)
		}

		d := b.serve(leased)
		b.wantServing(d, theRequest)
		// The second page of the next list.
		b.fault(simrack.Fault{Operation: "disk_list", Path: "page_token", Action: simrack.ActionError, Status: 500, Count: 1})

		disks, err := b.rack.ListDisks(t.Context(), b.project.Id)
		if err == nil || disks != nil {
			t.Errorf("%d disks with an error of %v", len(disks), err)
		}

		disks, err = b.rack.ListDisks(t.Context(), b.project.Id)
		if err != nil || len(disks) != 1201 {
			t.Errorf("%d disks with an error of %v", len(disks), err)
		}

		b.fault(simrack.Fault{Operation: "disk_list", Path: "page_token", Action: simrack.ActionError, Status: 500, Count: 1})
		b.remove(theRequest)
		b.untilReleased(theRequest)
		b.wantLeft(0, 1200)
	}, func(s *setup) {
		s.rack.Quota = simrack.Quota{CPUs: 1000, Memory: 1 << 45, Storage: 1 << 50}
		s.rack.Sleds = simrack.DefaultSleds(32)
	})
}
