package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

const loadProvider = "oxide"

// loadSite is a simulated site in this process, and a daemon at it.
type loadSite struct {
	o      loadOptions
	site   *site.Site
	fleet  *fleet
	env    []string
	daemon *loadDaemon

	rackCalls, omniCalls counts
	// create and call are how long the rack takes, as long as it is not quick.
	quick atomic.Bool
	// firstStop is when a stop of an instance was first called, by its ID, and begun
	// and ended are when the writing of a disk began and ended.
	timesMu                 sync.Mutex
	firstStop, begun, ended map[string]time.Time
}

// counts are calls by kind.
type counts struct {
	mu sync.Mutex
	n  map[string]int
	// first is when the first one came since the last reset.
	first time.Time
}

func (c *counts) add(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.n == nil {
		c.n = map[string]int{}
	}

	if len(c.n) == 0 {
		c.first = time.Now()
	}

	c.n[kind]++
}

// take answers what was counted, and begins anew.
func (c *counts) take() (map[string]int, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	n, first := c.n, c.first
	c.n, c.first = map[string]int{}, time.Time{}

	return n, first
}

func (c *counts) now() (map[string]int, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return maps.Clone(c.n), c.first
}

func sumOfCalls(n map[string]int) int {
	sum := 0
	for _, v := range n {
		sum += v
	}

	return sum
}

// dark is a booter of machines that do nothing.
type dark struct{}

func (dark) Boot(ctx context.Context, _ guest.Hardware, _ *zap.Logger) guest.Exit {
	<-ctx.Done()

	return guest.ExitStopped
}

// projectName is that of a project by its number.
func projectName(n int) string { return fmt.Sprintf("%s-%d", site.Project, n) }

// openLoadSite brings up a site with the image in it, and no machine.
func openLoadSite(ctx context.Context, o loadOptions, env []string, change ...func(*site.Config)) (s *loadSite, err error) {
	s = &loadSite{o: o, firstStop: map[string]time.Time{}, begun: map[string]time.Time{}, ended: map[string]time.Time{}}

	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()

	cfg := site.Config{TimeScale: 1}
	cfg.Rack = simrack.Config{
		Content:    simrack.ContentKept,
		BeforeCall: s.beforeRack,
		// What a call takes is waited for in beforeRack.
		Latencies: &simrack.Latencies{
			Start: o.start, Stop: o.stop, Reboot: o.start, Fail: time.Second, Migrate: 20 * time.Second, RestartCooldown: 5 * time.Minute,
		},
	}

	for i := range o.projects {
		cfg.Rack.Projects = append(cfg.Rack.Projects, projectName(i))
	}

	cfg.Rack.Sleds = simrack.DefaultSleds(max(4, o.machines/50))
	cfg.Omni.BeforeCall = s.beforeOmni

	if !o.join {
		cfg.Rack.Booter = dark{}
	}

	for _, c := range change {
		c(&cfg)
	}

	if s.site, err = site.Start(ctx, cfg); err != nil {
		return s, err
	}

	key, err := s.site.ProviderKey(ctx, loadProvider)
	if err != nil {
		return s, err
	}

	s.env = []string{
		"OMNI_ENDPOINT=" + s.site.Omni.Endpoint(), "OMNI_SERVICE_ACCOUNT_KEY=" + key, "PROVIDER_ID=" + loadProvider,
		"OXIDE_HOST=" + s.site.RackURL, "OXIDE_TOKEN=" + s.site.RackToken,
		fmt.Sprintf("MAX_CREATES=%d", o.creates), fmt.Sprintf("PROVISIONER_CONCURRENCY=%d", o.workers),
	}

	s.env = append(s.env, env...)

	if s.fleet, err = watchFleet(ctx, s.site.Omni.AdminState()); err != nil {
		return s, err
	}

	err = s.warmUp(ctx)

	return s, err
}

func (s *loadSite) close() error {
	var errs []error

	if s.daemon != nil {
		errs = append(errs, s.daemon.end(syscall.SIGTERM))
	}

	if s.fleet != nil {
		s.fleet.close()
	}

	if s.site != nil {
		errs = append(errs, s.site.Close())
	}

	return errors.Join(errs...)
}

// beforeRack counts a call to the rack, and takes its time.
func (s *loadSite) beforeRack(seq int, operation string) {
	s.rackCalls.add(operation)

	switch operation {
	case "instance_stop":
		s.noteFirst(s.firstStop, seq)
	case "disk_bulk_write_import_start":
		s.noteFirst(s.begun, seq)
	case "disk_bulk_write_import_stop":
		s.noteFirst(s.ended, seq)
	}

	took := s.o.call
	if operation == "instance_create" && !s.quick.Load() {
		took = s.o.create
	}

	time.Sleep(took)
}

// noteFirst notes when a call about an object first came, by the object's ID.
func (s *loadSite) noteFirst(times map[string]time.Time, seq int) {
	call, ok := s.site.Rack.Call(seq)
	if !ok {
		return
	}

	// /v1/instances/ID/stop
	id := path.Base(path.Dir(call.Path))

	s.timesMu.Lock()
	defer s.timesMu.Unlock()

	if _, known := times[id]; !known {
		times[id] = time.Now()
	}
}

// beforeOmni counts a call to Omni: the daemon alone calls it over the wire.
func (s *loadSite) beforeOmni(_ int, name string) {
	verb, rest, _ := strings.Cut(name, " ")
	kind, _, _ := strings.Cut(rest, " ")
	kind, _, _ = strings.Cut(kind, ".")

	s.omniCalls.add(strings.TrimSpace(verb + " " + kind))

	if verb != "Watch" {
		time.Sleep(s.o.omni)
	}
}

// startDaemon starts a daemon and waits until it is ready.
func (s *loadSite) startDaemon(ctx context.Context) error {
	var err error

	if s.daemon, err = startDaemon(ctx, s.o.daemon, s.env); err != nil {
		return err
	}

	return s.until(ctx, time.Minute, "the daemon to be ready", func() bool { return s.daemon.ready(ctx) })
}

// until looks until something holds.
func (s *loadSite) until(ctx context.Context, atMost time.Duration, what string, holds func() bool) error {
	deadline := time.Now().Add(atMost)

	for !holds() {
		if err := s.daemon.alive(); err != nil {
			return err
		}

		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s for %s: %s", atMost, what, s.fleet.describe())
		}

		if err := rest(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}

	return nil
}

// rest waits, unless ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// warmUp has one machine made in each project, since the daemon need not keep images
// in the silo. They are no part of what is measured.
func (s *loadSite) warmUp(ctx context.Context) error {
	if err := s.startDaemon(ctx); err != nil {
		return err
	}

	s.quick.Store(true)
	defer s.quick.Store(false)

	for i := range s.o.projects {
		id := fmt.Sprintf("warm-up-%d", i)

		if err := s.fleet.ask(ctx, id, classIn(i)); err != nil {
			return err
		}

		if err := s.until(ctx, 2*time.Minute, "the first machine", func() bool { return s.fleet.provisioned() == 1 }); err != nil {
			return err
		}

		s.fleet.forget(id)
	}

	return nil
}

// classIn is the class of the machines of a project.
func classIn(project int) string {
	return fmt.Sprintf("project: %s\ncpus: 1\nmemory: 1\n", projectName(project))
}

// machineID is the request of a machine by its number.
func (s *loadSite) machineID(n int) (id, class string) {
	return fmt.Sprintf("load-%05d", n), classIn(n % s.o.projects)
}

// populate has the machines made as fast as can be, unless they are there.
func (s *loadSite) populate(ctx context.Context) error {
	if s.fleet.provisioned() >= s.o.machines {
		return nil
	}

	s.quick.Store(true)
	defer s.quick.Store(false)

	began := time.Now()

	for n := range s.o.machines {
		id, class := s.machineID(n)
		if err := s.fleet.ask(ctx, id, class); err != nil {
			return err
		}
	}

	err := s.until(ctx, time.Duration(s.o.machines)*2*time.Second+2*time.Minute, "all machines to run", func() bool {
		return s.fleet.provisioned() == s.o.machines
	})

	fmt.Fprintf(os.Stderr, "made %d machines in %s\n", s.o.machines, time.Since(began).Round(time.Second))

	return err
}

// conditions are what the figures depend on.
func (s *loadSite) conditions() map[string]any {
	load, _ := os.ReadFile("/proc/loadavg")

	return map[string]any{
		"machines": s.o.machines, "projects": s.o.projects, "create": s.o.create.String(), "start": s.o.start.String(), "stop": s.o.stop.String(),
		"call": s.o.call.String(), "omni": s.o.omni.String(), "max_creates": s.o.creates, "workers": s.o.workers,
		"cores": runtime.NumCPU(), "load_average": strings.TrimSpace(string(load)),
	}
}
