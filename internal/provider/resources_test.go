package provider

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

func TestAProcessServesOneProviderID(t *testing.T) {
	t.Parallel()

	if err := Bind(testID); err != nil {
		t.Errorf("the same ID again: %v", err)
	}

	if err := Bind("another"); err == nil {
		t.Error("a second ID was taken")
	}
}

func TestStoredTypesAreNamedAsTheSDKAndOmniWant(t *testing.T) {
	t.Parallel()

	rd := (&Instance{}).ResourceDefinition()
	if rd.Type != "Instance.oxide-test.infraprovider.sidero.dev" || rd.DefaultNamespace != "infra-provider:oxide-test" {
		t.Errorf("%s in %s", rd.Type, rd.DefaultNamespace)
	}

	// The SDK asks a nil pointer as well.
	if got := (*Instance)(nil).ResourceDefinition(); got.Type != rd.Type {
		t.Errorf("a nil instance is of type %q", got.Type)
	}
}

func fullState() *specs.InstanceSpec {
	at := func(s int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(s, 0)) }

	return &specs.InstanceSpec{
		Plan: &specs.Plan{
			Format: 1, RequestHash: "1:ab", RequestId: "talos-workers-bcdfgh", Owner: "abcdefghijklmnopqrstuvwxyz",
			SiloId: "silo-id", ProjectId: "p-id", ProjectName: "talos", InstanceName: "talos-workers-bcdfgh", Cpus: 4, MemoryBytes: 8 << 30,
			BootDisk:             &specs.DiskPlan{Name: "boot-x", SizeBytes: 10 << 30, Type: "distributed"},
			Disks:                []*specs.DiskPlan{{Name: "data0-x", SizeBytes: 20 << 30, Type: "distributed", BlockSize: 512}},
			Nics:                 []*specs.NicPlan{{Name: "net0", VpcName: "default", SubnetName: "default", IpConfig: "v4", VpcId: "v-id", SubnetId: "s-id"}},
			AntiAffinityGroupIds: []string{"g-id"}, AutoRestartPolicy: "best_effort", CpuPlatform: "amd_milan", EnableJumboFrames: true,
			Image: &specs.ImagePlan{
				SchematicId: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba", TalosVersion: "1.13.5",
				Architecture: "amd64", SecureBoot: true, FactoryHost: "factory.talos.dev",
			},
			PlannedAt: at(1),
		},
		Image:      &specs.ImageRef{Id: "i-id", SizeBytes: 2 << 30},
		Create:     &specs.Attempt{At: at(2), Count: 3, LastError: "quota", Failed: true, Mend: true},
		InstanceId: "inst-id", Disks: []*specs.DiskRef{{Id: "d-id", Name: "boot-x", Kind: "boot"}},
		Start: &specs.Attempt{At: at(4), Count: 1}, RunningSince: at(5), Incarnation: 6, UnsureCreate: at(7), PatchedInstanceId: "inst-id",
	}
}

// Invariant: stored formats are promises. State that this release writes must be
// read the same by every later one, so the golden file may only ever be added to.
func TestStoredStateKeepsItsFormat(t *testing.T) {
	t.Parallel()

	path := filepath.Join("testdata", "instance.v1.hex")

	written, err := proto.MarshalOptions{Deterministic: true}.Marshal(fullState())
	if err != nil {
		t.Fatal(err)
	}

	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; the first version of it is:\n%s", err, hex.EncodeToString(written))
	}

	stored, err := hex.DecodeString(strings.TrimSpace(string(golden)))
	if err != nil {
		t.Fatal(err)
	}

	var read specs.InstanceSpec
	if err := proto.Unmarshal(stored, &read); err != nil {
		t.Fatal(err)
	}

	if !proto.Equal(&read, fullState()) {
		t.Errorf("the stored state reads as %v", &read)
	}

	if !bytes.Equal(written, stored) {
		t.Errorf("the state is written differently now:\n%x", written)
	}
}

// Invariant: a field that this version does not know survives it, so that a
// newer version finds it again after a rollback.
func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()

	stored, err := proto.Marshal(fullState())
	if err != nil {
		t.Fatal(err)
	}

	stored = append(stored, 0xfa, 0x3f, 3, 'n', 'e', 'w') // field 1023, bytes

	var spec InstanceSpec
	if err := spec.UnmarshalProto(stored); err != nil {
		t.Fatal(err)
	}

	out, err := proto.Marshal(spec.DeepCopy().Value)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Contains(out, []byte("new")) {
		t.Error("the unknown field was lost")
	}
}

// Invariant: step names are frozen. The SDK reports a request whose stored step
// is unknown as provisioned.
func TestStepNamesAreFrozen(t *testing.T) {
	t.Parallel()

	want := []string{"plan", "image", "instance", "config", "start"}
	steps := (&Provisioner{}).ProvisionSteps()

	if len(steps) != len(want) {
		t.Fatalf("%d steps", len(steps))
	}

	for i := range want {
		if steps[i].Name() != want[i] {
			t.Errorf("step %d is %q, want %q", i, steps[i].Name(), want[i])
		}
	}
}
