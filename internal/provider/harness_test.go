package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/client"
	"github.com/siderolabs/omni/client/pkg/client/omni"
	sdk "github.com/siderolabs/omni/client/pkg/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	omnires "github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simomni "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

const (
	gib = 1 << 30
	// settle is for how long a teardown watches for the outcome of a lost create.
	settle = 2 * time.Minute
	// patience is how long, in fake time, a test waits for what must come.
	patience = time.Hour

	stageProvisioned = omnispecs.MachineRequestStatusSpec_PROVISIONED
	stageFailed      = omnispecs.MachineRequestStatusSpec_FAILED
)

// bench is a simulated Omni and a simulated rack, and our steps between them,
// called by the real SDK through the real clients. Images and schematics are
// given out by fakes. All of it lives in a bubble of fake time.
type bench struct {
	t    *testing.T
	net  *network
	omni *simomni.Server
	sim  *simrack.Server
	rack *rack.Client
	// transport finds the rack.
	transport *http.Transport
	// factory finds the factory at which Omni registers schematics.
	factory *http.Transport
	// seeded says that the image of requests is in the rack.
	seeded bool
	// download answers for images at the factory; nil for none.
	download atomic.Pointer[http.HandlerFunc]

	project    *oxide.Project
	talosImage *oxide.Image
	images     *fakeImages
	schematics *fakeSchematics
	work       *Provisioner
	owner, key string

	// st is Omni as the provider may see it, admin is all of it.
	st, admin state.State

	logger *zap.Logger
	logs   *observer.ObservedLogs

	// callsBefore is the number of calls to the rack that the bench itself made.
	callsBefore int

	// before and after are called around each call to the rack, with its number
	// and its operation.
	before, after atomic.Pointer[func(seq int, operation string)]
}

// setup is what a test may change about its bench.
type setup struct {
	rack simrack.Config
	omni simomni.Config
}

// bubble runs a test on a bench in fake time.
func bubble(t *testing.T, test func(t *testing.T, b *bench), change ...func(*setup)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		var s setup
		for _, c := range change {
			c(&s)
		}

		test(t, newBench(t, s))
	})
}

func newBench(t *testing.T, s setup) *bench {
	t.Helper()

	b := &bench{t: t, net: newNetwork(), images: &fakeImages{}, schematics: &fakeSchematics{}}

	core, logs := observer.New(zapcore.DebugLevel)
	b.logger, b.logs = zap.New(core), logs

	b.serveFactory()
	b.startOmni(s.omni)
	b.startRack(s.rack)

	owner, err := EnsureOwner(t.Context(), b.st, "")
	b.ok(err)

	b.owner = owner
	b.talosImage = b.makeImage("talos", "")
	b.images.answers(func(int, image.Want) (image.Status, error) { return b.ready(b.talosImage), nil })
	b.work = b.provisioner()
	b.callsBefore = len(b.sim.Calls())

	return b
}

func (b *bench) startOmni(cfg simomni.Config) {
	b.t.Helper()

	cfg.Listen, cfg.MachineAPIURL, cfg.LinkEndpoint = b.net.listen, "grpc://127.0.0.1:2", "127.0.0.1:3"
	if cfg.Endpoint == "" {
		cfg.Endpoint = "grpc://127.0.0.1:1"
	}

	cfg.FactoryURL, cfg.FactoryDial = "http://"+factoryHost, b.factory.DialContext

	server, err := simomni.New(cfg)
	b.ok(err)
	b.ok(server.Start(b.t.Context()))
	b.t.Cleanup(func() { b.ok(server.Close()) })

	b.omni, b.admin = server, server.AdminState()
	b.key, err = server.MintProviderKey(b.t.Context(), testID, 30*24*time.Hour)
	b.ok(err)

	b.st = b.connect(b.key)
}

// omniDialer has an Omni client find the simulated Omni.
func (b *bench) omniDialer() client.Option {
	return client.WithGrpcOpts(grpc.WithContextDialer(b.net.dialer(simomni.ListenerGRPC)))
}

// connect is Omni's state as the owner of a key sees it.
func (b *bench) connect(key string) state.State {
	b.t.Helper()

	c, err := client.New(b.omni.Endpoint(), client.WithServiceAccount(key),
		client.WithOmniClientOptions(omni.WithProviderID(testID)), b.omniDialer())
	b.ok(err)
	b.t.Cleanup(func() { b.ok(c.Close()) })

	return c.Omni().State()
}

func (b *bench) startRack(cfg simrack.Config) {
	b.t.Helper()

	call := func(f *atomic.Pointer[func(int, string)]) func(int, string) {
		return func(seq int, operation string) {
			if f := f.Load(); f != nil {
				(*f)(seq, operation)
			}
		}
	}
	cfg.BeforeCall, cfg.AfterCall = call(&b.before), call(&b.after)

	sim, err := simrack.New(cfg)
	b.ok(err)

	b.transport = b.net.serve(b.t, "rack", sim)
	b.sim = sim
	b.t.Cleanup(sim.Close)

	b.rack, err = rack.New(rack.Config{Host: "http://rack.test", Token: simrack.DefaultToken, UserAgent: version.UserAgent(), Transport: b.transport})
	b.ok(err)
	b.t.Cleanup(b.rack.Close)

	b.project, err = b.rack.ViewProject(b.t.Context(), "demo")
	b.ok(err)
}

// provisioner is our part as a new process would have it.
func (b *bench) provisioner() *Provisioner {
	return &Provisioner{
		State: func() state.State { return b.st }, Silo: b.rack, Images: b.images, Owner: b.owner,
		Machines: instance.New(instance.Config{
			Rack: b.rack, Owner: b.owner, Provider: testID, Run: "0123abcd", MaxCreates: 4, Settle: settle,
		}),
		Factory:   func(context.Context) (string, error) { return "https://factory.test", nil },
		teardowns: newTeardowns(health.NewBoard(b.logger)),
	}
}

func (b *bench) ok(err error) {
	b.t.Helper()

	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) ready(i *oxide.Image) image.Status {
	return image.Status{Ready: true, ImageID: i.Id, SizeBytes: uint64(i.Size)}
}

// makeImage uploads an image to the project.
func (b *bench) makeImage(name, description string) *oxide.Image {
	b.t.Helper()

	ctx := b.t.Context()

	disk, err := b.rack.CreateDisk(ctx, b.project.Id, oxide.DiskCreate{
		Name: "source", Size: gib, DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: oxide.DiskSourceImportingBlocks{BlockSize: 512}},
		}},
	})
	b.ok(err)
	b.ok(b.rack.StartBulkWrite(ctx, disk.Id))
	b.ok(b.rack.BulkWrite(ctx, disk.Id, 0, bytes.Repeat([]byte{7}, 512)))
	b.ok(b.rack.StopBulkWrite(ctx, disk.Id))
	b.ok(b.rack.FinalizeImport(ctx, disk.Id, "source"))

	snapshot, err := b.rack.ViewSnapshotByName(ctx, b.project.Id, "source")
	b.ok(err)

	made, err := b.rack.CreateImage(ctx, b.project.Id, oxide.ImageCreate{
		Name: oxide.Name(name), Description: description, Os: "Talos Linux", Version: "1.13.5",
		Source: oxide.ImageSource{Value: oxide.ImageSourceSnapshot{Id: snapshot.Id}},
	})
	b.ok(err)
	b.ok(b.rack.DeleteSnapshot(ctx, snapshot.Id))
	b.ok(b.rack.DeleteDisk(ctx, disk.Id))

	return made
}

// running is a Run of the SDK.
type running struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// stop ends Run and waits for it.
func (r *running) stop() error {
	r.cancel()
	<-r.done

	return r.err
}

// start has the SDK run our steps until the test ends.
func (b *bench) start() *running {
	b.t.Helper()

	p, err := sdk.NewProvider(testID, b.work, sdk.ProviderConfig{Name: "Oxide", Description: "test", Schema: machineclass.Schema()})
	b.ok(err)

	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	r := &running{cancel: cancel, done: make(chan struct{})}

	go func() {
		defer close(r.done)

		r.err = p.Run(ctx, Quiet(b.logger), sdk.WithState(state.WrapCore(newStatusGate(b.st))),
			sdk.WithImageFactoryClient(b.schematics), sdk.WithConcurrency(4), sdk.WithEncodeRequestIDsIntoTokens())
	}()

	b.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			b.t.Errorf("Run ended with: %v", err)
		}
	})

	return r
}

// ask makes a machine request as Omni does.
func (b *bench) ask(id string, change ...func(*omnispecs.MachineRequestSpec)) *infra.MachineRequest {
	b.t.Helper()

	r := infra.NewMachineRequest(id)
	r.Metadata().Labels().Set(omnires.LabelInfraProviderID, testID)
	r.TypedSpec().Value.TalosVersion = "1.13.5"
	r.TypedSpec().Value.ProviderData = "project: demo\n"

	for _, c := range change {
		c(r.TypedSpec().Value)
	}

	b.ok(b.admin.Create(b.t.Context(), r))

	return r
}

// class changes a request's class.
func class(text string) func(*omnispecs.MachineRequestSpec) {
	return func(s *omnispecs.MachineRequestSpec) { s.ProviderData = text }
}

// status is what Omni shows of a request, empty without one.
func (b *bench) status(id string) *omnispecs.MachineRequestStatusSpec {
	b.t.Helper()

	st, err := safe.StateGetByID[*infra.MachineRequestStatus](b.t.Context(), b.admin, id)
	if state.IsNotFoundError(err) {
		return &omnispecs.MachineRequestStatusSpec{}
	}

	b.ok(err)

	return st.TypedSpec().Value
}

// stored is the state of a request as Omni holds it, nil without one.
func (b *bench) stored(id string) *Instance {
	res, err := safe.StateGet[*Instance](context.WithoutCancel(b.t.Context()), b.admin, metadata(instanceName, id))
	if state.IsNotFoundError(err) {
		return nil
	}

	if err != nil {
		b.t.Errorf("reading the state of %s: %v", id, err)
	}

	return res
}

// store writes the state of a request by hand, as the SDK would own it.
func (b *bench) store(id, step string, spec *InstanceState) {
	b.t.Helper()

	if b.stored(id) == nil {
		res := &Instance{}
		*res.Metadata() = metadata(instanceName, id)

		spec, ok := res.Spec().(json.Unmarshaler)
		if !ok {
			b.t.Fatal("the SDK could not make the spec")
		}

		b.ok(spec.UnmarshalJSON([]byte("{}")))
		b.ok(b.st.Create(b.t.Context(), res, state.WithCreateOwner(testID+sdkController)))
	}

	_, err := safe.StateUpdateWithConflicts(b.t.Context(), b.st, metadata(instanceName, id), func(r *Instance) error {
		r.Metadata().Annotations().Set(stepAnnotation, step)
		r.TypedSpec().Value = proto.CloneOf(spec)

		return nil
	}, state.WithUpdateOwner(testID+sdkController))
	b.ok(err)
}

// patches are the config patches of a request.
func (b *bench) patches(id string) []*infra.ConfigPatchRequest {
	all, err := safe.StateListAll[*infra.ConfigPatchRequest](context.WithoutCancel(b.t.Context()), b.admin)
	if err != nil {
		b.t.Errorf("listing patches: %v", err)
	}

	var out []*infra.ConfigPatchRequest

	for p := range all.All() {
		if of, _ := p.Metadata().Labels().Get(omnires.LabelMachineRequest); of == id {
			out = append(out, p)
		}
	}

	return out
}

// until waits for a condition, in fake time.
func (b *bench) until(what string, holds func() bool) {
	b.t.Helper()

	for began := time.Now(); !holds(); {
		if time.Since(began) > patience {
			b.t.Fatalf("waited %s for %s\nlog:\n%s", patience, what, b.logText())
		}

		b.pass(250 * time.Millisecond)
	}
}

// pass lets fake time pass.
func (b *bench) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *bench) untilStage(id string, stage omnispecs.MachineRequestStatusSpec_Stage) {
	b.t.Helper()

	b.until(fmt.Sprintf("%s to be %s, it says %q", id, stage, b.status(id)), func() bool { return b.status(id).GetStage() == stage })
}

// remove tears a request down as Omni does, without waiting.
func (b *bench) remove(id string) {
	b.t.Helper()

	_, err := b.admin.Teardown(b.t.Context(), infra.NewMachineRequest(id).Metadata())
	b.ok(err)
}

// released says whether nobody holds a request that is torn down.
func (b *bench) released(id string) bool {
	r, err := safe.StateGetByID[*infra.MachineRequest](b.t.Context(), b.admin, id)
	if state.IsNotFoundError(err) {
		return true
	}

	b.ok(err)

	return r.Metadata().Finalizers().Empty()
}

func (b *bench) untilReleased(id string) {
	b.t.Helper()

	b.until(id+" to be released", func() bool { return b.released(id) })
}

// left counts the instances and disks of the project.
func (b *bench) left() (instances, disks int) {
	b.t.Helper()

	i, err := b.rack.ListInstances(b.t.Context(), b.project.Id)
	b.ok(err)

	d, err := b.rack.ListDisks(b.t.Context(), b.project.Id)
	b.ok(err)

	return len(i), len(d)
}

func (b *bench) wantLeft(instances, disks int) {
	b.t.Helper()

	if i, d := b.left(); i != instances || d != disks {
		b.t.Errorf("%d instances and %d disks are left, want %d and %d", i, d, instances, disks)
	}
}

func (b *bench) fault(f simrack.Fault) {
	b.t.Helper()

	_, err := b.sim.AddFault(f)
	b.ok(err)
}

func (b *bench) hook(at *atomic.Pointer[func(int, string)], f func(operation string)) {
	call := func(_ int, operation string) { f(operation) }
	at.Store(&call)
}
