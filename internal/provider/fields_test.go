package provider

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// guests keeps what each guest found on its config disk.
type guests struct {
	mu     sync.Mutex
	cidata []string
}

// Boot implements simrack.Booter.
func (g *guests) Boot(ctx context.Context, hw guest.Hardware, _ *zap.Logger) guest.Exit {
	g.mu.Lock()
	g.cidata = append(g.cidata, string(hw.CIData))
	g.mu.Unlock()

	<-ctx.Done()

	return guest.ExitStopped
}

func (g *guests) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()

	return slices.Clone(g.cidata)
}

// sdk is a client of the rack for what the daemon itself never asks.
func (b *bench) sdk() *oxide.Client {
	b.t.Helper()

	client, err := oxide.NewClient(oxide.WithHost("http://rack.test"), oxide.WithToken(simrack.DefaultToken),
		oxide.WithHTTPClient(&http.Client{Transport: b.transport}))
	b.ok(err)

	return client
}

// provisioned asks for a machine of a class and waits until it is there.
func (b *bench) provisioned(id, text string) *oxide.Instance {
	b.t.Helper()

	b.ask(id, class(text))
	b.untilStage(id, stageProvisioned)

	made, err := b.rack.ViewInstance(b.t.Context(), b.stored(id).TypedSpec().Value.GetInstanceId())
	b.ok(err)

	return made
}

// stacks are the private addresses of an instance, in JSON.
func (b *bench) stacks(instance string) string {
	b.t.Helper()

	all, err := b.sdk().InstanceNetworkInterfaceListAllPages(b.t.Context(), oxide.InstanceNetworkInterfaceListParams{
		Instance: oxide.NameOrId(instance), SortBy: oxide.NameOrIdSortModeNameAscending,
	})
	b.ok(err)

	var text string

	for i := range all {
		stack, err := json.Marshal(all[i].IpStack)
		b.ok(err)

		text += string(stack) + "\n"
	}

	return text
}

// aCertificate is that of a CA, in PEM.
func aCertificate(t *testing.T) string {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// Invariant: what a class asks for is seen in the rack, in the guest and in the
// node's config.
func TestWhatAClassAsksForIsThere(t *testing.T) {
	t.Parallel()

	found := &guests{}

	bubble(t, func(t *testing.T, b *bench) {
		authority := aCertificate(t)

		b.start()
		made := b.provisioned(theRequest, `project: demo
description: rack of the north
disks: [{size: 3, name: etcd, type: local}, {size: 2, name: data}]
network_interfaces: [{ip_config: dual_stack, transit_ips: [10.0.0.0/8, "fd12::/32"]}]
hostname: pinned
topology: {zone: north}
node_labels: [example.org/fast=yes]
extensions: [siderolabs/iscsi-tools]
kernel_args: [talos.dashboard.disabled=1]
trusted_cas: |
  `+strings.ReplaceAll(authority, "\n", "\n  "))

		if want := "Talos machine " + theRequest + " of Omni. rack of the north ["; !strings.HasPrefix(made.Description, want) {
			t.Errorf("the instance is described as %q", made.Description)
		}

		disks, err := b.rack.SeekInstanceDisks(t.Context(), made.Id, nil)
		b.ok(err)

		types := map[string]oxide.DiskType{}
		for _, d := range disks {
			types[string(d.Name)] = d.DiskType
		}

		if types[naming.Disk("etcd", theRequest)] != oxide.DiskTypeLocal || types[naming.Disk("data", theRequest)] != oxide.DiskTypeDistributed || len(disks) != 3 {
			t.Errorf("disks are %v", types)
		}

		if stack := b.stacks(made.Id); !strings.Contains(stack, `"transit_ips":["10.0.0.0/8"]`) || !strings.Contains(stack, `"transit_ips":["fd12::/32"]`) {
			t.Errorf("the interface has %s", stack)
		}

		asked := b.schematics.registered[0].Customization
		if !slices.Equal(asked.SystemExtensions.OfficialExtensions, []string{"siderolabs/iscsi-tools"}) ||
			!slices.Equal(asked.ExtraKernelArgs, []string{"talos.dashboard.disabled=1"}) {
			t.Errorf("the schematic is %+v", asked)
		}

		if text := found.seen()[0]; !strings.Contains(text, "kind: TrustedRootsConfig") || !strings.Contains(text, strings.Split(authority, "\n")[1]) {
			t.Error("the guest is not told of the CA")
		}

		var names []string

		for _, p := range b.patches(theRequest) {
			data, err := p.TypedSpec().Value.GetUncompressedData()
			b.ok(err)
			names = append(names, strings.TrimPrefix(p.Metadata().ID(), "000-"+testID+"."+theRequest+"-")+" "+fmt.Sprint(len(data.Data()) > 0))
		}

		slices.Sort(names)

		if !slices.Equal(names, []string{"hostname true", "node-labels true", "provider-id true"}) {
			t.Errorf("patches %q", names)
		}

		b.remove(theRequest)
		b.untilReleased(theRequest)
		b.wantLeft(0, 0)

		if left := b.patches(theRequest); len(left) != 0 {
			t.Errorf("%d patches are left", len(left))
		}
	}, func(s *setup) { s.rack.Booter = found })
}

// Invariant: a plan that an older version can carry out says so, and one that it
// can not is refused by it.
func TestThePlansFormatIsTheOldestThatWillDo(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.start()

		for id, tc := range map[string]struct {
			class  string
			format uint32
		}{
			"plain":  {"project: demo\ndisks: [{size: 1, name: a}]\n", 1},
			"labels": {"project: demo\nnode_labels: [a=b]\n", 2},
			"said":   {"project: demo\ndescription: a\n", 2},
			"args":   {"project: demo\nkernel_args: [a]\n", 2},
			"nets":   {"project: demo\nnetwork_interfaces: [{transit_ips: [10.0.0.0/8]}]\n", 2},
			"scope":  {"project: demo\nimage_scope: project\n", 2},
		} {
			b.provisioned(id, tc.class)

			if got := b.stored(id).TypedSpec().Value.GetPlan().GetFormat(); got != tc.format {
				t.Errorf("%s: format %d", id, got)
			}
		}
	})
}
