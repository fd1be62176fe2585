package image_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

func keyed() naming.Mark { return naming.Mark{Key: identity().Key()} }

// Invariant: an image that is being removed is handed to nobody; who asks waits,
// and gets a new one.
func TestAnImageThatIsBeingRemovedIsNotHandedOut(t *testing.T) {
	t.Parallel()

	w := newWorld()
	test(t, w, func(t *testing.T, m *image.Manager) {
		first := until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)
		time.Sleep(time.Second)

		done, ok := m.Withdraw(keyed(), first.ImageID, time.Now())
		if !ok {
			t.Fatal("refused")
		}

		if _, twice := m.Withdraw(keyed(), first.ImageID, time.Now()); twice {
			t.Error("withdrawn twice")
		}

		if s := ask(t, m, want()); s.Ready || !strings.Contains(s.Reason, "being removed") {
			t.Errorf("status %+v", s)
		}

		w.rack.set(func() { clear(w.rack.images) })
		done()

		if s := until(t, m, want(), time.Minute); s.ImageID == first.ImageID {
			t.Error("the image that is gone is answered")
		}

		settle(t, w, time.Minute)
	})
}

// Invariant: what somebody was just told to use, or what is on its way, is not
// given up.
func TestAnImageInDemandIsNotGivenUp(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.build = time.Minute

	test(t, w, func(t *testing.T, m *image.Manager) {
		ask(t, m, want())
		synctest.Wait()

		if _, ok := m.Withdraw(keyed(), "any", time.Now()); ok {
			t.Error("given up during its upload")
		}

		looked := time.Now()
		time.Sleep(time.Second)

		s := until(t, m, want(), 5*time.Minute)
		settle(t, w, time.Minute)

		if _, ok := m.Withdraw(keyed(), s.ImageID, looked); ok {
			t.Error("given up although somebody was told to use it since")
		}
	})
}
