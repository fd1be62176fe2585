package image_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Invariant: whatever answer is lost, one upload is enough and nothing is left.
func TestLostAnswers(t *testing.T) {
	t.Parallel()

	for _, op := range []string{
		"create disk", "start", "write", "stop", "finalize", "view disk", "view snapshot",
		"create image", "promote image", "delete snapshot", "delete disk",
	} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()

			w := newWorld()
			w.rack.faults[op] = lost

			test(t, w, func(t *testing.T, m *image.Manager) {
				until(t, m, want(), 5*time.Minute)
				checkContent(t, one(t, w), w.source.data)

				if w.count("open") != 1 || one(t, w).ProjectId != "" {
					t.Errorf("calls %v", w.all())
				}

				settle(t, w, 5*time.Minute)
			})
		})
	}
}

// Invariant: a disk whose create call was lost and that appears later is
// removed all the same.
func TestADiskThatAppearsLate(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.faults["create disk"] = times(1, 1, errOf(rack.ClassLost, 0))

	var first string

	w.rack.onCreate = func(name string) {
		if first == "" {
			first = name
		}
	}

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), time.Minute)

		if w.count("create disk") != 2 {
			t.Errorf("calls %v", w.all())
		}

		settle(t, w, time.Minute)

		mark := naming.Mark{Owner: owner, Provider: "oxide", Kind: naming.KindScratch, Key: identity().Key(), Run: "0a1b2c3d"}
		w.rack.set(func() { w.rack.addDisk(project, first, mark.Describe(""), oxide.DiskStateStateImportReady) })
		settle(t, w, 2*time.Minute)
	})
}

// Invariant: an import that dies part-way is undone from whatever state its
// disk is in, and does not stand in the way of the next.
func TestWritesThatFailForGood(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.data = disk(61, 512)

	var (
		mu    sync.Mutex
		n     int
		since time.Time
	)

	w.rack.onWrite = func(string, uint64, int) error {
		mu.Lock()
		defer mu.Unlock()

		if n++; n <= 30 {
			return nil
		}

		if since.IsZero() {
			since = time.Now()
		}

		if time.Since(since) < 2*time.Minute {
			return errOf(rack.ClassInternal, 500)
		}

		return nil
	}

	test(t, w, func(t *testing.T, m *image.Manager) {
		ask(t, m, want())
		said(t, m, "chunk at offset ", "injected internal")

		until(t, m, want(), 10*time.Minute)
		checkContent(t, one(t, w), w.source.data)
		settle(t, w, time.Minute)
	})
}

// Invariant: a chunk that fails is written again, the same bytes at the same
// place, and the upload completes.
func TestSingleWritesFail(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.data = disk(181, 512)

	var (
		mu   sync.Mutex
		n    int
		seen = map[uint64]bool{}
	)

	w.rack.onWrite = func(_ string, offset uint64, _ int) error {
		mu.Lock()

		n++
		fails := n%17 == 0 && !seen[offset]
		kind := n / 17 % 3
		seen[offset] = true

		mu.Unlock()

		if !fails {
			return nil
		}

		switch kind {
		case 0:
			return errOf(rack.ClassInternal, 500)
		case 1:
			return errOf(rack.ClassLost, 0)
		}

		time.Sleep(60 * time.Second)

		return errOf(rack.ClassLost, 0)
	}

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), 10*time.Minute)
		checkContent(t, one(t, w), w.source.data)
		settle(t, w, time.Minute)

		if w.count("open") != 1 {
			t.Error("uploaded again")
		}
	})
}

// Invariant: one chunk that never goes through ends the upload with its
// offset and cause, and nobody is stuck.
func TestOneChunkNeverGoesThrough(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.data = disk(61, 512)
	w.rack.onWrite = func(_ string, offset uint64, _ int) error {
		if offset == 10*chunk {
			return errOf(rack.ClassInternal, 500)
		}

		return nil
	}

	test(t, w, func(t *testing.T, m *image.Manager) {
		ask(t, m, want())
		said(t, m, "chunk at offset 5242880, try 8")

		w.rack.set(func() { w.rack.onWrite = nil })
		until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)
	})
}

// Invariant: a disk whose import service is gone is given up within a bounded
// time, and the image is made through another one.
func TestTheImportServiceOfOneDiskIsGone(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.data = disk(61, 512)

	var (
		mu  sync.Mutex
		bad string
		n   int
	)

	w.rack.onWrite = func(id string, _ uint64, _ int) error {
		mu.Lock()
		defer mu.Unlock()

		if bad == "" {
			bad = id
		}

		n++
		if id == bad && n > 20 {
			return errOf(rack.ClassInternal, 500)
		}

		return nil
	}

	// Only the bad disk is ever in a state to be stopped twice.
	broken := func(int) (bool, error) {
		if w.rack.disks[bad] != nil && w.rack.disks[bad].state == oxide.DiskStateStateImportingFromBulkWrites &&
			w.rack.disks[bad].snapshot == "" && len(w.rack.images) > 0 {
			return false, errOf(rack.ClassInternal, 500)
		}

		return true, nil
	}
	w.rack.faults["stop"] = times(1, 1, errOf(rack.ClassInternal, 500))

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), 3*time.Minute)
		w.rack.set(func() { w.rack.faults["stop"] = broken })
		time.Sleep(20 * time.Minute)
		w.rack.set(func() { clear(w.rack.faults) })
		settle(t, w, 5*time.Minute)

		if w.count("create disk") != 2 {
			t.Errorf("%d disks", w.count("create disk"))
		}
	})
}

// Invariant: disk and snapshot are waited for by their states, not by the
// answer of finalize.
func TestFinalizeThatGoesOnAfterItsAnswer(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.finalizing, w.rack.snapshotLag = 20*time.Second, 5*time.Second

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)

		if w.count("finalize") != 1 || w.count("open") != 1 {
			t.Errorf("calls %v", w.all())
		}
	})
}

// Invariant: a finalize that failed is repeated without another upload.
func TestFinalizeThatIsTakenBack(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.faults["finalize"] = times(1, 2, errOf(rack.ClassInternal, 500))

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)

		if w.count("finalize") != 3 || w.count("open") != 1 {
			t.Errorf("calls %v", w.all())
		}
	})
}

// Invariant: clean-up that fails does not hold up the image, and leaves
// nothing in the end.
func TestCleanUpThatFails(t *testing.T) {
	t.Parallel()

	w := newWorld()

	test(t, w, func(t *testing.T, m *image.Manager) {
		for i := range 5 {
			w.rack.set(func() {
				clear(w.rack.calls)
				w.rack.faults["delete snapshot"] = times(1, 10, errOf(rack.ClassInternal, 500))
				w.rack.faults["delete disk"] = times(1, 10, invalid("disk cannot be deleted in state %q", "finalizing"))
			})

			v := want()
			v.Identity.Talos = fmt.Sprintf("1.13.%d", i)
			until(t, m, v, 20*time.Second)
		}

		settle(t, w, 3*time.Hour)
	})
}

// Invariant: a full quota is told with what is needed, and passes.
func TestAFullQuota(t *testing.T) {
	t.Parallel()

	for _, op := range []string{"create disk", "finalize"} {
		w := newWorld()
		w.rack.faults[op] = func(n int) (bool, error) {
			if n == 1 {
				return false, errOf(rack.ClassCapacity, 507)
			}

			return true, nil
		}

		test(t, w, func(t *testing.T, m *image.Manager) {
			ask(t, m, want())
			time.Sleep(time.Second)

			if s := ask(t, m, want()); !strings.Contains(s.Reason, "2 GiB must be free during the import, twice the image's 1") {
				t.Error(s.Reason)
			}

			until(t, m, want(), time.Minute)
			settle(t, w, time.Minute)
		})
	}
}

// Invariant: nothing gets the final name unless the stream was whole.
func TestADamagedStreamMakesNoImage(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*fakeSource){
		"breaks off":     func(s *fakeSource) { s.fail = fmt.Errorf("checksum: %w", io.ErrUnexpectedEOF) },
		"too short":      func(s *fakeSource) { s.size = uint64(len(s.data)) + 512 },
		"no partitions":  func(s *fakeSource) { s.data = make([]byte, 3*chunk) },
		"longer by GiBs": func(s *fakeSource) { s.size = 512 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newWorld()
			whole := w.source.data
			change(w.source)

			test(t, w, func(t *testing.T, m *image.Manager) {
				ask(t, m, want())
				time.Sleep(3 * time.Second)

				if s := ask(t, m, want()); !strings.Contains(s.Reason, "import failed") || len(w.rack.imageList()) != 0 {
					t.Errorf("%q, %d images", s.Reason, len(w.rack.imageList()))
				}

				w.source.mu.Lock()
				w.source.data, w.source.size, w.source.fail = whole, 0, nil
				w.source.mu.Unlock()

				until(t, m, want(), time.Minute)
				checkContent(t, one(t, w), whole)
				settle(t, w, time.Minute)
			})
		})
	}
}

// Invariant: a disk of 4,096-byte blocks and an odd length arrives whole.
func TestLargeBlocksAndAnOddLength(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.data = disk(5, 4096)[:4*chunk+1000]
	copy(w.source.data[4*chunk+990:], "the end")

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), time.Minute)
		checkContent(t, one(t, w), w.source.data)
		settle(t, w, time.Minute)
	})
}

func TestScratchIsRoundedUpToWholeGiB(t *testing.T) {
	t.Parallel()

	for size, gib := range map[uint64]uint64{
		1: 1, 1 << 30: 1, 1_306_525_696: 2, 4 << 30: 4, 4<<30 + 512: 5,
	} {
		if got := image.DiskSize(size); got != gib<<30 {
			t.Errorf("%d bytes: %d instead of %d GiB", size, got, gib)
		}
	}
}

// Invariant: the end of the process in the midst of an upload leaves nothing
// if ten seconds are enough, and otherwise the record by which the next process
// finds it.
func TestShutdownInTheMidst(t *testing.T) {
	t.Parallel()

	for _, stuck := range []bool{false, true} {
		w := newWorld()
		w.source.data = disk(61, 512)
		w.rack.delays["write"] = 20 * time.Second

		synctest.Test(t, func(t *testing.T) {
			m, stop := w.start(t, "0a1b2c3d", nil)
			ask(t, m, want())
			time.Sleep(30 * time.Second)

			if stuck {
				w.rack.set(func() { w.rack.faults["finalize"] = times(1, 100, errOf(rack.ClassBusy, 503)) })
			}

			start := time.Now()
			stop()

			if took := time.Since(start); took > 12*time.Second {
				t.Errorf("the shutdown took %s", took)
			}

			if len(w.rack.left()) > 0 != stuck || len(w.omni.records()) > 0 != stuck {
				t.Errorf("left %v, records %v", w.rack.left(), w.omni.records())
			}
		})
	}
}

// Invariant: at no call does the end of the process leave anything that the
// next one does not find.
func TestShutdownAtEachCall(t *testing.T) {
	t.Parallel()

	for _, op := range []string{
		"open", "create disk", "start", "write", "stop", "finalize", "view disk", "view snapshot",
		"create image", "promote image", "delete snapshot", "delete disk",
	} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()

			w := newWorld()

			synctest.Test(t, func(t *testing.T) {
				ctx, kill := context.WithCancel(t.Context())
				reached := make(chan struct{})

				w.rack.set(func() { w.rack.delays[op] = time.Minute })

				switch op {
				case "open":
					w.source.build = time.Minute
				case "view disk":
					w.rack.finalizing = time.Second // or nobody looks
				}

				m, stop := w.start(t, "0a1b2c3d", nil)

				go func() {
					defer close(reached)

					for w.count(op) == 0 && ctx.Err() == nil {
						time.Sleep(100 * time.Millisecond)
					}
				}()

				ask(t, m, want())
				<-reached
				kill()
				stop()
				w.rack.set(func() { clear(w.rack.delays) })

				w.source.build = 0

				m, stop = w.start(t, "4e5f6071", nil)
				until(t, m, want(), time.Minute)
				settle(t, w, 10*time.Minute)
				checkContent(t, one(t, w), w.source.data)

				if one(t, w).ProjectId != "" {
					t.Error("the image was not promoted")
				}

				time.Sleep(5 * time.Minute)
				stop()

				if n := len(w.omni.records()); n != 0 {
					t.Errorf("%d records are left", n)
				}
			})
		})
	}
}

var errSource = errors.New("the factory can not be reached")

func TestWhatTheSourceSaysIsShown(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.errs = []error{errSource}

	test(t, w, func(t *testing.T, m *image.Manager) {
		ask(t, m, want())
		synctest.Wait()

		if s := ask(t, m, want()); !strings.HasPrefix(s.Reason, "image import failed: the factory can not be reached; next try at 00:0") {
			t.Error(s.Reason)
		}
	})
}
