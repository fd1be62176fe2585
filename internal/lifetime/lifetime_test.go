package lifetime_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/goleak"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lifetime"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Invariant: an image goes a fortnight after its last use, not earlier, and goes
// for nothing that was looked at once.
func TestAnUnusedImageGoesAfterItsTime(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		id := w.add(project, "1.13.5")
		w.disks["d"] = oxide.Disk{Id: "d", Name: "boot", ProjectId: project, ImageId: id}

		l := w.start()
		w.pass(t, l, 30*24*time.Hour)
		delete(w.disks, "d")
		w.pass(t, l, fortnight-2*time.Hour)

		if len(w.deleted) != 0 {
			t.Fatal("removed too early")
		}

		w.pass(t, l, 4*time.Hour)

		if len(w.deleted) != 1 || len(w.uses) != 0 || len(w.withdrawn) != 0 {
			t.Errorf("deleted %v; recorded %v; withdrawn %v", w.deleted, w.uses, w.withdrawn)
		}
	})
}

// Invariant: whatever refers to an image keeps it, however long ago it was last
// recorded as used, and although the newest are not kept.
func TestWhatUsesAnImageKeepsIt(t *testing.T) {
	t.Parallel()

	id, other := identity("1.13.5"), identity("1.13.4")
	scratch := naming.Mark{Owner: owner, Provider: "another", Kind: naming.KindScratch, Key: id.Key(), Run: "0123abcd"}

	for name, c := range map[string]struct {
		use  func(w *world, imageID string)
		kept bool
	}{
		"nothing":                           {func(*world, string) {}, false},
		"a disk":                            {func(w *world, i string) { w.disks["d"] = oxide.Disk{ProjectId: "p-2", ImageId: i} }, true},
		"a disk of another image":           {func(w *world, _ string) { w.disks["d"] = oxide.Disk{ProjectId: "p-2", ImageId: "i-9"} }, false},
		"a stored image ID":                 {func(w *world, i string) { w.wants = []lifetime.Want{{ImageID: i, Identity: &other}} }, true},
		"a plan":                            {func(w *world, _ string) { w.wants = []lifetime.Want{{Identity: &id}} }, true},
		"a plan for another image":          {func(w *world, _ string) { w.wants = []lifetime.Want{{Identity: &other}} }, false},
		"a request of its version":          {func(w *world, _ string) { w.wants = []lifetime.Want{{Talos: "1.13.5"}} }, true},
		"a request of another version":      {func(w *world, _ string) { w.wants = []lifetime.Want{{Talos: "1.13.4"}} }, false},
		"a request that nobody can read":    {func(w *world, _ string) { w.wants = []lifetime.Want{{}} }, true},
		"another provider's scratch for it": {func(w *world, _ string) { w.disks["d"] = oxide.Disk{ProjectId: project, Description: scratch.String()} }, true},
		"an upload of another process": {func(w *world, _ string) {
			w.runs = []image.RunInfo{{ID: "r", Uploads: []image.JobInfo{{Identity: id}}}}
		}, true},
		"an upload of another image": {func(w *world, _ string) {
			w.runs = []image.RunInfo{{ID: "r", Uploads: []image.JobInfo{{Identity: other}}}}
		}, false},
		"the image manager": {func(w *world, _ string) { w.refused = true }, true},
	} {
		for _, in := range []string{"", project} {
			t.Run(name+" in "+in, func(t *testing.T) {
				t.Parallel()

				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					i := w.add(in, "1.13.5")
					w.uses[i] = lifetime.Use{ImageID: i, ProjectID: in, At: time.Now().Add(-10 * fortnight)}
					c.use(w, i)

					w.pass(t, w.start(), 5*time.Hour)

					if kept := len(w.deleted) == 0; kept != c.kept {
						t.Errorf("kept %t, must be %t", kept, c.kept)
					}

					if recorded := time.Since(w.uses[i].At) < 3*time.Hour; c.kept && name != "the image manager" && !recorded {
						t.Errorf("recorded as used at %s", w.uses[i].At)
					}
				})
			})
		}
	}
}

// Invariant: nothing foreign is touched, the silo's images only if told, and the
// newest of each place stay.
func TestWhatIsKeptAlthoughNothingUsesIt(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		keep lifetime.Keep
		left string
	}{
		"nothing":      {lifetime.Keep{For: fortnight, Silo: true}, "foreign other"},
		"the silo":     {lifetime.Keep{For: fortnight}, "silo-1 silo-2 silo-3 foreign other"},
		"two of each":  {lifetime.Keep{For: fortnight, Newest: 2, Silo: true}, "silo-2 silo-3 project-2 project-3 foreign other"},
		"for ever":     {lifetime.Keep{For: lifetime.Forever, Silo: true}, "silo-1 silo-2 silo-3 project-1 project-2 project-3 foreign other"},
		"none of them": {lifetime.Keep{For: 0, Silo: true}, "foreign other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				made := [][2]string{}

				for _, p := range [][2]string{{"", "silo"}, {project, "project"}} {
					for _, n := range []string{"1", "2", "3"} {
						made = append(made, [2]string{w.add(p[0], "1.13."+n), p[1] + "-" + n})

						time.Sleep(time.Minute)
					}
				}

				made = append(made,
					[2]string{w.add(project, "1.13.9", func(m *naming.Mark) { m.Owner = naming.NewOwner() }), "foreign"},
					[2]string{w.add("", "1.13.9", func(m *naming.Mark) { m.Provider = "another" }), "other"})

				w.pass(t, w.start(func(cfg *lifetime.Config) { cfg.Keep = c.keep }), 2*fortnight)

				var left []string

				for _, m := range made {
					if _, ok := w.images[m[0]]; ok {
						left = append(left, m[1])
					}
				}

				if got := strings.Join(left, " "); got != c.left {
					t.Errorf("left %s, must be %s", got, c.left)
				}

				if len(w.uses) > 6 {
					t.Error("the use of foreign images is recorded")
				}
			})
		})
	}
}

// Invariant: a look that is not complete removes nothing, forgets nothing, and
// the next one goes on.
func TestNothingIsConcludedFromAHalfLook(t *testing.T) {
	t.Parallel()

	for _, call := range []string{
		"projects", "images ", "images p-2", "disks p-1", "disks p-2", "wants", "runs", "uses", "record",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()

			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				unused, used := w.add(project, "1.13.5"), w.add(project, "1.13.4")
				w.uses[unused] = lifetime.Use{ImageID: unused, ProjectID: project, At: time.Now().Add(-2 * fortnight)}
				w.uses["i-9"] = lifetime.Use{ImageID: "i-9", ProjectID: "p-2"}
				w.disks["d"] = oxide.Disk{ProjectId: project, ImageId: used}
				l := w.start()
				w.fails[call] = away()

				for range 3 {
					time.Sleep(time.Hour)

					if err := l.Round(t.Context()); err == nil {
						t.Error("no error")
					}
				}

				if len(w.deleted) != 0 || len(w.uses) < 2 {
					t.Errorf("deleted %v, recorded %v", w.deleted, w.uses)
				}

				delete(w.fails, call)
				w.pass(t, l, 3*time.Hour)

				if len(w.deleted) != 1 || len(w.uses) != 1 {
					t.Errorf("deleted %v, recorded %v", w.deleted, w.uses)
				}
			})
		})
	}
}

// Invariant: an image that comes into use between the look and its removal stays.
func TestTheLastLookDecides(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		id := identity("1.13.5")
		i := w.add(project, "1.13.5")
		w.uses[i] = lifetime.Use{ImageID: i, ProjectID: project, At: time.Now().Add(-2 * fortnight)}

		l := w.start()
		w.pass(t, l, time.Hour)

		looks := 0
		w.ended["wants"] = func() {
			if looks++; looks == 2 {
				w.wants = []lifetime.Want{{Identity: &id}}

				if len(w.withdrawn) != 1 {
					t.Error("the image is still handed out during the last look")
				}
			}
		}

		w.pass(t, l, time.Hour)

		if len(w.deleted) != 0 || looks != 2 {
			t.Errorf("deleted %v after %d looks", w.deleted, looks)
		}
	})
}

// Invariant: a rack that refuses is told of once, and tried again at each look.
func TestARefusedRemovalIsToldOnce(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		i := w.add("", "1.13.5")
		w.uses[i] = lifetime.Use{ImageID: i, At: time.Now().Add(-2 * fortnight)}
		w.fails["delete"] = forbidden()

		l := w.start()
		w.pass(t, l, 24*time.Hour)

		if told := w.logs.FilterMessage("an unused image is still there").Len(); told != 1 {
			t.Errorf("told %d times", told)
		}

		delete(w.fails, "delete")
		w.pass(t, l, time.Hour)

		if len(w.deleted) != 1 {
			t.Error("not removed")
		}
	})
}

// Invariant: a dry run says what it would do, once, and does nothing but write
// down what is in use.
func TestADryRunRemovesNothing(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.add(project, "1.13.5")
		w.pass(t, w.start(func(cfg *lifetime.Config) { cfg.DryRun = true }), 2*fortnight)

		if told := w.logs.FilterMessageSnippet("would be removed").Len(); len(w.deleted) != 0 || told != 1 || len(w.uses) != 1 {
			t.Errorf("deleted %v, told %d times, recorded %v", w.deleted, told, w.uses)
		}
	})
}

// Invariant: a clock that was wrong neither keeps an image for ever nor removes
// one at once.
func TestATimeToComeIsTakenForNow(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		i := w.add(project, "1.13.5")
		w.uses[i] = lifetime.Use{ImageID: i, ProjectID: project, At: time.Now().Add(100 * fortnight)}

		l := w.start()
		w.pass(t, l, fortnight-time.Hour)

		if len(w.deleted) != 0 {
			t.Error("removed at once")
		}

		w.pass(t, l, 4*time.Hour)

		if len(w.deleted) != 1 {
			t.Error("kept for ever")
		}
	})
}

// Invariant: the record of an image that the token may not see any more stays.
func TestARecordGoesOnlyWithItsImage(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.uses["i-1"] = lifetime.Use{ImageID: "i-1", ProjectID: "p-9", At: time.Now()}
		w.partial = true

		l := w.start()
		w.pass(t, l, 2*time.Hour)

		if len(w.uses) != 1 {
			t.Error("a record is forgotten because a project can not be read")
		}

		w.partial = false
		w.pass(t, l, time.Hour)

		if len(w.uses) != 0 {
			t.Error("the record of an image that is gone stays")
		}
	})
}

// The loop ends with its context, and looks again a minute after a failure.
func TestTheLoop(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		i := w.add(project, "1.13.5")
		w.uses[i] = lifetime.Use{ImageID: i, ProjectID: project, At: time.Now().Add(-2 * fortnight)}
		w.fails["uses"] = away()
		l := w.start()

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		l.Run(ctx)
		cancel()

		if told := w.logs.FilterMessageSnippet("can not be looked for").Len(); told != 1 {
			t.Errorf("told %d times", told)
		}

		delete(w.fails, "uses")

		ctx, cancel = context.WithTimeout(t.Context(), 3*time.Hour)
		l.Run(ctx)
		cancel()

		if len(w.deleted) != 1 {
			t.Error("not removed")
		}
	})
}

// Invariant: by hand as in the loop, with another look before each removal, and
// only what the report does not keep.
func TestByHand(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.add(project, "1.13.5")

		used := w.add("", "1.13.4")
		w.disks["d"] = oxide.Disk{Name: "boot", ProjectId: project, ImageId: used}
		w.runs = []image.RunInfo{{ID: "r", Uploads: []image.JobInfo{{
			Identity: identity("1.13.3"), Phase: image.PhaseUploading, Done: 50, Total: 200, Rate: 10, Waits: "uploading",
		}}}}

		l := w.start(func(cfg *lifetime.Config) { cfg.Images, cfg.Keep.For = nil, 0 })

		r, err := l.Find(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if len(r.Images) != 2 || r.Images[0].UsedBy[0] != "disk boot" || r.Images[0].Kept != "in use" || r.Images[1].Kept != "" || r.Images[1].Project != "talos" {
			t.Errorf("images %+v", r.Images)
		}

		if u := r.Uploads; len(u) != 1 || u[0].Percent() != 25 || u[0].Left != 15 || u[0].Phase != "uploading" {
			t.Errorf("uploads %+v", u)
		}

		if len(w.uses) != 0 {
			t.Error("a look by hand writes something")
		}

		removed, err := l.Remove(t.Context(), r)
		if err != nil || removed != 1 || len(w.images) != 1 {
			t.Errorf("%d removed, %v; left %v", removed, err, w.images)
		}
	})
}
