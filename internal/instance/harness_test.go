package instance

import (
	"bytes"
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testOwner    = "abcdefghijklmnopqrstuvwxyz"
	testProvider = "oxide"
	gib          = 1 << 30
)

// bench is a simulated rack with one project and one image, and Machines on it.
// The rack runs a thousand times as fast as a real one; the clock of Machines
// jumps over each wait.
type bench struct {
	t       *testing.T
	sim     *simrack.Server
	rack    *rack.Client
	m       *Machines
	project *oxide.Project
	image   *oxide.Image

	mu  sync.Mutex
	now time.Time
}

func newBench(t *testing.T, change ...func(*simrack.Config)) *bench {
	t.Helper()

	cfg := simrack.Config{TimeScale: 0.001}
	for _, c := range change {
		c(&cfg)
	}

	sim, err := simrack.New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	s := httptest.NewServer(sim)
	client, err := rack.New(rack.Config{Host: s.URL, Token: simrack.DefaultToken, UserAgent: version.UserAgent()})

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		client.Close()
		sim.Close()
		s.Close()
	})

	b := &bench{t: t, sim: sim, rack: client, now: time.Now()}
	b.m = b.machines()
	b.project = must(client.ViewProject(t.Context(), "demo"))(t)
	b.image = b.makeImage()

	return b
}

// machines makes a Machines as a new process would have it.
func (b *bench) machines() *Machines {
	m := New(Config{
		Rack: b.rack, Owner: testOwner, Provider: testProvider, Run: "0123abcd", MaxCreates: 4, Settle: 2 * time.Minute,
	})
	m.now = func() time.Time {
		b.mu.Lock()
		defer b.mu.Unlock()

		return b.now
	}
	m.since = m.now()

	return m
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.now = b.now.Add(d)
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}

		return v
	}
}

func (b *bench) ok(err error) {
	b.t.Helper()

	if err != nil {
		b.t.Fatal(err)
	}
}

// storing wants a wait that is only there to have the state stored.
func (b *bench) storing(err error) {
	b.t.Helper()

	if w, ok := AsWait(err); !ok || !w.First {
		b.t.Fatalf("got %v", err)
	}
}

func (b *bench) makeImage() *oxide.Image {
	b.t.Helper()
	ctx := b.t.Context()

	disk := must(b.rack.CreateDisk(ctx, b.project.Id, oxide.DiskCreate{
		Name: "source", Description: "", Size: gib,
		DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: oxide.DiskSourceImportingBlocks{BlockSize: 512}},
		}},
	}))(b.t)
	b.ok(b.rack.StartBulkWrite(ctx, disk.Id))
	b.ok(b.rack.BulkWrite(ctx, disk.Id, 0, bytes.Repeat([]byte{7}, 512)))
	b.ok(b.rack.StopBulkWrite(ctx, disk.Id))
	b.ok(b.rack.FinalizeImport(ctx, disk.Id, "source"))

	snapshot := must(b.rack.ViewSnapshotByName(ctx, b.project.Id, "source"))(b.t)
	image := must(b.rack.CreateImage(ctx, b.project.Id, oxide.ImageCreate{
		Name: "talos", Os: "Talos Linux", Version: "1.13.5",
		Source: oxide.ImageSource{Value: oxide.ImageSourceSnapshot{Id: snapshot.Id}},
	}))(b.t)

	b.ok(b.rack.DeleteSnapshot(ctx, snapshot.Id))
	b.ok(b.rack.DeleteDisk(ctx, disk.Id))

	return image
}

// planned is a state with a plan and an image: two data disks, one NIC.
func (b *bench) planned(requestID string) *specs.InstanceSpec {
	return &specs.InstanceSpec{
		Plan: &specs.Plan{
			RequestId: requestID, Owner: testOwner, ProjectId: b.project.Id, ProjectName: "demo",
			InstanceName: naming.Instance(requestID), Cpus: 2, MemoryBytes: 4 * gib,
			BootDisk: &specs.DiskPlan{Name: naming.Disk("boot", requestID), SizeBytes: 2 * gib, Type: "distributed"},
			Disks: []*specs.DiskPlan{
				{Name: naming.Disk("data0", requestID), SizeBytes: gib, Type: "distributed", BlockSize: 512},
				{Name: naming.Disk("data1", requestID), SizeBytes: gib, Type: "local"},
			},
			Nics:              []*specs.NicPlan{{Name: naming.NIC(0), VpcName: "default", SubnetName: "default", IpConfig: "v4"}},
			AutoRestartPolicy: "best_effort", CpuPlatform: "amd_milan",
		},
		Image: &specs.ImageRef{Id: b.image.Id, SizeBytes: uint64(b.image.Size)},
	}
}

// drive calls f as the SDK would until it is done, and answers the last error
// that was no wait. The state is stored, as Omni would hold it, on every wait
// and on success, and taken back on a failure. reasons are all waits shown.
func (b *bench) drive(spec *specs.InstanceSpec, f func(context.Context, *specs.InstanceSpec) error) (reasons []string, err error) {
	b.t.Helper()

	for range 400 {
		before := proto.CloneOf(spec)
		err := f(b.t.Context(), spec)

		if err == nil {
			return reasons, nil
		}

		w, ok := AsWait(err)
		if !ok {
			proto.Reset(spec)
			proto.Merge(spec, before)

			return reasons, err
		}

		if w.Reason != "" {
			reasons = append(reasons, w.Reason)
		}

		b.pass(w.After)

		// The rack's own time is real, if a thousand times as fast.
		select {
		case <-b.t.Context().Done():
		case <-time.After(min(w.After/1000+time.Millisecond, 10*time.Millisecond)):
		}
	}

	b.t.Fatalf("not done after 400 calls; waits: %q", reasons[max(0, len(reasons)-5):])

	return nil, nil
}

func (b *bench) create(ctx context.Context, spec *specs.InstanceSpec) error {
	return b.m.Create(ctx, spec, "join config")
}

// made drives a request to a running instance.
func (b *bench) made(requestID string) *specs.InstanceSpec {
	b.t.Helper()

	spec := b.planned(requestID)
	b.running(spec)

	return spec
}

// running drives a planned request to a running instance.
func (b *bench) running(spec *specs.InstanceSpec) {
	b.t.Helper()

	_, err := b.drive(spec, b.create)
	b.ok(err)

	_, err = b.drive(spec, b.m.Start)
	b.ok(err)
}

func (b *bench) fault(f simrack.Fault) {
	b.t.Helper()

	if _, err := b.sim.AddFault(f); err != nil {
		b.t.Fatal(err)
	}
}

// left counts the instances and disks of the project.
func (b *bench) left() (instances, disks int) {
	b.t.Helper()

	return len(must(b.rack.ListInstances(b.t.Context(), b.project.Id))(b.t)),
		len(must(b.rack.ListDisks(b.t.Context(), b.project.Id))(b.t))
}

func (b *bench) wantLeft(instances, disks int) {
	b.t.Helper()

	if i, d := b.left(); i != instances || d != disks {
		b.t.Errorf("%d instances and %d disks are left, want %d and %d", i, d, instances, disks)
	}
}

// foreign makes an instance that is not ours.
func (b *bench) foreign(name, description string) *oxide.Instance {
	b.t.Helper()

	start := false

	return must(b.rack.CreateInstance(b.t.Context(), b.project.Id, oxide.InstanceCreate{
		Name: oxide.Name(name), Hostname: oxide.Hostname(name), Description: description, Ncpus: 2, Memory: 4 * gib,
		SshPublicKeys: []oxide.NameOrId{}, Start: &start,
		NetworkInterfaces: oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentNone{}},
	}))(b.t)
}

// disk makes a detached blank disk.
func (b *bench) disk(name, description string) *oxide.Disk {
	b.t.Helper()

	return must(b.rack.CreateDisk(b.t.Context(), b.project.Id, oxide.DiskCreate{
		Name: oxide.Name(name), Description: description, Size: gib,
		DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: 512}},
		}},
	}))(b.t)
}
