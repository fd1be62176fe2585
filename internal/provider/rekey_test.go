package provider

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/pkg/access"
	"github.com/siderolabs/omni/client/pkg/omni/resources/auth"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/credentials"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

const secondRequest = "talos-workers-bcdefg"

// secrets stand for the files that credentials come from.
type secrets struct {
	key   atomic.Pointer[string]
	oxide atomic.Pointer[OxideAccess]
}

// follow has a daemon follow the secrets.
func (b *bench) follow() (*secrets, func(*Options)) {
	s := &secrets{}
	b.key = b.mint(60 * 24 * time.Hour)
	access := OxideAccess{Host: "http://rack.test", Token: simrack.DefaultToken}
	s.key.Store(&b.key)
	s.oxide.Store(&access)

	judge := &config.Config{Provider: config.Provider{ID: testID}}

	return s, func(o *Options) {
		o.OxideAccess = access
		o.Credentials = Credentials{
			OmniKey: func() (string, error) {
				if *s.key.Load() == "" {
					return "", errors.New("the file is empty")
				}

				return *s.key.Load(), nil
			},
			JudgeOmniKey: func(key string) (time.Time, error) { return judge.JudgeOmniKey(config.Secret(key), time.Now()) },
			Oxide:        func() (OxideAccess, error) { return *s.oxide.Load(), nil },
			OmniKeyFrom:  "/secrets/omni.key", OxideFrom: "/secrets/oxide.token",
		}
	}
}

func (b *bench) mint(ttl time.Duration) string {
	b.t.Helper()

	key, err := b.omni.MintProviderKey(b.t.Context(), testID, ttl)
	b.ok(err)

	return key
}

// Rule: a changed key makes a new link in the same process once it has proved
// itself; the work goes on, and nobody sees anything of it.
func TestAChangedKeyIsTakenWithoutARestart(t *testing.T) {
	t.Parallel()

	for name, revoked := range map[string]bool{"the old one is good": false, "the old one was refused first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				s, follow := b.follow()
				d := b.serve(leased, follow)
				b.wantServing(d, theRequest)

				work := d.work

				if revoked {
					b.ok(b.omni.RevokeKeys(t.Context(), "infra-provider:"+testID))
					b.untilTrouble(d, "refuses the service account key")
					b.pass(5 * time.Minute)
				}

				fresh := b.mint(60 * 24 * time.Hour)
				s.key.Store(&fresh)

				b.until("the new key to be taken", func() bool { return b.logs.FilterMessage("took a new key for Omni").Len() == 1 })
				b.wantServing(d, secondRequest)

				if d.work != work {
					t.Error("the daemon began anew")
				}

				if n := b.logs.FilterMessage("making a link to Omni with the new key").Len(); n > 1 || n == 0 && !revoked {
					t.Errorf("%d links were ended for the key", n)
				}

				if got := d.healthText(); !d.board.Ready() || strings.Contains(got, "Omni: ") {
					t.Errorf("health says %q", got)
				}
			})
		})
	}
}

// Rule: a step that runs when the key changes ends before its link does, and what
// it has made is stored.
func TestAStepThatRunsEndsBeforeTheKeyChanges(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		s, follow := b.follow()
		d := b.serve(leased, follow)
		b.untilReady(d)
		b.fault(simrack.Fault{Operation: "instance_create", Action: simrack.ActionDelay, Delay: simrack.Duration(60 * time.Second), Count: 1})
		b.ask(theRequest)
		b.until("the create to be on its way", func() bool { return b.sim.CallCount("instance_create") == 1 })

		fresh := b.mint(60 * 24 * time.Hour)
		s.key.Store(&fresh)
		b.untilStage(theRequest, stageProvisioned)

		if n := b.logs.FilterMessage("making a link to Omni with the new key").Len(); n != 1 {
			t.Errorf("%d links were ended for the key", n)
		}

		if n := b.sim.CallCount("instance_create"); n != 1 {
			t.Errorf("%d creates", n)
		}
	})
}

// Rule: a key that is not good is told with the reason and changes nothing; no
// finalizer is ever put on anything by somebody else's.
func TestAWrongNewKeyIsToldAndTheOldOneStays(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		key  func(b *bench) string
		want string
	}{
		"an administrator's": {func(b *bench) string {
			key, err := b.omni.MintAdminKey(b.t.Context(), time.Hour)
			b.ok(err)

			return key
		}, `is the key of "admin", which is no infrastructure provider's`},
		"another provider's": {func(b *bench) string {
			key, err := b.omni.MintProviderKey(b.t.Context(), "another", time.Hour)
			b.ok(err)

			return key
		}, `is the key of the provider "another"`},
		"one that has expired": {func(b *bench) string { return b.mint(-time.Hour) }, "has expired on"},
		"no key at all":        {func(*bench) string { return "c2VjcmV0" }, "is base64, but not of a service account's JSON"},
		"half a key":           {func(b *bench) string { return b.key[:len(b.key)/2+1] }, "base64"},
		"nothing":              {func(*bench) string { return "" }, "the file is empty"},
		"one that Omni does not know": {func(b *bench) string {
			key := b.mint(time.Hour)
			b.ok(b.omni.RevokeKeys(b.t.Context(), "infra-provider:"+testID))
			b.key = b.mint(30 * 24 * time.Hour)

			return key
		}, "refuses the service account key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				wrong := tc.key(b)
				s, follow := b.follow()
				d := b.serve(leased, follow, func(o *Options) { o.OmniKey = b.key })
				s.key.Store(&b.key)
				b.wantServing(d, theRequest)
				s.key.Store(&wrong)

				const before = "new key for Omni: what is in /secrets/omni.key is not used, the one before stays: "

				b.until("the wrong key to be told", func() bool { return strings.Contains(d.healthText(), before) })

				if got := d.healthText(); !strings.Contains(got, tc.want) || !d.board.Ready() {
					t.Errorf("health says %q, ready %v", got, d.board.Ready())
				}

				b.pass(20 * time.Minute)
				b.wantServing(d, secondRequest)

				if n := b.logs.FilterMessageSnippet("needs a look: what is in").Len(); n != 1 {
					t.Errorf("told %d times", n)
				}

				s.key.Store(&b.key)
				b.until("the right key to be told", func() bool { return !strings.Contains(d.healthText(), "new key for Omni") })
			})
		})
	}
}

// Rule: a changed token is taken once it has proved itself, and only for the silo
// that the daemon serves.
func TestAChangedTokenIsTakenForTheSameSilo(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		other, err := simrack.New(simrack.Config{Silo: "other"})
		b.ok(err)

		defer other.Close()

		b.net.serve(t, "other", other)

		r, err := rack.New(rack.Config{Host: "http://rack.test", Token: simrack.DefaultToken, Transport: &http.Transport{
			DialContext: dialTCP(b.byHost(map[string]string{"rack.test:80": "rack", "other.test:80": "other"})),
		}})
		b.ok(err)

		defer r.Close()

		s, follow := b.follow()
		d := b.serve(follow, func(o *Options) { o.Rack = r })
		b.wantServing(d, theRequest)
		b.pass(time.Minute)

		put := func(host, token string) { s.oxide.Store(&OxideAccess{Host: host, Token: token}) }

		// The old one is revoked before the new one is there.
		b.sim.RevokeToken(simrack.DefaultToken)
		b.ask(secondRequest)
		b.untilTrouble(d, "rack: the rack at http://rack.test/ refuses the token (OXIDE_TOKEN), renew it")
		b.remove(theRequest)
		b.pass(20 * time.Minute)

		if b.released(theRequest) {
			t.Error("401 was taken for gone")
		}

		put("http://rack.test", "oxide-token-unknown")
		b.until("the refused token to be told", func() bool {
			return strings.Contains(d.healthText(), "new token for the rack: what is in /secrets/oxide.token is not used, the one before stays: the rack at http://rack.test/: ")
		})

		put("http://other.test", simrack.DefaultToken)
		b.until("the other silo to be told", func() bool { return strings.Contains(d.healthText(), "it is of another silo") })

		b.sim.SetToken(simrack.Token{Value: "oxide-token-new", User: "provider"})
		put("http://rack.test", "oxide-token-new")
		b.until("the new token to be taken", func() bool { return b.logs.FilterMessage("took a new token for the rack").Len() == 1 })
		b.untilReleased(theRequest)
		b.untilStage(secondRequest, stageProvisioned)
		b.until("the rack to be well", func() bool { return !strings.Contains(d.healthText(), "for the rack") && d.board.Ready() })
	})
}

// byHost dials the listener of an address.
func (b *bench) byHost(names map[string]string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		return b.net.dialer(names[address])(ctx, address)
	}
}

// Rule: what expires is told thirty and seven days ahead, in the log and in health,
// without the daemon being any less ready.
func TestExpiryIsToldAMonthAndAWeekAhead(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		s, follow := b.follow()
		b.key = b.mint(credentials.Late + 90*time.Minute)
		s.key.Store(&b.key)
		b.sim.SetToken(simrack.Token{Value: simrack.DefaultToken, Expires: time.Now().Add(credentials.Early + 90*time.Minute)})

		d := b.serve(follow, func(o *Options) { o.OmniKey = b.key })
		b.untilReady(d)

		if got := d.healthText(); !strings.Contains(got, "key for Omni: the service account key for Omni expires in 7 days, on ") || strings.Contains(got, "for the rack") {
			t.Errorf("health says %q", got)
		}

		b.pass(2*time.Hour + time.Minute)

		if got := d.healthText(); !strings.Contains(got, "token for the rack: the token for the rack expires in 29 days, on ") ||
			!strings.Contains(got, "key for Omni expires in 6 days") || !d.board.Ready() {
			t.Errorf("health says %q, ready %v", got, d.board.Ready())
		}

		if n := b.logs.FilterMessageSnippet("needs a look: the service account key for Omni expires").Len(); n != 2 {
			t.Errorf("the key is told %d times", n)
		}

		if n := b.logs.FilterMessageSnippet("needs a look: the token for the rack expires").Len(); n != 1 {
			t.Errorf("the token is told %d times", n)
		}

		fresh := b.mint(90 * 24 * time.Hour)
		s.key.Store(&fresh)
		b.until("the key to be well", func() bool { return !strings.Contains(d.healthText(), "key for Omni") })
	})
}

func TestOneOfSeveralTokensIsOnlyLikelyTheDaemons(t *testing.T) {
	t.Parallel()

	soon := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

	for _, c := range []struct {
		all  []time.Time
		what string
		want time.Time
	}{
		{nil, "", time.Time{}},
		{[]time.Time{{}}, "", time.Time{}},
		{[]time.Time{soon}, "the token for the rack", soon},
		{[]time.Time{{}, soon.Add(1), soon}, "one of the 3 tokens of the daemon's user at the rack, perhaps the daemon's,", soon},
	} {
		if what, at := whichToken(c.all); what != c.what || !at.Equal(c.want) {
			t.Errorf("%v: %q, %s", c.all, what, at)
		}
	}
}

// Rule: whatever becomes of the key while Run goes on is noticed within a renewal of
// the lease, told apart, and puts no finalizer on anything from then on.
func TestKeyTroubleIsNoticedWhileRunGoesOn(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		happens func(b *bench)
		want    string
	}{
		"the key is revoked": {
			func(b *bench) { b.ok(b.omni.RevokeKeys(b.t.Context(), "infra-provider:"+testID)) }, "refuses the service account key",
		},
		"the provider is deleted": {
			func(b *bench) {
				b.ok(b.admin.TeardownAndDestroy(b.t.Context(), infra.NewProvider(testID).Metadata()))
			}, "refuses the service account key (OMNI_SERVICE_ACCOUNT_KEY): renewed, revoked or expired, or the provider was deleted",
		},
		"the key is an administrator's": {
			func(b *bench) { b.changeKeys("Admin", "infra-provider:"+testID) }, "is a user's or an administrator's, not that of the provider",
		},
		"the key is another provider's": {
			func(b *bench) { b.changeKeys("InfraProvider", "infra-provider:another") }, "is that of another provider",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				b.ok(b.admin.Create(t.Context(), infra.NewProvider("another")))

				d := b.serve(leased)
				b.wantServing(d, theRequest)
				tc.happens(b)

				at := time.Now()

				b.untilTrouble(d, tc.want)

				if took := time.Since(at); took > lease.DefaultRenew+time.Second {
					t.Errorf("noticed after %s", took)
				}

				b.ask(secondRequest)
				b.pass(20 * time.Minute)
				b.wantNoFinalizer(secondRequest)

				if said := b.notReady(); len(said) != 1 {
					t.Errorf("told in %q", said)
				}
			})
		})
	}
}

// changeKeys has Omni take all of the provider's keys for those of somebody else.
func (b *bench) changeKeys(role, name string) {
	b.t.Helper()

	own := access.ParseServiceAccountFromName("infra-provider:" + testID).FullID()

	all, err := safe.StateListAll[*auth.PublicKey](b.t.Context(), b.admin)
	b.ok(err)

	for key := range all.All() {
		if key.TypedSpec().Value.GetIdentity().GetEmail() != own {
			continue
		}

		_, err := safe.StateUpdateWithConflicts(b.t.Context(), b.admin, key.Metadata(), func(k *auth.PublicKey) error {
			k.TypedSpec().Value.Role = role
			k.TypedSpec().Value.Identity.Email = access.ParseServiceAccountFromName(name).FullID()

			return nil
		})
		b.ok(err)
	}
}
