package provider

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// compressed is a small disk image as a factory sends it.
var compressed = sync.OnceValue(func() []byte {
	image, err := talosimage.New(talosimage.Descriptor{}, 4<<20, talosimage.Content{})
	if err != nil {
		panic(err)
	}

	var out bytes.Buffer

	w, err := zstd.NewWriter(&out)
	if err == nil {
		_, err = io.Copy(w, io.NewSectionReader(image, 0, image.Size()))
	}

	if err != nil || w.Close() != nil {
		panic(err)
	}

	return out.Bytes()
})

// trickle sends an image so slowly that it takes hours.
func trickle(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	body := compressed()

	// The head at once, so that the upload begins.
	for sent, n := 0, len(body)/2; sent < len(body); sent, n = sent+n, 16 {
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

// crowdSize is how many machines are removed at once, stopTime how long the rack
// takes to stop each.
const (
	crowdSize = 50
	stopTime  = 30 * time.Second
)

// Invariant: nobody waits for somebody else's work. Fifty machines are removed by
// ten workers while three images are uploaded, which takes hours, and while each
// stop takes half a minute: neither the uploads nor the stops hold a worker.
func TestFiftyTeardownsWaitNeitherForUploadsNorForStops(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		download := http.HandlerFunc(trickle)
		b.download.Store(&download)
		b.serve(func(o *Options) { o.Concurrency = 10 })

		for i := range crowdSize {
			b.ask(fmt.Sprintf("crowd-%02d", i))
		}

		for i := range crowdSize {
			b.untilStage(fmt.Sprintf("crowd-%02d", i), stageProvisioned)
		}

		for i, version := range []string{"1.13.6", "1.13.7", "1.13.8"} {
			b.ask(fmt.Sprintf("upload-%d", i), func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = version })
		}

		b.until("three uploads to run", func() bool { return b.sim.CallCount("disk_bulk_write_import") >= 3 })

		began, before := time.Now(), b.teardownCalls()

		for i := range crowdSize {
			b.remove(fmt.Sprintf("crowd-%02d", i))
		}

		b.until("all machines to be gone", func() bool {
			for i := range crowdSize {
				if !b.released(fmt.Sprintf("crowd-%02d", i)) {
					return false
				}
			}

			return true
		})

		took := time.Since(began)
		calls := b.teardownCalls()

		var total int

		for _, op := range slices.Sorted(maps.Keys(calls)) {
			n := calls[op] - before[op]
			total += n

			t.Logf("%-22s %5.2f a teardown", op, float64(n)/crowdSize)
		}

		t.Logf("%d teardowns in %s, %.1f calls each", crowdSize, took.Round(time.Second), float64(total)/crowdSize)

		// Held workers would take crowdSize/10 stops one after another.
		if took > 2*time.Minute {
			t.Errorf("%d teardowns took %s", crowdSize, took)
		}

		// Looked at, stopped, deleted, its disks listed and deleted; and a share of the
		// lists that tell of all stops at once.
		if each := float64(total) / crowdSize; each > 6 {
			t.Errorf("%.1f calls for each teardown", each)
		}

		for i := range 3 {
			if got := b.status(fmt.Sprintf("upload-%d", i)).GetStatus(); !strings.Contains(got, "image") {
				t.Errorf("upload %d says %q: it should still run", i, got)
			}
		}
	}, func(s *setup) {
		l := simrack.DefaultLatencies()
		l.Stop = stopTime
		s.rack.Latencies = &l
		s.rack.Sleds = simrack.DefaultSleds(16)
	})
}

// teardownCalls counts the calls that teardowns make.
func (b *bench) teardownCalls() map[string]int {
	out := map[string]int{}
	for _, op := range []string{"instance_view", "instance_list", "instance_stop", "instance_delete", "disk_list", "disk_view", "disk_delete"} {
		out[op] = b.sim.CallCount(op)
	}

	return out
}
