// Package sled is a server of a rack as its setup sees it: it reports storage
// pools, keeps a ledger of who it is and what it was told to run, and runs that
// again after a restart.
package sled

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

// ErrOther is a sled that is already another one: its ID is never changed.
var ErrOther = errors.New("the sled belongs to another rack plan")

// Runner starts what a sled is told to run.
type Runner interface {
	StartDNS(ctx context.Context, s plan.DNSServer) error
	StartService(ctx context.Context, s plan.Service) error
}

// Clock tells how long a sled has been up.
type Clock interface {
	Now() time.Time
}

// ledger is what a sled keeps.
type ledger struct {
	ID       string           `json:"id,omitempty"`
	Subnet   netip.Prefix     `json:"subnet,omitzero"`
	Told     []string         `json:"told,omitempty"` // disks that were told to report
	DNS      []plan.DNSServer `json:"dns,omitempty"`
	Datasets []plan.Dataset   `json:"datasets,omitempty"`
	Services []plan.Service   `json:"services,omitempty"`
}

// Sled is a running sled. It is safe for concurrent use.
type Sled struct {
	described plan.Sled
	store     store.Store
	clock     Clock
	runner    Runner
	up        time.Time

	mu      sync.Mutex
	ledger  ledger
	running map[string]bool
}

// Boot powers a sled on: it reads its ledger, and its disks begin to come up.
// What it runs is started by Resume.
func Boot(described plan.Sled, s store.Store, c Clock, r Runner) (*Sled, error) {
	out := &Sled{described: described, store: s, clock: c, runner: r, up: c.Now(), running: map[string]bool{}}

	raw, found, err := s.Load(out.name())
	if err != nil {
		return nil, err
	}

	if found {
		if err := json.Unmarshal(raw, &out.ledger); err != nil {
			return nil, store.Unusable(s, out.name(), fmt.Errorf("the ledger of sled %s: %w", described.Serial, err))
		}
	}

	return out, nil
}

// Serial is the sled's serial number.
func (s *Sled) Serial() string { return s.described.Serial }

func (s *Sled) name() string { return "sled." + strings.ToLower(s.described.Serial) }

// Pools are the serials of the disks whose pools it reports by now, in the
// order in which they are described.
func (s *Sled) Pools() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	var out []string

	for _, d := range s.described.Disks {
		if s.reports(d) {
			out = append(out, d.Serial)
		}
	}

	return out
}

// reports says whether a disk has come up. Held: s.mu.
func (s *Sled) reports(d plan.Disk) bool {
	if slices.Contains(s.ledger.Told, d.Serial) {
		return true
	}

	after, ever := d.ReportsAfter()

	return ever && s.clock.Now().Sub(s.up) >= after
}

// Report makes a disk come up now, and at once after each restart.
func (s *Sled) Report(disk string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !slices.ContainsFunc(s.described.Disks, func(d plan.Disk) bool { return d.Serial == disk }) {
		return fmt.Errorf("sled %s has no disk %q", s.described.Serial, disk)
	}

	return s.keep(func(l *ledger) bool { return add(&l.Told, disk) })
}

// Initialize tells the sled who it is. It is told once.
func (s *Sled) Initialize(p plan.PlannedSled) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ledger.ID != "" && (s.ledger.ID != p.ID || s.ledger.Subnet != p.Subnet) {
		return fmt.Errorf("sled %s is %s in %s: %w", s.described.Serial, s.ledger.ID, s.ledger.Subnet, ErrOther)
	}

	return s.keep(func(l *ledger) bool {
		changed := l.ID == ""
		l.ID, l.Subnet = p.ID, p.Subnet

		return changed
	})
}

// EnsureDNS makes a DNS server run.
func (s *Sled) EnsureDNS(ctx context.Context, d plan.DNSServer) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := s.mine(d.SledID); err != nil {
		return err
	}

	if err := s.keep(func(l *ledger) bool { return add(&l.DNS, d) }); err != nil {
		return err
	}

	return s.start(d.ID, func() error { return s.runner.StartDNS(ctx, d) })
}

// EnsureDatasets makes datasets in pools that have come up.
func (s *Sled) EnsureDatasets(datasets []plan.Dataset) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, d := range datasets {
		if err := s.mine(d.SledID); err != nil {
			return err
		}

		i := slices.IndexFunc(s.described.Disks, func(x plan.Disk) bool { return x.Serial == d.Disk })
		if i < 0 || !s.reports(s.described.Disks[i]) {
			return fmt.Errorf("sled %s does not report the storage pool of disk %s, which dataset %s is planned in", s.described.Serial, d.Disk, d.ID)
		}
	}

	return s.keep(func(l *ledger) bool {
		changed := false
		for _, d := range datasets {
			changed = add(&l.Datasets, d) || changed
		}

		return changed
	})
}

// EnsureService makes a service run.
func (s *Sled) EnsureService(ctx context.Context, x plan.Service) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := s.mine(x.SledID); err != nil {
		return err
	}

	if err := s.keep(func(l *ledger) bool { return add(&l.Services, x) }); err != nil {
		return err
	}

	return s.start(x.ID, func() error { return s.runner.StartService(ctx, x) })
}

// ResumeDNS starts the DNS servers of the ledger.
func (s *Sled) ResumeDNS(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, d := range s.ledger.DNS {
		if err := s.start(d.ID, func() error { return s.runner.StartDNS(ctx, d) }); err != nil {
			return err
		}
	}

	return nil
}

// ResumeServices starts all else of the ledger. DNS servers run before.
func (s *Sled) ResumeServices(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, x := range s.ledger.Services {
		if err := s.start(x.ID, func() error { return s.runner.StartService(ctx, x) }); err != nil {
			return err
		}
	}

	return nil
}

// mine refuses what is planned for another sled. Held: s.mu.
func (s *Sled) mine(id string) error {
	if s.ledger.ID == "" || s.ledger.ID != id {
		return fmt.Errorf("sled %s is %q and was given something of %s: %w", s.described.Serial, s.ledger.ID, id, ErrOther)
	}

	return nil
}

// start starts what does not run. Held: s.mu.
func (s *Sled) start(id string, f func() error) error {
	if s.running[id] {
		return nil
	}

	if err := f(); err != nil {
		return fmt.Errorf("sled %s: %w", s.described.Serial, err)
	}

	s.running[id] = true

	return nil
}

// keep changes the ledger: what is kept comes first, then what is known. Held:
// s.mu.
func (s *Sled) keep(change func(*ledger) bool) error {
	next := s.ledger
	next.Told, next.DNS = slices.Clone(next.Told), slices.Clone(next.DNS)
	next.Datasets, next.Services = slices.Clone(next.Datasets), slices.Clone(next.Services)

	if !change(&next) {
		return nil
	}

	raw, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encoding the ledger of sled %s: %w", s.described.Serial, err)
	}

	if err := s.store.Save(s.name(), raw); err != nil {
		return err
	}

	s.ledger = next

	return nil
}

// add appends what is not there yet.
func add[T comparable](list *[]T, x T) bool {
	if slices.Contains(*list, x) {
		return false
	}

	*list = append(*list, x)

	return true
}
