package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/client"
	"github.com/siderolabs/omni/client/pkg/client/omni"
	"github.com/siderolabs/omni/client/pkg/infra"
	"github.com/siderolabs/omni/client/pkg/infra/provision"
	"github.com/siderolabs/omni/client/pkg/omni/resources/system"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
	compat "github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

const (
	// linkPause is the first pause between two links to Omni, linkPauseMax the
	// longest.
	linkPause    = time.Second
	linkPauseMax = 60 * time.Second
	// linkWell is how long a link must have lasted for the pause to start anew.
	linkWell = time.Minute
	// omniDeadline bounds one read of Omni.
	omniDeadline = 10 * time.Second
	// prepareDeadline bounds what is done in Omni before the SDK runs.
	prepareDeadline = time.Minute
	// linkProof is how long a link must have lasted to count as one: with some
	// proxies every read works, and every stream ends at once.
	linkProof = 3 * time.Second
	// pulseEvery is how often a link is proved by a read. A refused key ends no
	// stream, so nothing else would notice it.
	pulseEvery = 10 * time.Second
	// healthEvery must stay well below the 31 s after which Omni shows a provider
	// as disconnected.
	healthEvery = 15 * time.Second
)

// supervise keeps a link to Omni. The SDK's Run ends on the first broken stream
// after a quarter of an hour, which is no failure; each link has a client of
// its own, because a used one remembers for up to two minutes that Omni was
// away.
//
// started is called with the owner's ID at each link, before the SDK runs.
func (d *Daemon) supervise(ctx context.Context, started func(owner string)) error {
	pause := linkPause

	for {
		began := time.Now()
		key, changed := d.keys.now()
		err := d.link(ctx, key, changed, started)

		if ctx.Err() != nil {
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}

			return nil
		}

		if errors.Is(err, errOwnerChanged) {
			return err
		}

		if time.Since(began) > linkWell || errors.Is(err, errKeyChanged) {
			pause = linkPause
		}

		if errors.Is(err, errKeyChanged) {
			d.opts.Logger.Info("making a link to Omni with the new key")

			continue
		}

		key, text := omniTrouble(d.opts.Omni.Endpoint, err)
		d.opts.Board.Trouble(NeedOmni, key, text)
		d.opts.Metrics.LinkEnded(key)
		d.opts.Logger.Debug("link to Omni ended", zap.Error(err), zap.Duration("pause", pause))

		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(spread(pause)):
		}

		pause = min(2*pause, linkPauseMax*3/4)
	}
}

// newClient makes a client of Omni; it makes no call.
func (d *Daemon) newClient(key string) (*client.Client, error) {
	return client.New(d.opts.Omni.address(), append([]client.Option{
		client.WithServiceAccount(key),
		client.WithOmniClientOptions(omni.WithProviderID(d.opts.ProviderID)),
		client.WithGrpcOpts(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: minConnect,
		})),
	}, d.opts.Omni.Options...)...)
}

// link makes one link to Omni and serves until it breaks, or the key is not the
// newest any more.
func (d *Daemon) link(ctx context.Context, key string, changed <-chan struct{}, started func(owner string)) error {
	c, err := d.newClient(key)
	if err != nil {
		return err
	}

	defer func() {
		if ctx.Err() != nil {
			d.last = c
		} else {
			_ = c.Close()
		}
	}()

	st := c.Omni().State()

	version, err := readVersion(ctx, st)
	if err != nil {
		return err
	}

	if err := compat.Omni(version); err != nil {
		d.opts.Board.Note("version of Omni", version, err.Error())
	} else {
		d.opts.Board.OK("version of Omni")
	}

	if err := d.prepare(ctx, st, started); err != nil {
		return err
	}

	schematics, err := d.schematicClient(ctx, c, version)
	if err != nil {
		return err
	}

	return d.serve(ctx, changed, st, schematics)
}

// prepare makes sure of what is stored in Omni before the SDK works with it.
func (d *Daemon) prepare(ctx context.Context, st state.State, started func(owner string)) error {
	bounded, cancel := context.WithTimeout(ctx, prepareDeadline)
	defer cancel()

	owner, err := EnsureOwner(bounded, st, d.owner())
	if err != nil {
		return err
	}

	if err := d.checkOwner(owner); err != nil {
		return err
	}

	d.known.Store(&owner)
	d.current.Store(&st)

	if d.last != nil {
		_ = d.last.Close()
		d.last = nil
	}

	started(owner)

	states, published, err := listStates(bounded, st)
	if err != nil {
		return err
	}

	d.states.look(owner, states, published)

	return repairSteps(bounded, d.opts.Logger, st, states)
}

// serve runs the SDK over one link.
func (d *Daemon) serve(ctx context.Context, changed <-chan struct{}, st state.State, schematics provision.FactoryClient) error {
	asked := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))

	d.work.turns.open()

	if d.keeper == nil {
		d.bar(nil)
	}

	beating := make(chan struct{})

	go func() {
		defer close(beating)

		d.pulse(ctx, st, cancel)
	}()

	ending := make(chan struct{})

	go func() {
		defer close(ending)

		d.endInOrder(asked, changed, ctx, cancel)
	}()

	defer func() { <-beating; <-ending }()
	defer cancel(nil)

	p, err := infra.NewProvider(d.opts.ProviderID, d.work, infra.ProviderConfig{
		Name: d.opts.Name, Description: d.opts.Description, Icon: icon, Schema: d.opts.Schema,
	})
	if err != nil {
		return err
	}

	err = p.Run(ctx, Quiet(d.opts.Logger),
		infra.WithState(state.WrapCore(newStatusGate(d.fenced(st)))),
		infra.WithImageFactoryClient(newSchematicCache(schematics)),
		infra.WithConcurrency(uint(d.opts.Concurrency)),
		infra.WithEncodeRequestIDsIntoTokens(),
		infra.WithHealthCheckFunc(d.healthLine),
		infra.WithHealthCheckInterval(healthEvery),
	)

	if errors.Is(context.Cause(ctx), errKeyChanged) {
		return errKeyChanged
	}

	// The SDK takes any end of its context for a wish.
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}

	return err
}

// endInOrder ends what runs under ctx when asked has ended or the key has changed:
// after the steps that run, unless this process may do nothing any more.
func (d *Daemon) endInOrder(asked context.Context, changed <-chan struct{}, ctx context.Context, end context.CancelCauseFunc) { //nolint:revive // ctx is what is ended
	var why error

	select {
	case <-ctx.Done():
		return
	case <-asked.Done():
		why = context.Cause(asked)
	case <-changed:
		why = errKeyChanged
	}

	if d.check() == nil {
		d.drain(ctx)
	}

	end(why)
}

// pulse proves the link until ctx ends. A link whose key is refused is ended:
// the SDK would go on and fail with every request, each time loudly.
func (d *Daemon) pulse(ctx context.Context, st state.State, end context.CancelCauseFunc) {
	next, refused := linkProof, 0

	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}

		next = pulseEvery

		// The owner is stored, as all else that work needs, while Omni's version
		// is made up on the spot.
		err := d.readPulse(ctx, st)

		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			// With a lease its renewals tell more: they write.
			if d.keeper == nil {
				d.bar(nil)
			}

			if !d.barred.Load() {
				d.opts.Board.OK(NeedOmni)
			}

			refused = 0

			continue
		}

		key, text := omniTrouble(d.opts.Omni.Endpoint, err)
		d.opts.Board.Trouble(NeedOmni, key, text)
		d.bar(err)

		switch {
		case errors.Is(err, errOwnerChanged), state.IsNotFoundError(err):
			end(err)
		case key != troubleKey:
			refused = 0
		case refused == 0:
			// Once may be a clock that jumped, or an Omni that is just starting.
			refused, next = 1, linkProof
		default:
			end(err)
		}
	}
}

func (d *Daemon) readPulse(ctx context.Context, st state.State) error {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	owner, err := readOwner(ctx, st)
	if err != nil {
		return err
	}

	return d.checkOwner(owner)
}

func readVersion(ctx context.Context, st state.State) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	v, err := safe.StateGetByID[*system.SysVersion](ctx, st, system.SysVersionID)
	if err != nil {
		return "", fmt.Errorf("reading Omni's version: %w", err)
	}

	return v.TypedSpec().Value.GetBackendVersion(), nil
}

// The keys of the troubles that only a person can mend.
const (
	troubleKey          = "key"
	troubleUnregistered = "unregistered"
	troublePermission   = "permission"
	troubleOtherKey     = "other key"
)

// wayTrouble words what is wrong on the way to Omni; the key is empty if nothing
// is known to be.
func wayTrouble(endpoint, reason string) (key, text string) {
	switch kind, cause := reach.Cause(reason, "OMNI_CA_FILE"); {
	case kind == reach.KindNoTLS:
		return "tls", "Omni at " + endpoint + ": " + cause
	case kind == reach.KindCertificate:
		return "tls", "the certificate of Omni at " + endpoint + " is not trusted: " + cause
	case kind == reach.KindProxy:
		return "proxy", "Omni at " + endpoint + " can not be reached: " + cause
	case strings.Contains(reason, "x509") || strings.Contains(reason, "tls:"):
		return "tls", "the certificate of Omni at " + endpoint + " is not trusted: " + reason
	default:
		return "", ""
	}
}

// omniTrouble words why there is no link, and what to do.
func omniTrouble(endpoint string, err error) (key, text string) {
	if err == nil {
		return "ended", "the link to Omni at " + endpoint + " ended, making a new one"
	}

	reason := grpcReason(err)

	if key, text := wayTrouble(endpoint, reason); key != "" {
		return key, text
	}

	switch code := codeOf(err); {
	case code == codes.Unauthenticated || strings.Contains(reason, "invalid signature"):
		return troubleKey, "Omni at " + endpoint + " refuses the service account key (OMNI_SERVICE_ACCOUNT_KEY): renewed, revoked or expired, or the provider was deleted: " + reason
	case strings.Contains(reason, "not registered in the system"):
		return troubleUnregistered, "Omni at " + endpoint + " knows no such provider, create it with `omnictl infraprovider create`: " + reason
	case strings.Contains(reason, "users are not allowed"):
		return troubleOtherKey, "the key for Omni at " + endpoint + " is a user's or an administrator's, not that of the provider: " + reason
	case strings.Contains(reason, "namespace not allowed") || strings.Contains(reason, "must match the infra provider ID"):
		return troubleOtherKey, "the key for Omni at " + endpoint + " is that of another provider: " + reason
	case code == codes.PermissionDenied:
		return troublePermission, "Omni at " + endpoint + " denies the provider's rights: " + reason
	case code == codes.Unavailable || code == codes.DeadlineExceeded:
		return "away", "Omni at " + endpoint + " can not be reached: " + reason
	default:
		return "other", "the link to Omni at " + endpoint + " ended: " + reason
	}
}
