package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

func TestAnOverviewForPeople(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o := &provider.Overview{
		Provider: "oxide", OmniVersion: "v1.9.3",
		Lease:  &provider.LeaseView{Holder: "host-a", Term: 7, Renewed: now.Add(-3 * time.Second)},
		Health: &provider.HealthView{Heartbeat: now.Add(-10 * time.Second), Error: "machines: stopped: b"},
		Requests: []provider.RequestView{
			{ID: "a", Stage: "provisioning", Step: "image", Waits: "uploading the Talos 1.13.5 image: 45 %", Created: now.Add(-5 * time.Minute), Project: "talos"},
			{ID: "b", Stage: "provisioned", Step: "start", Created: now.Add(-50 * time.Hour), Project: "talos"},
		},
		Uploads: []provider.UploadView{
			{Talos: "1.13.5", Schematic: strings.Repeat("3", 64), Project: "talos", Requests: 1, Percent: 45, Says: "uploading the Talos 1.13.5 image: 45 %"},
			{Talos: "1.13.4", Schematic: strings.Repeat("4", 64), Project: "talos", Requests: 2, Percent: -1, Says: "waiting"},
		},
	}

	var b strings.Builder
	if err := tellOverview(&b, o, now); err != nil {
		t.Fatal(err)
	}

	want := `Provider oxide, Omni v1.9.3
Works:    host-a holds the lease, term 7, renewed 3s ago
Health:   machines: stopped: b
Requests: 1 provisioning, 1 provisioned

UPLOAD                 PROJECT  REQUESTS  PROGRESS                   SAYS
Talos 1.13.5 33333333  talos    1         #########........... 45 %  uploading the Talos 1.13.5 image: 45 %
Talos 1.13.4 44444444  talos    2         ....................       waiting

REQUEST  STAGE         STEP   AGE   PROJECT  WAITS
a        provisioning  image  5m    talos    uploading the Talos 1.13.5 image: 45 %
b        provisioned   start  2d2h  talos    
`
	if b.String() != want {
		t.Errorf("shown\n%s\nwant\n%s", b.String(), want)
	}

	o.Health.Heartbeat = now.Add(-time.Hour)
	o.Health.Error, o.Lease.Holder = "", ""
	b.Reset()

	if err := tellOverview(&b, o, now); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"nobody, the lease is free since", "no heartbeat for 60m", "(then: well)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// Invariant: it is shown anew at each interval until it is ended, on a terminal in
// the place of the last page, elsewhere below it; a look that fails is told, and
// does not end it.
func TestAnOverviewIsShownAgainAndAgain(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		terminal bool
		want     string
	}{
		{false, "page 1\nmore\nOmni is away\npage 3\nmore\n"},
		{true, "\x1b[Hpage 1\x1b[K\nmore\x1b[K\n\x1b[J\x1b[HOmni is away\x1b[K\n\x1b[J\x1b[Hpage 3\x1b[K\nmore\x1b[K\n\x1b[J"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()

			var out strings.Builder

			page := 0
			err := repeat(ctx, &out, c.terminal, 2*time.Second, func(_ context.Context, w io.Writer) error {
				page++
				_, _ = fmt.Fprintf(w, "page %d\nmore\n", page)

				if page == 2 {
					return errors.New("Omni is away")
				}

				return nil
			})

			if err != nil || out.String() != c.want {
				t.Errorf("terminal %t: %v\n%q, want\n%q", c.terminal, err, out.String(), c.want)
			}
		})
	}
}

// What can not be written any more ends it, as when the pipe behind it is closed.
func TestAnOverviewEndsWithItsReader(t *testing.T) {
	t.Parallel()

	r, w := io.Pipe()
	_ = r.Close()

	err := repeat(t.Context(), w, false, time.Hour, func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, "page")

		return err
	})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
