package provider

import (
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/oxidecomputer/oxide.go/oxide"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
)

const publishedInstance = "0a1b2c3d-0000-4000-8000-000000000001"

// publishedForms are the three forms that its releases stored.
func publishedForms() map[string][]byte {
	field := func(b []byte, number protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), value)
	}
	old := field(field(field(nil, 1, publishedInstance), 2, publishedInstance), 4, "talos-1-10-0-37656798-nocloud")
	disk := field(field(nil, 1, "0a1b2c3d-0000-4000-8000-000000000002"), 2, theRequest)

	return map[string][]byte{
		"old": old, "empty": nil,
		"new": field(field(field(nil, 1, "demo"), 2, publishedInstance), 3, string(disk)),
	}
}

// storePublished stores the state that the published provider would.
func (b *bench) storePublished(id string, stored []byte) {
	b.t.Helper()

	var spec specs.PublishedMachineSpec
	b.ok(proto.Unmarshal(stored, &spec))
	b.ok(b.st.Create(b.t.Context(), typed.NewResource[PublishedSpec, publishedExtension](
		metadata(publishedName, id), protobuf.NewResourceSpec(&spec))))
}

// machineOfPublished makes an instance as the published provider leaves it.
func (b *bench) machineOfPublished(name string) {
	b.t.Helper()

	start := true
	_, err := b.rack.CreateInstance(b.t.Context(), b.project.Id, oxide.InstanceCreate{
		Name: oxide.Name(name), Hostname: oxide.Hostname(name), Ncpus: 2, Memory: 4 * gib, Start: &start,
		Description:       "Managed by the Oxide Omni infrastructure provider (" + testID + ").",
		NetworkInterfaces: oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentNone{}},
	})
	b.ok(err)
}

const heldText = "the published Oxide provider has made"

// Invariant: swapping the binary for the published provider's leaks nothing and
// makes nothing twice. A request that has a machine of it, in whatever form that
// is stored, gets no second one, and its teardown does not end, and says why,
// until the machine is taken over.
func TestAMachineOfThePublishedProviderHoldsItsRequest(t *testing.T) {
	t.Parallel()

	for form, stored := range publishedForms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				b.machineOfPublished(theRequest)
				b.storePublished(theRequest, stored)
				b.ask(theRequest)
				b.start()
				b.untilStage(theRequest, stageFailed)

				if got := b.status(theRequest).GetError(); !strings.Contains(got, heldText) || form != "empty" && !strings.Contains(got, publishedInstance) {
					t.Errorf("Omni says %q", got)
				}

				b.remove(theRequest)
				b.pass(time.Hour)

				if b.released(theRequest) {
					t.Fatal("the request was let go of, and its machine leaks")
				}

				if got := b.logText(); strings.Count(got, "removing the machine: "+heldText) != 1 {
					t.Errorf("logged\n%s", got)
				}

				b.wantLeft(1, 0)

				// As a take-over ends.
				b.ok(b.st.Destroy(b.t.Context(), metadata(publishedName, theRequest)))
				b.untilReleased(theRequest)
			})
		})
	}
}

// The same request was provisioned by the published provider: the SDK runs no
// step of ours for it, gives it an empty state of ours, and calls our teardown.
func TestAProvisionedMachineOfThePublishedProviderIsNotLetGoOf(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		running := b.start()

		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)
		b.ok(running.stop())

		b.store(theRequest, "ensure_provider_id", &specs.InstanceSpec{})
		b.storePublished(theRequest, publishedForms()["new"])

		b.start()
		b.remove(theRequest)
		b.pass(time.Hour)

		if b.released(theRequest) {
			t.Error("the request was let go of, and its machine leaks")
		}

		b.wantLeft(1, 1)
	})
}

// After a rollback to the published provider and back, a plan of ours may stand
// beside a machine of theirs.
func TestAPlanBesideAMachineOfThePublishedProviderMakesNoSecondOne(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, b *bench) {
		planned := b.plannedFor(theRequest)

		b.ask(theRequest)
		b.store(theRequest, stepImage, planned)
		b.storePublished(theRequest, publishedForms()["new"])
		b.start()
		b.untilStage(theRequest, stageFailed)
		b.wantLeft(0, 0)
	})
}

func TestMachinesOfThePublishedProviderAreCountedAndInHealth(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		for _, id := range []string{"a", "b", "c", "d"} {
			b.storePublished("talos-workers-"+id, publishedForms()["new"])
		}

		board := health.NewBoard(b.logger)
		look := newStateLook(b.logger, board)

		states, theirs, err := listStates(t.Context(), b.st)
		b.ok(err)
		look.look(b.owner, states, theirs)

		if n := look.Counts()[OddPublished]; n != 4 {
			t.Errorf("counted %d", n)
		}

		const want = "made by the published provider, not taken over: talos-workers-a, talos-workers-b, talos-workers-c and 1 more"
		if err := board.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("health says %v", err)
		}
	})
}
