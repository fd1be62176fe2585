package provider

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	omnires "github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

const theRequest = "talos-workers-abcdef"

// changes says whether a call to the rack changes something there.
func changes(operation string) bool {
	return !strings.HasSuffix(operation, "_view") && !strings.HasSuffix(operation, "_list") && operation != "ping"
}

// Plan first: what a step is about to do stands in Omni before the rack is
// asked for it, and what came of it before the next thing is.
func TestWhatComesNextIsStoredBeforeItIsDone(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		var (
			mu   sync.Mutex
			made []string
		)

		b.hook(&b.before, func(operation string) {
			if !changes(operation) {
				return
			}

			mu.Lock()
			defer mu.Unlock()

			made = append(made, operation)

			res := b.stored(theRequest)
			if res == nil || res.TypedSpec().Value.GetPlan().GetRequestId() != theRequest {
				t.Errorf("%s before the plan was stored", operation)

				return
			}

			b.checkStored(operation, res.TypedSpec().Value)
		})

		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)

		mu.Lock()
		defer mu.Unlock()

		if got := strings.Join(made, " "); got != "instance_create instance_start" {
			t.Errorf("the rack was asked for %q", got)
		}
	})
}

func (b *bench) checkStored(operation string, spec *specs.InstanceSpec) {
	b.t.Helper()

	switch operation {
	case "instance_create":
		if spec.GetCreate().GetCount() != 1 || time.Since(spec.GetCreate().GetAt().AsTime()) > 10*time.Second {
			b.t.Errorf("at the create call the stored attempt is %v", spec.GetCreate())
		}

		if spec.GetImage().GetId() != b.talosImage.Id {
			b.t.Errorf("at the create call the stored image is %v", spec.GetImage())
		}
	case "instance_start":
		if spec.GetInstanceId() == "" || len(spec.GetDisks()) != 1 || spec.GetPatchedInstanceId() != spec.GetInstanceId() {
			b.t.Errorf("at the start call the stored state is %v", spec)
		}

		b.checkPatch(theRequest, spec.GetInstanceId())
	}
}

// checkPatch demands the one config patch that gives a node its provider ID.
func (b *bench) checkPatch(requestID, instanceID string) {
	b.t.Helper()

	patches := b.patches(requestID)
	if len(patches) != 1 {
		b.t.Errorf("%d config patches", len(patches))

		return
	}

	md := patches[0].Metadata()
	if md.ID() != "000-"+testID+"."+requestID+"-provider-id" {
		b.t.Errorf("the patch is named %q", md.ID())
	}

	if of, _ := md.Labels().Get(omnires.LabelInfraProviderID); of != testID {
		b.t.Errorf("the patch is of provider %q", of)
	}

	data, err := patches[0].TypedSpec().Value.GetUncompressedData()
	if err != nil {
		b.t.Error(err)

		return
	}
	defer data.Free()

	if want := "machine:\n  kubelet:\n    extraConfig:\n      providerID: oxide://" + instanceID + "\n"; string(data.Data()) != want {
		b.t.Errorf("the patch is %q, want %q", data.Data(), want)
	}
}

// Invariant: provisioned means running. However long the rack takes, a request
// is not reported before its instance was seen to run.
func TestProvisionedMeansRunning(t *testing.T) {
	t.Parallel()

	slow := simrack.DefaultLatencies()
	slow.Start = 7 * time.Minute

	bubble(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		events := make(chan state.Event)
		b.ok(b.admin.WatchKind(ctx, infra.NewMachineRequestStatus("").Metadata(), events))

		reported := make(chan string, 1)

		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case e := <-events:
					st, ok := e.Resource.(*infra.MachineRequestStatus)
					if !ok || st.TypedSpec().Value.GetStage() != stageProvisioned {
						continue
					}

					// No fake time passes between the write and this look.
					i, _ := b.sim.Inspect(b.stored(theRequest).TypedSpec().Value.GetInstanceId())
					reported <- i.RunState

					return
				}
			}
		}()

		b.start()
		b.ask(theRequest)

		began := time.Now()
		b.until("the instance to start", func() bool {
			return strings.Contains(b.status(theRequest).GetStatus(), "the instance is starting")
		})
		b.untilStage(theRequest, stageProvisioned)

		if got := <-reported; got != string(oxide.InstanceStateRunning) {
			t.Errorf("reported while the instance was %s", got)
		}

		if took := time.Since(began); took < slow.Start || took > slow.Start+20*time.Second {
			t.Errorf("reported after %s, the rack took %s", took, slow.Start)
		}
	}, func(s *setup) { s.rack.Latencies = &slow })
}

// A step re-establishes what the earlier ones promised: an image that vanished
// before the instance was created is asked for again.
func TestAnImageThatVanishedIsMadeAgain(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		stale := b.talosImage
		b.images.answers(func(n int, _ image.Want) (image.Status, error) {
			if n == 1 {
				// Gone right after it was handed out.
				b.ok(b.rack.DeleteImage(t.Context(), stale.Id))

				return b.ready(stale), nil
			}

			if _, forgotten := b.images.seen(); len(forgotten) != 1 || forgotten[0] != stale.Id {
				t.Errorf("asked again, forgotten: %v", forgotten)
			}

			return b.ready(b.talosImage), nil
		})

		fresh := b.makeImage("talos-again", "")
		b.talosImage = fresh

		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)

		if asked, _ := b.images.seen(); len(asked) != 2 || asked[0] != asked[1] {
			t.Errorf("asked %+v", asked)
		}

		if got := b.stored(theRequest).TypedSpec().Value.GetImage().GetId(); got != fresh.Id {
			t.Errorf("the stored image is %s, want %s", got, fresh.Id)
		}

		b.wantLeft(1, 1)
	})
}

// An instance that is gone before it was started is proven gone; its disks are
// removed, and another is made, with a config patch of its own. Invariant: one
// request, at most one instance.
func TestAnInstanceThatVanishedBeforeItsStartIsMadeAgain(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		var first string

		b.hook(&b.before, func(operation string) {
			if operation != "instance_start" || first != "" {
				return
			}

			first = b.stored(theRequest).TypedSpec().Value.GetInstanceId()
			b.ok(b.rack.DeleteInstance(context.WithoutCancel(t.Context()), first))
		})

		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)

		spec := b.stored(theRequest).TypedSpec().Value
		if spec.GetIncarnation() != 1 || spec.GetInstanceId() == first || spec.GetRunningSince() == nil {
			t.Errorf("after instance %s vanished the state is %v", first, spec)
		}

		b.checkPatch(theRequest, spec.GetInstanceId())
		b.wantLeft(1, 1)

		if n := b.sim.CallCount("instance_create"); n != 2 {
			t.Errorf("%d instances were created", n)
		}
	})
}

// Invariant: gone is proved, never assumed. An answer 404 alone, while the
// project's list still shows the instance, changes nothing.
func TestAnInstanceThatIsStillListedIsNotGivenUp(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.fault(simrack.Fault{
			Operation: "instance_view", Skip: 3, Count: 1, Action: simrack.ActionError, Status: 404,
			Code: "ObjectNotFound", Message: "not found: instance",
		})
		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)

		if fired := b.sim.Faults()[0].Fired; fired != 1 {
			t.Fatalf("the fault fired %d times", fired)
		}

		if got := b.stored(theRequest).TypedSpec().Value.GetIncarnation(); got != 0 {
			t.Errorf("an instance that is there was given up: incarnation %d", got)
		}

		b.wantLeft(1, 1)
	})
}

// A schematic that the factory does not know is registered once more.
func TestAnUnknownSchematicIsRegisteredAgainOnce(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.images.answers(func(n int, _ image.Want) (image.Status, error) {
			switch n {
			case 1:
				return image.Status{SchematicUnknown: true, Reason: "the factory does not know the schematic", RetryIn: time.Second}, nil
			case 2:
				return image.Status{Reason: "uploading", RetryIn: time.Second}, nil
			default:
				return b.ready(b.talosImage), nil
			}
		})
		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)

		if n := b.schematics.count(); n != 2 {
			t.Errorf("the schematic was registered %d times", n)
		}
	})
}

// A stored plan is never carried out with another image than the one it names.
func TestASchematicThatGetsAnotherIDIsForAPersonToMend(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.images.answers(func(int, image.Want) (image.Status, error) {
			b.schematics.set("another", nil)

			return image.Status{SchematicUnknown: true, Reason: "unknown", RetryIn: time.Second}, nil
		})
		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageFailed)

		if got := b.status(theRequest).GetError(); got != "the image factory now gives the schematic another ID: delete this request, Omni makes a new one" {
			t.Errorf("the request says %q", got)
		}

		b.wantLeft(0, 0)
	})
}

// Invariant: one request, at most one instance, also when many come at once and
// the answers to create calls are lost.
func TestManyRequestsAtOnceGetOneInstanceEach(t *testing.T) {
	t.Parallel()

	const n = 8

	bubble(t, func(t *testing.T, b *bench) {
		b.fault(simrack.Fault{Operation: "instance_create", Probability: 0.4, Seed: 1, Action: simrack.ActionLoseAnswer, Count: 4})
		b.start()

		for i := range n {
			b.ask(fmt.Sprintf("%s%d", theRequest, i))
		}

		ids := map[string]bool{}

		for i := range n {
			id := fmt.Sprintf("%s%d", theRequest, i)
			b.untilStage(id, stageProvisioned)

			ids[b.stored(id).TypedSpec().Value.GetInstanceId()] = true
		}

		b.wantLeft(n, n)

		if len(ids) != n {
			t.Errorf("%d requests share %d instances", n, len(ids))
		}

		all, err := b.rack.ListInstances(t.Context(), b.project.Id)
		b.ok(err)

		for _, i := range all {
			if m, ok := naming.Parse(i.Description); !ok || m.Owner != b.owner || m.Provider != testID || !ids[i.Id] {
				t.Errorf("instance %s is described as %q", i.Name, i.Description)
			}
		}
	})
}
