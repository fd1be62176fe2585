package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/client"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lifetime"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/watcher"
)

// NeedOmni is Omni's condition on the health board.
const NeedOmni = "omni"

// Options are what a daemon is made of.
type Options struct {
	// ProviderID must have been bound with Bind. Name and Description are shown
	// in Omni.
	ProviderID, Name, Description string
	// Schema is the JSON schema of a machine class.
	Schema string
	// Omni and OmniKey say which Omni, and as whom.
	Omni    Way
	OmniKey string
	// OxideAccess is how Rack is known there at first, Credentials are how both may
	// change.
	OxideAccess OxideAccess
	Credentials Credentials

	Rack    *rack.Client
	Factory *talos.Factory
	// FactoryURL overrides the image factory that Omni names.
	FactoryURL string
	// FactoryAccess answers the headers that the factory is asked with, which may
	// hold credentials; nil for none.
	FactoryAccess func() http.Header
	// FactoryClear allows credentials for the factory where they can be read on
	// their way.
	FactoryClear bool

	// ImageScope is where images are kept for classes that leave it to the daemon,
	// MaxUploads how many are brought at once.
	ImageScope image.Scope
	MaxUploads int
	// KeepImages says for how long unused images of ours are kept, for ever if that
	// is zero; what the janitor does with orphans is done with those that are not.
	KeepImages lifetime.Keep

	// Concurrency is the number of the SDK's workers.
	Concurrency int
	// MaxCreates bounds the create calls in flight, and half the workers do too.
	MaxCreates int
	Settle     time.Duration
	// ScratchGrace is after how long without renewal a run counts as dead.
	ScratchGrace time.Duration
	// Janitor says what is done about orphans, JanitorGrace for how long
	// something must have been one.
	Janitor      JanitorMode
	JanitorGrace time.Duration
	// JoinTime is how long after its start a machine may be unknown to Omni.
	JoinTime time.Duration

	// Lease is how replicas with this provider ID agree on one that works; nil is
	// for a process that is the only one. Host names this one to the others.
	Lease *lease.Times
	Host  string

	// ShutdownGrace is how long after the end of Run's context Run may take.
	ShutdownGrace time.Duration

	Board  *health.Board
	Logger *zap.Logger
	// Metrics count; nil makes some that nobody reads.
	Metrics *metrics.Metrics
}

// Daemon serves one provider ID of one Omni on one silo.
type Daemon struct {
	opts Options

	current atomic.Pointer[state.State]
	// last is the client of the link that the end of a tenure ended.
	last *client.Client

	// work is what outlives a link to Omni: made at the first one, when the owner
	// is known. working are its goroutines, which endWork ends.
	work    *Provisioner
	working sync.WaitGroup
	endWork context.CancelFunc
	// machines and images are those of work.
	machines *instance.Machines
	images   *image.Manager

	// scene is read from outside the work.
	scene scene

	states  *stateLook
	watcher atomic.Pointer[watcher.Watcher]

	// keys holds the key for Omni, token how the daemon is known at the rack. known
	// is the owner and silo the silo that this process has seen, by which new ones
	// are judged; nil at first.
	keys        *keys
	token       atomic.Pointer[OxideAccess]
	known, silo atomic.Pointer[string]

	// barred says that Omni does not take the key as the provider's.
	barred atomic.Bool

	// stop is the context of Run, end that of what may go on for a while after it.
	stop, end context.Context //nolint:containedctx // of the process, not of a call

	// stale says that somebody else has worked since, so that it must be made anew.
	stale bool

	// keeper is nil without a lease.
	keeper     *lease.Keeper
	leaseStore *leaseStore
	held       bool // as toldOfLease was last told
}

// NewDaemon makes a daemon; nothing happens before Run.
func NewDaemon(opts Options) *Daemon {
	if opts.Metrics == nil {
		opts.Metrics = metrics.New()
	}

	opts.Rack = opts.Rack.Observed(opts.Metrics)

	d := &Daemon{opts: opts, states: newStateLook(opts.Logger, opts.Board), keys: newKeys(opts.OmniKey)}
	opts.Metrics.Read(d.Facts)

	if judge := opts.Credentials.JudgeOmniKey; judge != nil {
		if expires, err := judge(opts.OmniKey); err == nil {
			d.keys.set(opts.OmniKey, expires)
		}
	}

	d.newKeeper()

	return d
}

// StateCounts is how many stored states had each oddity at the last look.
func (d *Daemon) StateCounts() map[Oddity]int { return d.states.Counts() }

// errOwnerChanged ends the daemon: all its marks are of another owner.
var errOwnerChanged = errors.New("the owner ID stored in Omni is another one now")

// Run serves until ctx ends, and returns nil then. Omni and the rack may be
// away at the start and at any time later.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)

	end, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()

	d.stop, d.end = ctx, end

	stopWatch := context.AfterFunc(ctx, func() { time.AfterFunc(lingering(d.opts.ShutdownGrace), giveUp) })
	defer stopWatch()

	var loops sync.WaitGroup

	// The last link is closed after all work has ended: what work leaves behind it
	// may still have to be told to Omni.
	defer func() {
		cancel(nil)
		loops.Wait()
		d.retire()

		if d.last != nil {
			_ = d.last.Close()
		}
	}()

	loops.Go(func() { d.opts.Board.WatchRack(ctx, probedRack{d.opts.Rack, d}) })
	loops.Go(func() { d.followCredentials(ctx) })

	return d.lead(ctx, cancel)
}

// lingering is how much of the grace is for calls in flight and for undoing; the
// rest is for freeing the lease.
func lingering(grace time.Duration) time.Duration {
	if grace == 0 {
		grace = DefaultShutdownGrace
	}

	return max(grace-6*time.Second, grace*3/4)
}

// DefaultShutdownGrace ends before Kubernetes kills, after 30 s.
const DefaultShutdownGrace = 25 * time.Second

// makeWork builds what needs the owner's ID.
func (d *Daemon) makeWork(owner string) *image.Manager {
	// A run of its own: what earlier work of this process has left is known by the
	// record of the run that it had.
	run := naming.NewRun()

	d.images = image.New(image.Config{
		Rack:   d.patientRack(),
		Source: image.FactorySource{Factory: d.opts.Factory, Address: d.factoryAddress},
		Runs:   &Runs{State: d.state, ID: run}, Log: d.opts.Logger,
		Owner: owner, Provider: d.opts.ProviderID, Run: run, Grace: d.opts.ScratchGrace,
		End: d.end, Scope: d.opts.ImageScope, Uploads: uploadsWithin(debug.SetMemoryLimit(-1), d.opts.MaxUploads), Meter: d.opts.Metrics,
	})

	d.machines = instance.New(instance.Config{
		Rack: d.strictRack(), Owner: owner, Provider: d.opts.ProviderID, Run: run,
		MaxCreates: min(d.opts.MaxCreates, max((d.opts.Concurrency-2)/2, 1)), Settle: d.opts.Settle,
		Silo: siloOf(d.opts.Rack), Wanted: watched{d}.Wanted,
	})

	d.work = &Provisioner{
		State: d.state, Silo: d.opts.Rack, Images: d.images, Machines: d.machines, Factory: d.factoryURL, Owner: owner,
		teardowns: newTeardowns(d.opts.Board), gauge: gauge{meter: d.opts.Metrics},
	}

	d.scene.work.Store(&working{gauge: &d.work.gauge, machines: d.machines, images: d.images, teardowns: d.work.teardowns, identity: &d.work.identity})

	d.opts.Logger.Info("linked to Omni", zap.String("omni.provider.id", d.opts.ProviderID), zap.String("owner", owner),
		zap.String("run", run), zap.String("oxide.host", d.opts.Rack.Host()))

	return d.images
}

// siloOf reads afresh which silo the rack's address leads to.
func siloOf(r *rack.Client) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		me, err := r.Me(ctx)
		if err != nil {
			return "", err
		}

		return me.SiloId, nil
	}
}

// state is the state of the newest Omni client.
func (d *Daemon) state() state.State {
	st := d.current.Load()
	if st == nil {
		// Nothing of the daemon runs before the first link to Omni.
		panic("no link to Omni yet")
	}

	return *st
}

// healthLine is what Omni shows of the daemon's health.
func (d *Daemon) healthLine(context.Context) error {
	if err := d.opts.Board.Err(); err != nil {
		return errors.New(oneLine(err.Error()))
	}

	return nil
}

// owner is whom this process works for, empty before the first link.
func (d *Daemon) owner() string {
	if d.work == nil {
		return ""
	}

	return d.work.Owner
}

func (d *Daemon) checkOwner(owner string) error {
	if d.work != nil && d.work.Owner != owner {
		return fmt.Errorf("%w: it was %s and is %s", errOwnerChanged, d.work.Owner, owner)
	}

	return nil
}
