package provider

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// The provider was off for days: forty requests are being removed and new ones
// need images that take hours. The teardowns are not starved, each machine costs
// a bounded number of calls, and when all is done nothing more is.
func TestABacklogIsWorkedOffWhileImagesAreUploaded(t *testing.T) {
	t.Parallel()

	const old = 40

	bubble(t, func(t *testing.T, b *bench) {
		download := http.HandlerFunc(trickle)
		b.download.Store(&download)

		d := b.serve(func(o *Options) { o.Concurrency = 5 })

		for i := range old {
			b.ask(fmt.Sprintf("old-%02d", i))
		}

		for i := range old {
			b.untilStage(fmt.Sprintf("old-%02d", i), stageProvisioned)
		}

		b.ok(d.stop())

		for i := range old {
			b.remove(fmt.Sprintf("old-%02d", i))
		}

		for i := range 9 {
			b.ask(fmt.Sprintf("new-%d", i), func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = fmt.Sprintf("1.13.%d", 6+i%3) })
		}

		before, began := b.teardownCalls(), time.Now()
		b.serve(func(o *Options) { o.Concurrency = 5 })
		b.until("the backlog to be worked off", func() bool {
			for i := range old {
				if !b.released(fmt.Sprintf("old-%02d", i)) {
					return false
				}
			}

			return true
		})

		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("%d teardowns took %s", old, took)
		}

		total := 0
		for op, n := range b.teardownCalls() {
			total += n - before[op]
		}

		if total > old*40 {
			t.Errorf("%.1f calls for each teardown", float64(total)/old)
		}

		b.pass(5 * time.Minute)

		if n := b.sim.CallCount("instance_delete"); n != old {
			t.Errorf("%d instances were deleted", n)
		}
	}, func(s *setup) { s.rack.Sleds = simrack.DefaultSleds(16) })
}
