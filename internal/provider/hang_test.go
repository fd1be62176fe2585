package provider

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// shownConnected is how old a heartbeat may be before Omni shows the provider as
// disconnected.
const shownConnected = 31 * time.Second

// Invariant: whatever hangs, and however much there is to do, Omni is told of the
// daemon's health in time, and what it is told is true.
func TestHealthIsInTimeAndTrueWhateverHangs(t *testing.T) {
	t.Parallel()

	const crowd = 200

	bubble(t, func(t *testing.T, b *bench) {
		release := make(chan struct{})

		hang := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		b.download.Store(&hang)

		d := b.serve(func(o *Options) { o.Concurrency = 10 })
		b.untilReady(d)

		for n := range crowd {
			b.ask(fmt.Sprintf("talos-workers-%03d", n))
		}

		// watch demands a heartbeat in time for a while, and answers what it said last.
		watch := func(long time.Duration) string {
			t.Helper()

			said := ""

			for end := time.Now().Add(long); time.Now().Before(end); {
				b.pass(5 * time.Second)

				h, err := safe.StateGetByID[*infra.ProviderHealthStatus](t.Context(), b.admin, testID)
				b.ok(err)

				spec := h.TypedSpec().Value
				if age := time.Since(spec.GetLastHeartbeatTimestamp().AsTime()); age > shownConnected {
					t.Fatalf("the last heartbeat is %s old", age)
				}

				said = spec.GetError()
			}

			return said
		}

		if said := watch(40 * time.Second); said != "" {
			t.Errorf("while %d requests work it says %q", crowd, said)
		}

		// The factory hangs: an image that is not in the rack is asked for.
		b.ask("talos-workers-new", func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = "1.13.4" })
		watch(40 * time.Second)

		// The rack hangs.
		id, err := b.sim.AddFault(simrack.Fault{Action: simrack.ActionHang})
		b.ok(err)

		if said := watch(time.Minute); !strings.Contains(said, "rack") {
			t.Errorf("while the rack hangs it says %q", said)
		}

		if d.board.Ready() {
			t.Error("it is ready while the rack hangs")
		}

		b.sim.RemoveFault(id)
		close(release)

		if said := watch(90 * time.Second); strings.Contains(said, "rack:") {
			t.Errorf("when the rack answers again it says %q", said)
		}

		if d.Facts().Stages[stageDone] == 0 {
			t.Error("no request was done in all that time")
		}
	})
}
