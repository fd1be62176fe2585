package image_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
)

const gib = 1 << 30

// refused asks until the disk is refused, and answers why.
func refused(t *testing.T, m *image.Manager, w image.Want) string {
	t.Helper()

	for range 20 {
		s, err := m.Ask(t.Context(), w)
		if mend, ok := errors.AsType[*image.MendError](err); ok {
			return mend.Reason
		}

		time.Sleep(s.RetryIn)
	}

	t.Fatal("the disk is not refused")

	return ""
}

func TestADiskThatIsTooSmallIsRefusedWithBothSizes(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.size = gib + 512

	test(t, w, func(t *testing.T, m *image.Manager) {
		small := want()
		small.DiskBytes = gib

		if got := refused(t, m, small); !strings.Contains(got, "boot_disk_size: 1 GiB is less than the 2 GiB") {
			t.Errorf("got %q", got)
		}
	})

	if n := w.count("create disk"); n != 0 {
		t.Errorf("%d disks were made", n)
	}
}

// A disk that is too small costs no upload and holds nobody else up.
func TestADiskThatIsTooSmallCostsNoUpload(t *testing.T) {
	t.Parallel()

	w := newWorld()
	size := uint64(len(w.source.data))

	test(t, w, func(t *testing.T, m *image.Manager) {
		small, exact := want(), want()
		small.DiskBytes, exact.DiskBytes = size-1, size

		refused(t, m, small)

		// However often it is asked again, nothing is made or even opened.
		for range 5 {
			if _, err := m.Ask(t.Context(), small); err == nil {
				t.Error("the small disk is served")
			}

			time.Sleep(time.Minute)
		}

		if w.count("create disk") != 0 || w.count("open") != 1 {
			t.Errorf("%d disks were made, the factory was asked %d times", w.count("create disk"), w.count("open"))
		}

		// What the rack has is larger: whole GiB.
		exact.DiskBytes = max(exact.DiskBytes, gib)
		until(t, m, exact, 10*time.Minute)
		until(t, m, want(), time.Minute)
	})

	if n := w.count("create disk"); n != 1 {
		t.Errorf("%d uploads", n)
	}
}
