package image_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// several are wants of different images in one project.
func several(n int) []image.Want {
	var all []image.Want

	for i := range n {
		w := want()
		w.Identity.Schematic = fmt.Sprintf("%064x", i)
		all = append(all, w)
	}

	return all
}

// Invariant: an upload begins only when the quota has room for a disk and a
// snapshot of the image's size. Until then nothing is made, the line names need,
// free and capacity, and the factory is asked no more.
func TestAnUploadWaitsForQuota(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.quota = 3 * gib
	theirs := w.rack.addDisk(project, "theirs", "", oxide.DiskStateStateDetached)
	theirs.Size = 2 * gib

	test(t, w, func(t *testing.T, m *image.Manager) {
		said(t, m, "waiting for storage quota", "takes 2 GiB", "1 GiB of 3 GiB are free")

		for range 60 {
			ask(t, m, want())
			time.Sleep(10 * time.Second)
		}

		if opens, disks := w.count("open"), w.count("create disk"); opens != 1 || disks != 0 {
			t.Errorf("asked the factory %d times, made %d disks", opens, disks)
		}

		w.rack.set(func() { delete(w.rack.disks, theirs.Id) })
		until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)
	})

	if w.count("over the quota") != 0 {
		t.Error("the rack had to refuse something")
	}
}

// Invariant: however many wait for quota, one look in fifteen seconds serves them
// all, and what there is room for goes ahead without one refusal of the rack.
func TestFiftyRequestsWaitForQuotaWithOneProbe(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.quota = 5 * gib
	w.rack.finalizing = 3 * time.Second
	theirs := w.rack.addDisk(project, "theirs", "", oxide.DiskStateStateDetached)
	theirs.Size = 4 * gib

	test(t, w, func(t *testing.T, m *image.Manager) {
		wants := several(50)

		round := func() (ready int) {
			for _, want := range wants {
				if ask(t, m, want).Ready {
					ready++
				}
			}

			time.Sleep(5 * time.Second)

			return ready
		}

		round()
		round()

		before, start := w.count("utilization"), time.Now()
		for time.Since(start) < 10*time.Minute {
			round()
		}

		if n := w.count("utilization") - before; n < 35 || n > 45 {
			t.Errorf("%d looks at the quota in ten minutes", n)
		}

		w.rack.set(func() { delete(w.rack.disks, theirs.Id) })

		for range 1000 {
			if round() == len(wants) {
				break
			}
		}

		if n := len(w.rack.imageList()); n != len(wants) {
			t.Errorf("%d images", n)
		}

		settle(t, w, time.Minute)
	})

	if n := w.count("over the quota"); n != 0 {
		t.Errorf("the rack had to refuse %d calls", n)
	}
}

// Invariant: a quota that can not be read holds nothing up.
func TestAQuotaThatCanNotBeRead(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.faults["utilization"] = times(1, 1<<20, errOf(rack.ClassInternal, 500))

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)
	})
}

// Invariant: who waits reads how far the upload is: percent, bytes, speed and the
// time that is left.
func TestTheLineSaysHowFarTheUploadIs(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.data = disk(60, 512)
	w.source.pace = 100 * time.Millisecond // 100,003 bytes each

	test(t, w, func(t *testing.T, m *image.Manager) {
		said(t, m, "uploading Talos 1.13.5 image", "of 30 MiB", " MiB/s, ", "s left)")

		infos := m.Jobs()
		if len(infos) != 1 || infos[0].Rate < 800_000 || infos[0].Rate > 1_200_000 || infos[0].Left <= 0 || infos[0].Left > time.Minute {
			t.Errorf("jobs %+v", infos)
		}

		until(t, m, want(), 2*time.Minute)
		settle(t, w, time.Minute)
	})
}

// Invariant: when the image that one waits to upload arrives by another hand, it
// is used and not uploaded again.
func TestAnImageThatArrivesDuringTheWait(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.quota = gib

	test(t, w, func(t *testing.T, m *image.Manager) {
		said(t, m, "waiting for storage quota")
		w.rack.set(func() {
			w.rack.addImage("", "talos", imageMark(nil), gib, nil)
			w.rack.quota = 5 * gib
		})

		if s := until(t, m, want(), time.Minute); s.ImageID != one(t, w).Id {
			t.Errorf("%+v", s)
		}
	})

	if w.count("create disk") != 0 {
		t.Error("it was uploaded again")
	}
}

func heap() uint64 {
	var s runtime.MemStats

	// What lies in a pool goes at the second collection, what has a finalizer
	// or a cleanup after the one that ran it.
	for range 3 {
		runtime.GC()
	}

	runtime.ReadMemStats(&s)

	return s.HeapAlloc
}

// Invariant: memory does not depend on the number of waiting requests: those for
// one image share a job, and a job that waits holds no buffer. It must not run
// beside other tests.
//
//nolint:paralleltest // it measures the heap
func TestWaitingTakesNoMemory(t *testing.T) {
	w := newWorld()
	w.rack.quota = gib

	synctest.Test(t, func(t *testing.T) {
		m, stop := w.start(t, "0a1b2c3d", nil)
		wants := several(201)

		for _, want := range wants[:1] {
			ask(t, m, want)
		}

		time.Sleep(time.Minute)

		one := heap()

		for range 20_000 {
			ask(t, m, wants[0])
		}

		if grown := int64(heap()) - int64(one); grown > 1<<20 {
			t.Errorf("20,000 questions about one image took %d KiB", grown>>10)
		}

		for _, want := range wants {
			ask(t, m, want)
		}

		time.Sleep(time.Minute)

		waiting := 0
		for _, j := range m.Jobs() {
			if j.Phase == image.PhaseQuota && strings.Contains(j.Waits, "quota") {
				waiting++
			}
		}

		// A chunk is 512 KiB: if each held its first one this would be 100 MiB.
		grown := int64(heap()) - int64(one)
		if waiting != len(wants) || grown > int64(len(wants))*32<<10 {
			t.Errorf("%d images wait and take %d KiB", waiting, grown>>10)
		}

		t.Logf("%d KiB for %d images that wait", grown>>10, waiting)
		stop()
	})
}
