package lease

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A process that is alone works at once, also the first time ever.
func TestALoneProcessHoldsTheLeaseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)
		time.Sleep(time.Hour)
		a.want(1, true)
		a.end()
		a.want(1, false)

		if r := o.record(); !r.free() || r.Lease().GetTerm() != 1 {
			t.Errorf("after the end the record is %v", r.Lease())
		}

		b := o.start("b")
		within(t, time.Second, "the lease that was freed", b.holds)

		if r := o.record(); r.Lease().GetTerm() != 2 || r.Lease().GetHost() != "b" {
			t.Errorf("the record is %v", r.Lease())
		}
	})
}

// A rolling update: the new one stands by, and works as soon as the old one has
// ended in good order, after its last call.
func TestALeaseThatIsFreedIsTakenAtOnceAndNotBeforeTheWorkHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		a.outlast(time.Minute)
		within(t, time.Second, "the lease", a.holds)

		b := o.start("b")
		time.Sleep(time.Hour)
		a.want(1, true)
		b.want(0, false)

		if got := b.Role(); got != (Role{Term: 1, Holder: "a"}) {
			t.Errorf("the standby takes itself for %q", got)
		}

		a.cancel()
		time.Sleep(59 * time.Second)
		a.want(1, true)
		b.want(0, false)
		time.Sleep(time.Second)
		within(t, defaults.look()+time.Second, "the lease", b.holds)

		if got := a.says(); !slices.Equal(got, []string{"holding the lease: this replica works for the provider", "freed the lease"}) {
			t.Errorf("the first says %q", got)
		}

		if got := b.says(); len(got) != 2 || !strings.HasPrefix(got[0], "standing by: ") || !strings.HasPrefix(got[1], "holding the lease") {
			t.Errorf("the second says %q", got)
		}
	})
}

// A holder that is cut off begins nothing after Stop, and another one works when
// the record has stood still for the duration; the first one stands by then.
func TestAHolderThatIsCutOffStopsBeforeAnotherBegins(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)

		b := o.start("b")
		time.Sleep(time.Hour)
		a.set(func(l *link) { l.cut = true })

		stopped := within(t, defaults.Stop, "the end of the work", func() bool { return !a.holds() })
		a.want(1, false)

		took := within(t, defaults.Duration+defaults.look(), "the other one", b.holds)
		if stopped+took < defaults.Duration-defaults.Renew {
			t.Errorf("taken after %s", stopped+took)
		}

		time.Sleep(time.Hour)
		a.set(func(l *link) { l.cut = false })
		time.Sleep(time.Minute)
		a.want(1, false)
		b.want(1, true)

		if _, _, deposed, _ := a.look(); deposed != 1 {
			t.Errorf("the first was deposed %d times", deposed)
		}

		if got := a.says(); len(got) != 2 || got[1] != "lost the lease, standing by: it could not be renewed for 12s" {
			t.Errorf("the first says %q", got)
		}
	})
}

// A process that is stopped in the middle of a renewal, for longer than the
// lease, takes nothing back when it goes on.
func TestAHolderThatWasPausedTakesNothingBack(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)

		b := o.start("b")
		time.Sleep(time.Minute)

		paused, goOn := make(chan struct{}), make(chan struct{})
		a.set(func(l *link) {
			l.before = func() {
				paused <- struct{}{}
				<-goOn
			}
		})
		<-paused
		a.set(func(l *link) { l.before = nil })

		within(t, time.Minute, "the other one", b.holds)
		close(goOn)
		time.Sleep(time.Minute)
		a.want(1, false)
		b.want(1, true)

		if r := o.record(); r.Lease().GetHost() != "b" || r.Lease().GetTerm() != 2 {
			t.Errorf("the record is %v", r.Lease())
		}
	})
}

// Omni was away for a while: nobody could take the lease, and whoever had it goes
// on, with the work that outlives a loss.
func TestAHolderGoesOnWhenOmniWasAway(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		away := status.Error(codes.Unavailable, "connection refused")
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)

		b := o.start("b")
		time.Sleep(time.Minute)

		for _, l := range []*link{a.link, b.link} {
			l.set(func(l *link) { l.err = away })
		}

		time.Sleep(time.Hour)
		a.want(1, false)
		b.want(0, false)

		for _, l := range []*link{b.link, a.link} {
			l.set(func(l *link) { l.err = nil })
		}

		within(t, defaults.Renew+time.Second, "the lease", a.holds)
		time.Sleep(time.Hour)
		a.want(2, true)
		b.want(0, false)

		if _, _, deposed, _ := a.look(); deposed != 0 {
			t.Error("the holder was deposed by nobody")
		}

		if r := o.record(); r.Lease().GetTerm() != 2 {
			t.Errorf("the record is %v", r.Lease())
		}
	})
}

// Work that fails for good ends the process, and frees the lease.
func TestWorkThatFailsFreesTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)

		broken := errors.New("broken")
		a.fails <- broken
		<-a.done

		if !errors.Is(a.err, broken) || !o.record().free() {
			t.Errorf("ended with %v, the record is %v", a.err, o.record().Lease())
		}
	})
}

// What may wait for the lease does, and no longer than it wants to.
func TestAwaitReturnsWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)

		b := o.start("b")
		waited := make(chan error, 1)

		go func() { waited <- b.Await(t.Context()) }()

		time.Sleep(time.Hour)

		select {
		case err := <-waited:
			t.Fatalf("it did not wait: %v", err)
		default:
		}

		a.end()

		if err := <-waited; err != nil || b.Check() != nil {
			t.Errorf("waited: %v, may work: %v", err, b.Check())
		}
	})
}
