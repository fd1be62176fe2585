package main

import (
	"strings"
	"testing"
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
