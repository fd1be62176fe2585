package sled

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

// hand is a clock that is set by hand, and a runner that notes what it starts.
type hand struct {
	now     time.Time
	started []string
	fail    error
}

func (h *hand) Now() time.Time { return h.now }

func (h *hand) StartDNS(_ context.Context, s plan.DNSServer) error {
	h.started = append(h.started, "dns "+s.ID)

	return h.fail
}

func (h *hand) StartService(_ context.Context, s plan.Service) error {
	h.started = append(h.started, string(s.Kind)+" "+s.ID)

	return h.fail
}

var (
	described = plan.Sled{Serial: "BRM1", Disks: []plan.Disk{
		{Serial: "now"}, {Serial: "late", Reports: "5s"}, {Serial: "never", Reports: plan.Never},
	}}
	me  = plan.PlannedSled{Serial: "BRM1", ID: "me", Subnet: netip.MustParsePrefix("fd00:0:0:1::/64")}
	srv = plan.DNSServer{ID: "d", SledID: "me"}
	svc = plan.Service{ID: "s", Kind: plan.Database, SledID: "me"}
)

func boot(t *testing.T, s store.Store, h *hand) *Sled {
	t.Helper()

	out, err := Boot(described, s, h, h)
	if err != nil {
		t.Fatal(err)
	}

	return out
}

func TestPoolsComeUpInTheirTime(t *testing.T) {
	kept, h := &store.Memory{}, &hand{now: time.Unix(1000, 0)}
	s := boot(t, kept, h)

	for _, step := range []struct {
		after time.Duration
		tell  string
		want  string
	}{{0, "", "[now]"}, {4999 * time.Millisecond, "", "[now]"}, {time.Millisecond, "", "[now late]"}, {time.Hour, "", "[now late]"}, {0, "never", "[now late never]"}} {
		h.now = h.now.Add(step.after)

		if step.tell != "" {
			if err := s.Report(step.tell); err != nil {
				t.Fatal(err)
			}
		}

		if got := fmt.Sprint(s.Pools()); got != step.want {
			t.Errorf("after %s: %s, want %s", step.after, got, step.want)
		}
	}

	if err := s.Report("other"); err == nil {
		t.Error("a disk that is not there reported")
	}

	// What was told stays; what comes by itself comes again.
	if got := fmt.Sprint(boot(t, kept, h).Pools()); got != "[now never]" {
		t.Errorf("after a restart: %s", got)
	}
}

// Invariant: a sled is told who it is once, and takes nothing of another's.
func TestASledIsOneSled(t *testing.T) {
	kept, h := &store.Memory{}, &hand{}
	s := boot(t, kept, h)

	if err := s.EnsureDNS(t.Context(), srv); !errors.Is(err, ErrOther) {
		t.Errorf("before it knows who it is: %v", err)
	}

	for range 2 {
		if err := s.Initialize(me); err != nil {
			t.Fatal(err)
		}
	}

	for _, other := range []plan.PlannedSled{
		{Serial: "BRM1", ID: "other", Subnet: me.Subnet}, {Serial: "BRM1", ID: "me", Subnet: netip.MustParsePrefix("fd00:0:0:2::/64")},
	} {
		for _, it := range []*Sled{s, boot(t, kept, h)} {
			if err := it.Initialize(other); !errors.Is(err, ErrOther) {
				t.Errorf("as %+v: %v", other, err)
			}
		}
	}

	for _, err := range []error{
		s.EnsureDNS(t.Context(), plan.DNSServer{ID: "x", SledID: "other"}),
		s.EnsureService(t.Context(), plan.Service{ID: "x", SledID: "other"}),
		s.EnsureDatasets([]plan.Dataset{{ID: "x", SledID: "other", Disk: "now"}}),
	} {
		if !errors.Is(err, ErrOther) {
			t.Errorf("something of another's: %v", err)
		}
	}

	if len(h.started) != 0 {
		t.Errorf("started: %q", h.started)
	}
}

// Whatever is ensured twice is done once; a start that failed is tried again;
// after a restart all runs again, DNS by itself.
func TestWhatASledRunsItRunsAgain(t *testing.T) {
	kept, h := &store.Memory{}, &hand{}
	s := boot(t, kept, h)

	if err := s.Initialize(me); err != nil {
		t.Fatal(err)
	}

	h.fail = errors.New("no room")

	if err := s.EnsureService(t.Context(), svc); !errors.Is(err, h.fail) {
		t.Errorf("%v", err)
	}

	h.fail = nil

	for range 2 {
		if err := errors.Join(s.EnsureDNS(t.Context(), srv), s.EnsureService(t.Context(), svc)); err != nil {
			t.Fatal(err)
		}
	}

	if got := strings.Join(h.started, ","); got != "database s,dns d,database s" {
		t.Errorf("started: %s", got)
	}

	again := &hand{}
	r := boot(t, kept, again)

	for range 2 {
		if err := errors.Join(r.ResumeDNS(t.Context()), r.ResumeServices(t.Context())); err != nil {
			t.Fatal(err)
		}
	}

	if got := strings.Join(again.started, ","); got != "dns d,database s" {
		t.Errorf("started after a restart: %s", got)
	}
}

func TestADatasetNeedsItsPool(t *testing.T) {
	kept, h := &store.Memory{}, &hand{}
	s := boot(t, kept, h)

	if err := s.Initialize(me); err != nil {
		t.Fatal(err)
	}

	datasets := []plan.Dataset{{ID: "a", SledID: "me", Disk: "now"}, {ID: "b", SledID: "me", Disk: "late"}}

	if err := s.EnsureDatasets(datasets); err == nil || !strings.Contains(err.Error(), "does not report the storage pool of disk late") {
		t.Errorf("%v", err)
	}

	h.now = h.now.Add(time.Hour)

	for range 2 {
		if err := s.EnsureDatasets(datasets); err != nil {
			t.Fatal(err)
		}
	}

	if n := len(boot(t, kept, h).ledger.Datasets); n != 2 {
		t.Errorf("%d datasets are kept", n)
	}
}
