package provider

import (
	"context"
	"errors"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/client"
	"google.golang.org/grpc/codes"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// lead works for the provider ID whenever this process may: at all times without
// a lease, else while it holds the lease. ctx is the daemon's.
func (d *Daemon) lead(ctx context.Context, fail context.CancelCauseFunc) error {
	if d.keeper == nil {
		return d.hold(ctx, ctx, fail)
	}

	defer d.leaseStore.close()

	return d.keeper.Run(ctx, func(held context.Context) error { return d.hold(ctx, held, fail) })
}

// newKeeper makes the keeper of the lease, with a link to Omni of its own: the
// lease outlives the links of the work.
func (d *Daemon) newKeeper() {
	if d.opts.Lease == nil {
		return
	}

	d.leaseStore = &leaseStore{keys: d.keys, open: d.newClient}
	d.keeper = lease.New(lease.Config{
		Store: d.leaseStore, Type: resourceType(leaseName), Namespace: namespace(), Host: d.opts.Host, Times: *d.opts.Lease,
		Unused: d.neverUsed, Told: d.toldOfLease, Mend: needsPerson, Deposed: d.deposed, Log: d.opts.Logger,
	})
}

// neverUsed says that no process has ever worked for the provider ID: the first
// thing that one does is to store its owner.
func (d *Daemon) neverUsed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	_, err := d.leaseStore.Get(ctx, metadata(ownerName, ownerID))
	if state.IsNotFoundError(err) {
		return true, nil
	}

	return false, err
}

// toldOfLease keeps Omni's condition while this process stands by. While it
// works, the link of the work does; but a key that is refused is news at once.
func (d *Daemon) toldOfLease(role lease.Role, err error) {
	d.opts.Board.Role(role.String())
	d.countLease(role, err)
	d.bar(err)

	switch {
	case err != nil && (!role.Holding || needsPerson(err)):
		key, text := omniTrouble(d.opts.Omni.Endpoint, err)
		d.opts.Board.Trouble(NeedOmni, key, text)
	case err == nil && !role.Holding:
		d.opts.Board.OK(NeedOmni)
	}
}

// countLease counts what has changed since it was last told.
func (d *Daemon) countLease(role lease.Role, err error) {
	switch {
	case role.Holding && !d.held:
		d.opts.Metrics.Lease("taken")
	case !role.Holding && d.held:
		d.opts.Metrics.Lease("lost")
	case role.Holding && err != nil:
		d.opts.Metrics.Lease("renewal_failed")
	}

	d.held = role.Holding
}

// needsPerson says that Omni will answer the same until somebody has mended the
// key, the provider, or its rights.
func needsPerson(err error) bool {
	switch key, _ := omniTrouble("", err); key {
	case troubleKey, troubleUnregistered, troublePermission, troubleOtherKey:
		return true
	default:
		return false
	}
}

// deposed ends the work that goes on after a lost lease: somebody else has done,
// or does, the same. What it leaves in the rack is found by its marks and by the
// record of its run. The keeper calls it while nothing is held.
func (d *Daemon) deposed() {
	if d.work != nil {
		d.endWork()
		d.stale = true
	}
}

// errBarred keeps work from Omni that Omni does not take as the provider's: an
// administrator's key may put finalizers on requests, and nothing else of ours.
var errBarred = errors.New("the daemon's key is not the provider's to Omni")

// bar notes whether Omni takes the key as the provider's.
func (d *Daemon) bar(err error) {
	switch {
	case err == nil:
		d.barred.Store(false)
	case needsPerson(err):
		d.barred.Store(true)
	}
}

// check answers nil while this process may change something.
func (d *Daemon) check() error {
	if d.barred.Load() {
		return errBarred
	}

	if d.keeper == nil {
		return nil
	}

	return d.keeper.Check()
}

// strictRack is the rack for work that is done by steps and loops: a call that
// must not go out fails at once.
func (d *Daemon) strictRack() *rack.Client {
	r := d.opts.Rack.Outliving(d.stop, d.end)
	if d.keeper == nil {
		return r
	}

	return r.Behind(strictGate{d.keeper})
}

// patientRack is the rack for uploads, which wait for a lease that was lost
// because Omni was away.
func (d *Daemon) patientRack() *rack.Client {
	r := d.opts.Rack.Outliving(d.stop, d.end)
	if d.keeper == nil {
		return r
	}

	return r.Behind(d.keeper)
}

var _ rack.Gate = (*lease.Keeper)(nil)

// strictGate is a keeper that nobody waits for.
type strictGate struct{ *lease.Keeper }

// Await implements rack.Gate.
func (g strictGate) Await(context.Context) error { return g.Check() }

// leaseStore is the lease's own link to Omni. A client that got no answer is not
// used again: it remembers for long that Omni was away, and a connection that has
// died without a word is not noticed for even longer. Only the keeper's goroutine
// uses it.
type leaseStore struct {
	keys   *keys
	open   func(key string) (*client.Client, error)
	client *client.Client
	// changed is closed when client's key is not the newest any more.
	changed <-chan struct{}
}

var _ lease.Store = (*leaseStore)(nil)

func (s *leaseStore) state() (state.State, error) {
	select {
	case <-s.changed:
		s.close()
	default:
	}

	if s.client == nil {
		key, changed := s.keys.now()

		c, err := s.open(key)
		if err != nil {
			return nil, err
		}

		s.client, s.changed = c, changed
	}

	return s.client.Omni().State(), nil
}

func (s *leaseStore) close() {
	if s.client != nil {
		_ = s.client.Close()
		s.client = nil
	}
}

// after drops a client that got no answer.
func (s *leaseStore) after(err error) {
	if err == nil {
		return
	}

	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		s.close()
	default:
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			s.close()
		}
	}
}

// Get implements lease.Store.
func (s *leaseStore) Get(ctx context.Context, ptr resource.Pointer, opts ...state.GetOption) (resource.Resource, error) { //nolint:ireturn // as Store wants
	st, err := s.state()
	if err != nil {
		return nil, err
	}

	res, err := st.Get(ctx, ptr, opts...)
	s.after(err)

	return res, err
}

// Create implements lease.Store.
func (s *leaseStore) Create(ctx context.Context, res resource.Resource, opts ...state.CreateOption) error {
	st, err := s.state()
	if err != nil {
		return err
	}

	err = st.Create(ctx, res, opts...)
	s.after(err)

	return err
}

// Update implements lease.Store.
func (s *leaseStore) Update(ctx context.Context, res resource.Resource, opts ...state.UpdateOption) error {
	st, err := s.state()
	if err != nil {
		return err
	}

	err = st.Update(ctx, res, opts...)
	s.after(err)

	return err
}

// minConnect is how long one try to connect to Omni may take before another
// begins.
const minConnect = 5 * time.Second
