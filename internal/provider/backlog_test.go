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

// tenMinutes sends an image over that time.
func tenMinutes(w http.ResponseWriter, r *http.Request) {
	const pieces = 120

	body := compressed()

	// The head at once, so that the upload begins.
	for sent, n := 0, len(body)/3; sent < len(body); sent, n = sent+n, len(body)/pieces+1 {
		n = min(n, len(body)-sent)

		if _, err := w.Write(body[sent : sent+n]); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}

		select {
		case <-r.Context().Done():
			return
		case <-time.After(10 * time.Minute / pieces):
		}
	}
}

// Rule B57: a request is removed while its image is on its way. The removal does
// not wait for the upload, no instance is made for it afterwards, and the others
// that wait for the same image get it.
func TestB57ATeardownDoesNotWaitForItsUpload(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		download := http.HandlerFunc(tenMinutes)
		b.download.Store(&download)
		b.serve()

		ids := []string{"goes", "stays-1", "stays-2", "stays-3"}
		for _, id := range ids {
			b.ask(id, func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = "1.13.6" })
		}

		before := b.sim.CallCount("image_create")

		b.until("the upload to run", func() bool { return b.sim.CallCount("disk_bulk_write_import") >= 1 })

		began := time.Now()

		b.remove("goes")
		b.untilReleased("goes")

		if took := time.Since(began); took > time.Minute || b.sim.CallCount("instance_create") != 0 {
			t.Errorf("the removal took %s, beside %d creates", took, b.sim.CallCount("instance_create"))
		}

		for _, id := range ids[1:] {
			b.untilStage(id, stageProvisioned)
		}

		if n, images := b.sim.CallCount("instance_create"), b.sim.CallCount("image_create"); n != 3 || images != before+1 {
			t.Errorf("%d creates and %d images", n, images-before)
		}

		b.wantLeft(3, 3)
	})
}
