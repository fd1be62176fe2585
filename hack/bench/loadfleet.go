package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
)

// fleet is all machine requests of a site, and what was seen of each.
type fleet struct {
	st     state.State
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*loadMachine
	err      error
}

// loadMachine is one request, by this process's clock.
type loadMachine struct {
	asked, provisioned, removed, gone time.Time

	// reason is what Omni's page says since then, and waits for how long it has
	// said what, numbers and names left out.
	reason string
	since  time.Time
	waits  map[string]time.Duration
}

func watchFleet(ctx context.Context, st state.State) (*fleet, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &fleet{st: st, cancel: cancel, machines: map[string]*loadMachine{}}

	events := make(chan state.Event)

	for _, kind := range []resource.Resource{infra.NewMachineRequestStatus(""), infra.NewMachineRequest("")} {
		if err := st.WatchKind(ctx, kind.Metadata(), events); err != nil {
			cancel()

			return nil, err
		}
	}

	f.done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-events:
				f.note(ctx, e)
			}
		}
	})

	return f, nil
}

func (f *fleet) close() {
	f.cancel()
	f.done.Wait()
}

// ask makes a request as Omni does.
func (f *fleet) ask(ctx context.Context, id, class string) error {
	r := infra.NewMachineRequest(id)
	r.Metadata().Labels().Set(omni.LabelInfraProviderID, loadProvider)
	r.TypedSpec().Value.TalosVersion = "1.13.5"
	r.TypedSpec().Value.ProviderData = class

	f.mu.Lock()
	now := time.Now()
	f.machines[id] = &loadMachine{asked: now, since: now, reason: "not yet looked at", waits: map[string]time.Duration{}}
	f.mu.Unlock()

	return f.st.Create(ctx, r)
}

// remove tears a request down as Omni does.
func (f *fleet) remove(ctx context.Context, id string) error {
	f.mu.Lock()
	if m := f.machines[id]; m != nil {
		m.removed = time.Now()
	}
	f.mu.Unlock()

	_, err := f.st.Teardown(ctx, infra.NewMachineRequest(id).Metadata())

	return err
}

func (f *fleet) note(ctx context.Context, e state.Event) {
	switch r := e.Resource.(type) {
	case *infra.MachineRequestStatus:
		if e.Type == state.Created || e.Type == state.Updated {
			f.told(r.Metadata().ID(), r.TypedSpec().Value)
		}
	case *infra.MachineRequest:
		if e.Type != state.Updated || r.Metadata().Phase() != resource.PhaseTearingDown || !r.Metadata().Finalizers().Empty() {
			return
		}

		err := f.st.Destroy(ctx, r.Metadata())

		f.mu.Lock()
		defer f.mu.Unlock()

		if m := f.machines[r.Metadata().ID()]; m != nil && err == nil {
			m.gone = time.Now()
		} else if err != nil && !state.IsNotFoundError(err) {
			f.err = err
		}
	}
}

func (f *fleet) told(id string, s *specs.MachineRequestStatusSpec) {
	f.mu.Lock()
	defer f.mu.Unlock()

	m := f.machines[id]
	if m == nil || !m.provisioned.IsZero() {
		return
	}

	now := time.Now()
	text := s.GetStatus()

	if s.GetStage() == specs.MachineRequestStatusSpec_FAILED {
		text = "FAILED: " + s.GetError()
	}

	m.waits[m.reason] += now.Sub(m.since)
	m.reason, m.since = anyOf(text), now

	if s.GetStage() == specs.MachineRequestStatusSpec_PROVISIONED {
		m.provisioned = now
	}
}

var particular = regexp.MustCompile(`"[^"]*"|\(request [^)]*\)|\d+([.:/]\d+)*`)

// anyOf is a text about one machine as it is about any: without numbers, names and
// IDs.
func anyOf(text string) string {
	return particular.ReplaceAllStringFunc(text, func(s string) string {
		switch s[0] {
		case '"':
			return `"…"`
		case '(':
			return ""
		default:
			return "N"
		}
	})
}

// provisioned is how many machines run and are not removed.
func (f *fleet) provisioned() int {
	return f.count(func(m *loadMachine) bool { return !m.provisioned.IsZero() && m.removed.IsZero() })
}

// forget leaves a request to itself.
func (f *fleet) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	delete(f.machines, id)
}

// asked is how many requests there ever were.
func (f *fleet) asked() int { return f.count(func(*loadMachine) bool { return true }) }

// leaving is how many requests are removed and not gone.
func (f *fleet) leaving() int {
	return f.count(func(m *loadMachine) bool { return !m.removed.IsZero() && m.gone.IsZero() })
}

// waitingFor is how many requests are told that they wait for something.
func (f *fleet) waitingFor(what string) int {
	return f.count(func(m *loadMachine) bool { return m.provisioned.IsZero() && strings.Contains(m.reason, what) })
}

func (f *fleet) count(pass func(*loadMachine) bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()

	n := 0

	for _, m := range f.machines {
		if pass(m) {
			n++
		}
	}

	return n
}

// seen are the machines by their requests' IDs, as they are now.
func (f *fleet) seen() map[string]loadMachine {
	f.mu.Lock()
	defer f.mu.Unlock()

	out := make(map[string]loadMachine, len(f.machines))
	for id, m := range f.machines {
		out[id] = *m
	}

	return out
}

// describe tells what the requests wait for.
func (f *fleet) describe() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	reasons := map[string]int{}

	for _, m := range f.machines {
		switch {
		case !m.gone.IsZero():
			reasons["gone"]++
		case !m.removed.IsZero():
			reasons["being removed"]++
		default:
			reasons[m.reason]++
		}
	}

	return fmt.Sprintf("requests: %v, %v", reasons, f.err)
}
