package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/client"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/credentials"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Credentials are how the daemon learns of new ones while it runs. Nil functions
// are for what never changes.
type Credentials struct {
	// OmniKey reads Omni's key again, JudgeOmniKey demands one of this provider that
	// is valid now and answers when it expires, zero for never.
	OmniKey      func() (string, error)
	JudgeOmniKey func(key string) (expires time.Time, err error)
	// Oxide reads again how the daemon is known at the rack.
	Oxide func() (OxideAccess, error)
	// OmniKeyFrom and OxideFrom name the files to people.
	OmniKeyFrom, OxideFrom string
}

// OxideAccess is how the daemon is known at the rack. Expires is when the token
// does, as far as that stands beside it; zero if nothing does.
type OxideAccess struct {
	Host, Token string
	Expires     time.Time
}

// The subjects on the health board.
const (
	noteNewKey      = "new key for Omni"
	noteNewToken    = "new token for the rack" //nolint:gosec // a text
	noteKeyExpiry   = "key for Omni"
	noteTokenExpiry = "token for the rack"
)

// errKeyChanged ends a link: the next one is made with the new key.
var errKeyChanged = errors.New("the key for Omni has changed")

// keys holds the key in use.
type keys struct {
	mu      sync.Mutex
	key     string
	expires time.Time
	changed chan struct{}
}

func newKeys(key string) *keys { return &keys{key: key, changed: make(chan struct{})} }

// now is the key, and what is closed when there is another one.
func (k *keys) now() (key string, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.key, k.changed
}

func (k *keys) set(key string, expires time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.expires = expires

	if key != k.key {
		k.key = key
		close(k.changed)
		k.changed = make(chan struct{})
	}
}

func (k *keys) expiry() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.expires
}

// followCredentials follows both credentials until ctx ends.
func (d *Daemon) followCredentials(ctx context.Context) {
	var loops sync.WaitGroup

	if from := d.opts.Credentials; from.OmniKey != nil {
		w := &credentials.Watch[string]{Read: from.OmniKey, Try: d.tryKey, Told: func(err error) {
			d.toldOfCredential(noteNewKey, from.OmniKeyFrom, err)
		}}

		loops.Go(func() { w.Run(ctx, d.opts.OmniKey) })
	}

	if from := d.opts.Credentials; from.Oxide != nil {
		first := d.opts.OxideAccess
		d.token.Store(&first)

		w := &credentials.Watch[OxideAccess]{Read: from.Oxide, Try: d.tryToken, Told: func(err error) {
			d.toldOfCredential(noteNewToken, from.OxideFrom, err)
		}}

		loops.Go(func() { w.Run(ctx, first) })
	}

	loops.Go(func() { d.watchExpiry(ctx) })
	loops.Wait()
}

// toldOfCredential keeps what the board says of a new credential.
func (d *Daemon) toldOfCredential(subject, from string, err error) {
	if err == nil {
		d.opts.Board.OK(subject)
	} else {
		d.opts.Board.Note(subject, withoutIDs(err.Error()), fmt.Sprintf("what is in %s is not used, the one before stays: %s", from, err))
	}
}

// tryKey puts a new key to use once Omni has answered one read by it.
func (d *Daemon) tryKey(ctx context.Context, key string) error {
	var (
		expires time.Time
		err     error
	)

	if judge := d.opts.Credentials.JudgeOmniKey; judge != nil {
		if expires, err = judge(key); err != nil {
			return err
		}
	}

	c, err := d.newClient(key)
	if err != nil {
		return err
	}

	defer c.Close() //nolint:errcheck // it was for one read

	if err := d.proveKey(ctx, c); err != nil {
		if errors.Is(err, errOwnerChanged) {
			return err
		}

		_, text := omniTrouble(d.opts.Omni.Endpoint, err)

		return errors.New(text)
	}

	d.keys.set(key, expires)
	d.opts.Logger.Info("took a new key for Omni", zap.String("file", d.opts.Credentials.OmniKeyFrom), expiryField(expires))
	d.tellExpiry(ctx)

	return nil
}

// proveKey reads what only this provider's key may: Omni must be the same too.
func (d *Daemon) proveKey(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	owner, err := readOwner(ctx, c.Omni().State())
	if state.IsNotFoundError(err) && d.known.Load() == nil {
		return nil
	}

	if err != nil {
		return err
	}

	if known := d.known.Load(); known != nil && *known != owner {
		return fmt.Errorf("%w: it was %s and is %s", errOwnerChanged, *known, owner)
	}

	return nil
}

// tryToken puts a new token to use once the rack has answered one read by it, as
// the same silo that it was.
func (d *Daemon) tryToken(ctx context.Context, access OxideAccess) error {
	next, err := d.opts.Rack.As(access.Host, access.Token)
	if err != nil {
		return err
	}

	silo, err := readSilo(ctx, next)
	if err != nil {
		next.Close()

		return fmt.Errorf("the rack at %s: %s", next.Host(), rack.Reason(err))
	}

	if known := d.silo.Load(); known != nil && *known != silo {
		next.Close()

		return fmt.Errorf("it is of another silo, %s, and the daemon serves %s: another silo needs a daemon and a provider ID of its own", silo, *known)
	}

	d.silo.CompareAndSwap(nil, &silo)
	next.Close()
	d.opts.Rack.Become(next)
	d.token.Store(&access)
	d.opts.Logger.Info("took a new token for the rack", zap.String("file", d.opts.Credentials.OxideFrom), zap.String("oxide.host", next.Host()), expiryField(access.Expires))
	d.opts.Board.ProbeRack()
	d.tellExpiry(ctx)

	return nil
}

func readSilo(ctx context.Context, r *rack.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	return siloOf(r)(ctx)
}

func expiryField(expires time.Time) zap.Field {
	if expires.IsZero() {
		return zap.Skip()
	}

	return zap.Time("expires", expires)
}
