package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Invariant: a restart of Omni at any time is harmless. Down at the start, it is
// awaited with tries of at most a minute, one line in the log, and no end.
func TestOmniThatIsDownAtTheStartIsAwaited(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.omni.Stop()

		d := b.serve()
		b.untilTrouble(d, "omni: Omni at grpc://127.0.0.1:1 can not be reached: ")
		b.pass(time.Hour)

		if said := b.notReady(); len(said) != 1 {
			t.Errorf("an hour is told in %q", said)
		}

		b.ok(b.omni.Start(t.Context()))

		back := time.Now()
		b.untilReady(d)

		if took := time.Since(back); took > 61*time.Second {
			t.Errorf("ready %s after Omni was back", took)
		}

		b.wantServing(d, theRequest)

		if err := d.stop(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

// The same while it serves: the machines and the image manager stay, as do
// requests that wait.
func TestOmniThatGoesAwayForHoursIsAwaited(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve()
		b.wantServing(d, theRequest)

		work := d.work
		b.pass(20 * time.Minute)
		b.omni.Stop()
		b.untilTrouble(d, "can not be reached")
		b.pass(2 * time.Hour)
		b.ok(b.omni.Start(t.Context()))
		b.wantServing(d, "talos-workers-bcdefg")

		if d.work != work {
			t.Error("the daemon began anew")
		}

		if said := b.notReady(); len(said) != 1 {
			t.Errorf("told in %q", said)
		}
	})
}

// Omni refuses a key that was revoked, at the start or at any time: no stream
// ends by it, so it is noticed by asking. The daemon lives on, and asks slowly.
func TestARefusedKeyIsToldAndOutlived(t *testing.T) {
	t.Parallel()

	const want = "omni: Omni at grpc://127.0.0.1:1 refuses the service account key (OMNI_SERVICE_ACCOUNT_KEY): " +
		"renewed, revoked or expired, or the provider was deleted: invalid signature"

	for name, serving := range map[string]bool{"at the start": false, "while serving": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				var d *served

				if serving {
					d = b.serve()
					b.wantServing(d, theRequest)
				}

				b.ok(b.omni.RevokeKeys(t.Context(), "infra-provider:"+testID))

				if !serving {
					d = b.serve()
				}

				b.untilTrouble(d, want)

				if got := d.board.Err().Error(); got != want {
					t.Errorf("the board says %q", got)
				}

				before := len(b.omni.Calls())
				b.pass(20 * time.Minute)

				if n := len(b.omni.Calls()) - before; n > 300 {
					t.Errorf("%d calls in twenty minutes", n)
				}

				if said := b.notReady(); len(said) != 1 {
					t.Errorf("twenty minutes are told in %q", said)
				}

				if err := d.stop(); err != nil {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// A key whose provider Omni does not know, and an Omni whose certificate is not
// trusted, are told with what to do, and mended without a restart.
func TestAnUnknownProviderIsToldAndHeals(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.ok(b.admin.TeardownAndDestroy(t.Context(), infra.NewProvider(testID).Metadata()))

		key, err := b.omni.MintUserKey(t.Context(), "infra-provider:"+testID, "InfraProvider", 24*time.Hour)
		b.ok(err)

		d := b.serve(func(o *Options) { o.OmniKey = key })
		b.untilTrouble(d, "omni: Omni at grpc://127.0.0.1:1 knows no such provider, create it with `omnictl infraprovider create`: "+
			`infra provider with name "oxide-test" is not registered in the system`)

		b.ok(b.admin.Create(t.Context(), infra.NewProvider(testID)))
		b.untilReady(d)
	})
}

func TestACertificateThatIsNotTrustedIsToldAndHeals(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.omni.Stop()
		b.net.cert = certificate(t)
		b.ok(b.omni.Start(t.Context()))

		d := b.serve(func(o *Options) { o.Omni.Endpoint = "https://127.0.0.1:1" })
		b.untilTrouble(d, "omni: the certificate of Omni at https://127.0.0.1:1 is not trusted: ")

		if got := d.board.Err().Error(); !strings.Contains(got, "its certificate is signed by an unknown authority: give its CA with OMNI_CA_FILE") {
			t.Errorf("the board says %q", got)
		}

		if err := d.stop(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

// certificate is one that nobody trusts.
func certificate(t *testing.T) *tls.Certificate {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}

	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// The SDK's Run ends when a stream can not be resumed: after a quarter of an
// hour by any cut, before that by a stale bookmark. It is run again on the same
// machines and images, and the user sees nothing of it.
func TestABrokenStreamIsMadeAgain(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		breaks func(b *bench)
		// ended is how many links end by it.
		ended int
	}{
		"old stream": {func(b *bench) {
			b.pass(16 * time.Minute)
			b.omni.CutStreams()
		}, 1},
		"stale bookmark": {func(b *bench) {
			b.omni.StaleBookmarks()
			b.omni.CutStreams()
		}, 1},
		"broken network": {func(b *bench) {
			b.pass(16 * time.Minute)
			b.omni.DropConnections()
		}, 1},
		"young stream": {func(b *bench) { b.omni.CutStreams() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				d := b.serve()
				b.wantServing(d, theRequest)

				work, lists := d.work, b.sim.CallCount("image_list")

				tc.breaks(b)
				b.pass(10 * time.Second)

				if n := b.logs.FilterMessage("link to Omni ended").Len(); n != tc.ended {
					t.Errorf("%d links ended", n)
				}

				b.wantServing(d, "talos-workers-bcdefg")
				b.remove(theRequest)
				b.untilReleased(theRequest)

				if d.work != work {
					t.Error("the daemon began anew")
				}

				// The image was found before, and is still known.
				if n := b.sim.CallCount("image_list"); n != lists {
					t.Errorf("%d more lists of images", n-lists)
				}

				if n := len(b.logs.FilterMessage("linked to Omni").All()); n != 1 {
					t.Errorf("serving was begun %d times", n)
				}

				b.wantLeft(1, 1)
			})
		})
	}
}

// Broken links leave nothing behind: no connection, no goroutine (the bubble
// would not end), and no longer pause.
func TestManyBrokenLinksLeaveNothing(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve()
		b.untilReady(d)

		streams := b.omni.OpenStreams()

		for range 4 {
			b.pass(16 * time.Minute)
			b.omni.CutStreams()
			b.pass(5 * time.Second)
		}

		b.wantServing(d, theRequest)

		if n := b.omni.OpenStreams(); n > streams {
			t.Errorf("%d streams are open, %d were at first", n, streams)
		}
	})
}

// All marks in the rack are of one owner. A daemon that finds another one in
// Omni would take its own machines for a stranger's: it ends instead.
func TestAnotherOwnerEndsTheDaemon(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve()
		b.wantServing(d, theRequest)

		stored, err := safe.StateGet[*Owner](t.Context(), b.admin, metadata(ownerName, ownerID))
		b.ok(err)

		other := naming.NewOwner()
		stored.TypedSpec().Value.Id = other
		b.ok(b.admin.Update(t.Context(), stored))

		b.omni.StaleBookmarks()
		b.omni.CutStreams()
		<-d.done

		if !errors.Is(d.err, errOwnerChanged) || !strings.Contains(d.err.Error(), other) || !strings.Contains(d.err.Error(), b.owner) {
			t.Errorf("ended with %v", d.err)
		}
	})
}

// An end in the middle of the work is no failure, and the next process goes on.
func TestAnEndInTheMiddleOfTheWorkIsClean(t *testing.T) {
	t.Parallel()

	for _, operation := range []string{"project_view", "image_list", "instance_create", "instance_start", "instance_disk_list"} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				at := make(chan struct{}, 1000)
				b.hook(&b.before, func(op string) {
					if op == operation {
						at <- struct{}{}
					}
				})

				d := b.serve()
				b.untilReady(d)
				// With one disk alone nothing asks for the list of them.
				b.ask(theRequest, class("project: demo\ndisks: [{size: 10}]\n"))
				<-at

				if err := d.stop(); err != nil {
					t.Errorf("ended with %v", err)
				}

				if got := b.status(theRequest).GetStage(); got == stageFailed || got == stageProvisioned {
					t.Errorf("the request is %s", got)
				}

				b.start()
				b.untilStage(theRequest, stageProvisioned)
				b.wantLeft(1, 2)
			})
		})
	}
}
