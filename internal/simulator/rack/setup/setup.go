// Package setup brings a simulated rack up, as the setup service of a real one
// does, and hands it over to the control plane, once.
//
//	state      | what goes on                                              | next when
//	-----------+-----------------------------------------------------------+---------------------------
//	waiting    | sleds come up; those with too few storage pools are named | each reports three pools
//	planning   | a sled plan and a service plan are made and stored        | both are stored
//	dns        | sleds are told who they are, DNS servers start            | all records are entered
//	services   | datasets are made, database, metrics, pantries and        | all run
//	           | control planes start                                      |
//	handing    | the control plane is told, and that is marked             | the marker is stored
//	handed     | the control plane asks its database every two seconds     | the database says so
//	ready      | the API may open                                          | -
//
// Every state can be left by a crash, and is come to again: sleds start what
// their ledgers hold, a plan that is stored is loaded and never made anew, and
// whatever a plan says is carried out by calls that do nothing the second time.
// With the marker a restart goes from waiting to handed at once.
//
// What is kept in the store is the rack's making. Its silo's objects are the
// API's, and end with the process.
package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/controlplane"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/sled"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

// Pauses between two looks at what is awaited.
const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
)

// markerName is stored when the rack has been handed over.
const markerName = "handed-over"

// Config is a rack that is to come up.
type Config struct {
	Description plan.Description
	// Store is what the rack keeps; nil for nothing that outlives the process.
	Store store.Store
	// Clock is nil for real time.
	Clock Clock
	// Say is told each step and each wait, one line for people; may be nil.
	Say func(line string)
	Log *zap.Logger
	// Around is called before and after each thing that is carried out; an
	// error from it is the end. Tests crash there. May be nil.
	Around func(action string) error
}

// Rack is a rack that comes up.
type Rack struct {
	cfg      Config
	sleds    []*sled.Sled
	services *services

	mu    sync.Mutex
	state State
}

// New powers a rack on. Close must be called on it.
func New(cfg Config) (*Rack, error) {
	if err := cfg.Description.Check(); err != nil {
		return nil, err
	}

	if cfg.Store == nil {
		cfg.Store = &store.Memory{}
	}

	if cfg.Clock == nil {
		cfg.Clock = Scaled(1)
	}

	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}

	servers, err := plan.DNSAddresses(cfg.Description)
	if err != nil {
		return nil, err
	}

	r := &Rack{cfg: cfg, services: newServices(cfg, servers), state: State{Phase: PhaseWaiting}}

	for _, d := range cfg.Description.Sleds {
		s, err := sled.Boot(d, cfg.Store, cfg.Clock, r.services)
		if err != nil {
			return nil, err
		}

		r.sleds = append(r.sleds, s)
	}

	return r, nil
}

// Run brings the rack up and returns when its control plane has been told what
// it is, with what it was told. What is stored and can not be used ends it;
// everything else that goes wrong is tried again until ctx ends.
func (r *Rack) Run(ctx context.Context) (controlplane.HandOver, error) {
	marked, err := r.stored()
	if err != nil {
		return controlplane.HandOver{}, err
	}

	if err := r.resume(ctx); err != nil {
		return controlplane.HandOver{}, err
	}

	if marked {
		if r.services.controlPlanes() == 0 {
			return controlplane.HandOver{}, r.halfGone("its sleds know nothing of it")
		}

		r.say(PhaseHanded, "the rack was handed over before, its sleds have started what they know")
	} else if err := r.bringUp(ctx); err != nil {
		return controlplane.HandOver{}, err
	}

	select {
	case h := <-r.services.told:
		r.say(PhaseReady, "ready: the control plane has read in its database that the rack is handed over: %d sleds, %d datasets, %d address pools, %d certificates",
			len(h.Sleds), len(h.Datasets), len(h.AddressPools), len(h.Certificates))

		return h, nil
	case <-ctx.Done():
		return controlplane.HandOver{}, context.Cause(ctx)
	}
}

// stored looks, before anything is started, at what an earlier run has left:
// plans that can not be used are told at once. It says whether the rack was
// handed over.
func (r *Rack) stored() (bool, error) {
	sleds, planned, err := plan.LoadSleds(r.cfg.Store, r.cfg.Description)
	if err != nil {
		return false, err
	}

	if planned {
		if _, planned, err = plan.LoadServices(r.cfg.Store, sleds); err != nil {
			return false, err
		}
	}

	marked, err := r.storedOf(markerName, sleds.RackID)
	if err != nil {
		return false, err
	}

	told, err := r.storedOf(controlplane.DatabaseName, sleds.RackID)

	switch {
	case err != nil:
	case marked && !planned:
		err = r.halfGone("its plans are gone")
	case marked && !told:
		err = r.halfGone("its database is gone")
	}

	return marked, err
}

// halfGone is a rack that was handed over, of which a part is missing.
func (r *Rack) halfGone(what string) error {
	return store.Unusable(r.cfg.Store, markerName, errors.New("the rack is marked as handed over, but "+what))
}

// storedOf looks at something that has the ID of the rack in it, which must be
// that of the plan, if there is one.
func (r *Rack) storedOf(name, rackID string) (bool, error) {
	raw, found, err := r.cfg.Store.Load(name)
	if err != nil || !found {
		return false, err
	}

	var kept struct {
		RackID string `json:"rack_id"`
	}

	if err = json.Unmarshal(raw, &kept); err == nil && (kept.RackID == "" || rackID != "" && kept.RackID != rackID) {
		err = fmt.Errorf("it is of rack %q, and the plan of rack %q", kept.RackID, rackID)
	}

	if err != nil {
		return false, store.Unusable(r.cfg.Store, name, err)
	}

	return true, nil
}

// Close ends all services.
func (r *Rack) Close() error { return r.services.close() }

// Report makes a disk of a sled come up that has not by itself.
func (r *Rack) Report(serial, disk string) error {
	for _, s := range r.sleds {
		if s.Serial() == serial {
			return s.Report(disk)
		}
	}

	return fmt.Errorf("there is no sled %q", serial)
}

// BreakDatabase makes the control plane's database unreadable for the given
// reason, until it is called with nil.
func (r *Rack) BreakDatabase(err error) { r.services.database.Break(err) }

// resume starts what the sleds' ledgers hold, DNS servers of all sleds first.
func (r *Rack) resume(ctx context.Context) error {
	for _, step := range []func(*sled.Sled, context.Context) error{(*sled.Sled).ResumeDNS, (*sled.Sled).ResumeServices} {
		for _, s := range r.sleds {
			if err := step(s, ctx); err != nil {
				return err
			}
		}
	}

	return nil
}

// bringUp goes through all states up to the marker.
func (r *Rack) bringUp(ctx context.Context) error {
	if err := r.waitPools(ctx); err != nil {
		return err
	}

	sleds, services, err := r.plan()
	if err != nil {
		return err
	}

	for _, step := range []func(context.Context, plan.Sleds, plan.Services) error{r.startDNS, r.startServices, r.handOver} {
		if err := step(ctx, sleds, services); err != nil {
			return err
		}
	}

	return nil
}

// plan loads the plans, and makes and stores those that have not been made.
func (r *Rack) plan() (plan.Sleds, plan.Services, error) {
	how := "loaded"

	sleds, found, err := plan.LoadSleds(r.cfg.Store, r.cfg.Description)
	if err == nil && !found {
		how = "made and stored"

		if sleds, err = plan.MakeSleds(r.cfg.Description, uuid.NewString); err == nil {
			err = plan.Save(r.cfg.Store, plan.SledsName, sleds)
		}
	}

	if err != nil {
		return plan.Sleds{}, plan.Services{}, err
	}

	r.say(PhasePlanning, "sled plan %s: rack %s, %d sleds in %s", how, sleds.RackID, len(sleds.Sleds), r.cfg.Description.Subnet)

	for _, s := range sleds.Sleds {
		r.say(PhasePlanning, "sled %s is %s in %s", s.Serial, s.ID, s.Subnet)
	}

	services, found, err := plan.LoadServices(r.cfg.Store, sleds)
	how = "loaded"

	if err == nil && !found {
		how = "made and stored"

		if services, err = plan.MakeServices(r.cfg.Description, sleds, r.reported(), uuid.NewString); err == nil {
			err = plan.Save(r.cfg.Store, plan.ServicesName, services)
		}
	}

	if err != nil {
		return plan.Sleds{}, plan.Services{}, err
	}

	r.say(PhasePlanning, "service plan %s: %s", how, counted(services))

	return sleds, services, nil
}

// until tries until it goes well, saying each new reason why it does not yet.
func (r *Rack) until(ctx context.Context, phase Phase, try func() error) error {
	pause, said := firstPause, ""

	for {
		err := try()

		switch {
		case err == nil:
			r.wait("")

			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, sled.ErrOther), errors.Is(err, errEnd), errors.Is(err, store.ErrUnusable):
			return err
		}

		r.wait(err.Error())

		if text := err.Error(); text != said {
			r.say(phase, "%s; trying again", text)

			said = text
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.cfg.Clock.After(pause):
		}

		pause = min(2*pause, mostPause)
	}
}

// errEnd is the end of a rack that a test has asked for.
var errEnd = errors.New("ended")

// carryOut does one thing of the plan.
func (r *Rack) carryOut(action string, do func() error) error {
	if r.cfg.Around == nil {
		return do()
	}

	if err := r.cfg.Around("before " + action); err != nil {
		return errors.Join(errEnd, err)
	}

	if err := do(); err != nil {
		return err
	}

	if err := r.cfg.Around("after " + action); err != nil {
		return errors.Join(errEnd, err)
	}

	return nil
}
