package lease

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// Answers are lost: the next look tells what came of the write.
func TestALostAnswerIsLookedUp(t *testing.T) {
	lost := func() error { return status.Error(codes.Unavailable, "the answer was lost") }

	t.Run("of making it", func(t *testing.T) {
		bubble(t, func(t *testing.T, o *omni) {
			a := o.start("a", func(c *Config) {
				if l, ok := c.Store.(*link); ok {
					l.after = lost
				}
			})
			time.Sleep(time.Minute)
			a.want(0, false)
			a.set(func(l *link) { l.after = nil })
			within(t, defaults.Renew+time.Second, "its own lease", a.holds)
		})
	})

	t.Run("of taking it", func(t *testing.T) {
		bubble(t, func(t *testing.T, o *omni) {
			a := o.start("a")
			within(t, time.Second, "the lease", a.holds)

			b := o.start("b")
			b.set(func(l *link) { l.after = lost })
			a.end()
			time.Sleep(time.Minute)
			b.want(0, false)
			b.set(func(l *link) { l.after = nil })
			within(t, defaults.Renew+time.Second, "its own lease", b.holds)
		})
	})

	t.Run("of renewing it once", func(t *testing.T) {
		bubble(t, func(t *testing.T, o *omni) {
			a := o.start("a")
			within(t, time.Second, "the lease", a.holds)
			a.set(func(l *link) { l.after = lost })
			time.Sleep(defaults.Renew + time.Second)
			a.set(func(l *link) { l.after = nil })
			time.Sleep(time.Minute)
			a.want(1, true)
		})
	})

	t.Run("of freeing it", func(t *testing.T) {
		bubble(t, func(t *testing.T, o *omni) {
			a := o.start("a")
			within(t, time.Second, "the lease", a.holds)
			a.set(func(l *link) { l.after = lost })
			a.end()

			if !o.record().free() {
				t.Errorf("the record is %v", o.record().Lease())
			}
		})
	})
}

// Somebody removes the record under a holder: it is made again, and nobody else
// works before the holder has noticed.
func TestARecordThatIsRemovedMakesNoSecondHolder(t *testing.T) {
	t.Run("and the holder is first to notice", func(t *testing.T) {
		bubble(t, func(t *testing.T, o *omni) {
			a := o.start("a")
			within(t, time.Second, "the lease", a.holds)
			o.remove()
			time.Sleep(time.Hour)
			a.want(1, true)
		})
	})

	t.Run("and a standby is", func(t *testing.T) {
		bubble(t, func(t *testing.T, o *omni) {
			a := o.start("a")
			within(t, time.Second, "the lease", a.holds)

			b := o.start("b")
			time.Sleep(time.Minute + time.Second)
			o.remove()

			within(t, defaults.Renew+defaults.look(), "the holder to notice", func() bool { return !a.holds() })
			b.want(0, false)
			within(t, defaults.Duration+2*time.Second, "somebody", func() bool { return a.holds() || b.holds() })
		})
	})

	t.Run("and a process that starts is", func(t *testing.T) {
		bubble(t, func(t *testing.T, o *omni) {
			o.used = true
			a := o.start("a")

			if took := within(t, time.Minute, "the lease", a.holds); took < defaults.Duration {
				t.Errorf("taken after %s", took)
			}
		})
	})
}

// A record that this version can not judge is left alone while it may be held.
func TestARecordOfAnotherFormatIsLeftAlone(t *testing.T) {
	for name, spec := range map[string]*specs.LeaseSpec{
		"newer": {Format: 2, Duration: durationpb.New(time.Second)},
		"empty": {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, o *omni) {
				a := o.start("a")
				within(t, time.Second, "the lease", a.holds)
				o.change(func(r *Resource) { r.spec.Value = proto.CloneOf(spec) })
				within(t, defaults.Renew, "the holder to notice", func() bool { return !a.holds() })
				time.Sleep(MaxDuration - time.Minute)
				o.change(func(*Resource) {})
				time.Sleep(MaxDuration - time.Minute)
				a.want(1, false)
				within(t, 2*time.Minute, "the lease that nobody renews", a.holds)
			})
		})
	}
}

// Another process may have been given other times.
func TestTheHoldersOwnDurationCounts(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a", func(c *Config) { c.Times = Times{Duration: 3 * time.Minute, Renew: time.Minute, Stop: 2 * time.Minute} })
		within(t, time.Second, "the lease", a.holds)

		b := o.start("b")
		time.Sleep(time.Hour)
		a.want(1, true)
		b.want(0, false)
		a.set(func(l *link) { l.cut = true })

		if took := within(t, 4*time.Minute, "the other one", b.holds); took < 2*time.Minute {
			t.Errorf("taken after %s", took)
		}
	})
}

// A record that is being torn down, as omnictl does it, is still the record.
func TestARecordThatIsTornDownServes(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)
		o.change(func(r *Resource) { r.md.SetPhase(resource.PhaseTearingDown) })
		time.Sleep(time.Hour)
		a.want(1, true)
	})
}

// A denied write is a fault and no lost race, and a refused key is asked about
// once a minute, not once a second.
func TestARefusalIsToldAndAskedAboutSlowly(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)
		a.set(func(l *link) { l.err = status.Error(codes.Unauthenticated, "invalid signature") })

		within(t, defaults.Renew+time.Second, "the refusal to be told", func() bool {
			_, _, _, told := a.look()

			return status.Code(told) == codes.Unauthenticated
		})

		within(t, defaults.Stop, "the end of the work", func() bool { return !a.holds() })
		a.want(1, false)

		before := a.count()

		time.Sleep(time.Hour)

		if n := a.count() - before; n > 80 {
			t.Errorf("%d calls in an hour", n)
		}

		if got := a.says(); len(got) != 2 {
			t.Errorf("it says %q", got)
		}
	})
}

func TestADeniedWriteIsNoLostRace(t *testing.T) {
	bubble(t, func(t *testing.T, o *omni) {
		a := o.start("a")
		within(t, time.Second, "the lease", a.holds)
		a.end()

		// An owner conflict is what the client makes of a denied permission.
		o.change(func(r *Resource) { _ = r.md.SetOwner("somebody") })

		b := o.start("b")
		time.Sleep(time.Minute)
		b.want(0, false)

		if _, _, _, told := b.look(); told == nil || !strings.HasPrefix(told.Error(), "writing the lease to Omni: ") {
			t.Errorf("told %v", told)
		}
	})
}

func TestTimesGoTogether(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		times Times
		want  string
	}{
		{defaults, ""},
		{Times{Duration: 20 * time.Second, Renew: 12 * time.Second, Stop: 12 * time.Second}, "renewing the lease every 12s"},
		{Times{Duration: 12 * time.Second, Renew: 5 * time.Second, Stop: 12 * time.Second}, "stopping without a renewal after 12s"},
		{Times{Duration: time.Hour, Renew: 5 * time.Second, Stop: 12 * time.Second}, "duration of 1h0m0s"},
	} {
		err := tc.times.Check()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc.times, err)
		}
	}
}

// Invariant: stored formats are promises. Processes of different versions agree
// on one holder, so the golden file may only ever be added to.
func TestTheRecordKeepsItsFormat(t *testing.T) {
	t.Parallel()

	full := &specs.LeaseSpec{Format: 1, Holder: "HOLDER", Host: "host-a", Term: 7, Sequence: 300, Duration: durationpb.New(20 * time.Second)}

	written, err := proto.MarshalOptions{Deterministic: true}.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}

	golden, err := os.ReadFile(filepath.Join("testdata", "lease.v1.hex"))
	if err != nil {
		t.Fatalf("%v; the first version of it is:\n%s", err, hex.EncodeToString(written))
	}

	stored, err := hex.DecodeString(strings.TrimSpace(string(golden)))
	if err != nil {
		t.Fatal(err)
	}

	var read specs.LeaseSpec
	if err := proto.Unmarshal(stored, &read); err != nil || !proto.Equal(&read, full) {
		t.Errorf("the stored record reads as %v: %v", &read, err)
	}

	if !bytes.Equal(written, stored) {
		t.Errorf("the record is written differently now:\n%x", written)
	}
}
