package provider

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

var update = flag.Bool("update", false, "write a further golden file of the state that this version stores")

// fullState has every field set.
func fullState() *specs.InstanceSpec {
	at := func(s int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(s, 0)) }

	return &specs.InstanceSpec{
		Plan: &specs.Plan{
			Format: 2, RequestHash: "1:ab", RequestId: "talos-workers-bcdfgh", Owner: "abcdefghijklmnopqrstuvwxyz",
			SiloId: "silo-id", ProjectId: "p-id", ProjectName: "talos", InstanceName: "talos-workers-bcdfgh", Cpus: 4, MemoryBytes: 8 << 30,
			BootDisk: &specs.DiskPlan{Name: "boot-x", SizeBytes: 10 << 30, Type: "distributed"},
			Disks:    []*specs.DiskPlan{{Name: "data0-x", SizeBytes: 20 << 30, Type: "distributed", BlockSize: 512}},
			Nics: []*specs.NicPlan{{Name: "net0", VpcName: "default", SubnetName: "default", IpConfig: "v4", VpcId: "v-id", SubnetId: "s-id",
				TransitIps: []string{"10.0.0.0/8"}, Ipv4: "172.30.0.9", Ipv6: "fd00::9"}},
			AntiAffinityGroupIds: []string{"g-id"}, AutoRestartPolicy: "best_effort", CpuPlatform: "amd_milan", EnableJumboFrames: true, OnStopped: "start",
			Image: &specs.ImagePlan{
				SchematicId: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba", TalosVersion: "1.13.5",
				Architecture: "amd64", SecureBoot: true, FactoryHost: "factory.talos.dev",
				Extensions: []string{"siderolabs/iscsi-tools"}, KernelArgs: []string{"quiet"}, Scope: "project",
			},
			PlannedAt: at(1), Description: "rack 1",
			ExternalIps: []*specs.ExternalIPPlan{{Type: "floating", IpVersion: "v4", PoolId: "pool-id", FloatingIpId: "f-id", Name: "a"}},
			SetGroup:    &specs.SetGroupPlan{Set: "talos-workers", Policy: "allow", Number: 1, Name: "talos-workers-1-x"},
			NodeLabels:  []string{"a=b"}, PinHostname: true, TrustedRoots: "---\n",
		},
		Image:      &specs.ImageRef{Id: "i-id", SizeBytes: 2 << 30},
		Create:     &specs.Attempt{At: at(2), Count: 3, LastError: "quota", Failed: true, Mend: true, Invalid: 2},
		InstanceId: "inst-id", Disks: []*specs.DiskRef{{Id: "d-id", Name: "boot-x", Kind: "boot"}},
		Start: &specs.Attempt{At: at(4), Count: 1}, RunningSince: at(5), Incarnation: 6, UnsureCreate: at(7), PatchedInstanceId: "inst-id",
		FloatingIps: []*specs.FloatingIPRef{{Name: "ip0-x", Id: "ip-id", Create: &specs.Attempt{At: at(8), Count: 1}}}, SetGroupId: "sg-id",
		SetGroupCreate: &specs.Attempt{At: at(9), Count: 1},
	}
}

// golden are the golden files, oldest first: what is stored, in hex, and beside
// it as JSON what it means. One is added with each change of the format, and none
// is ever changed.
func golden(t *testing.T) []string {
	t.Helper()

	files, err := filepath.Glob(filepath.Join("testdata", "instance.*.hex"))
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files: %v %v", files, err)
	}

	slices.Sort(files)

	return files
}

func readGolden(t *testing.T, file string) (stored []byte, read, meant *specs.InstanceSpec) {
	t.Helper()

	text, err := os.ReadFile(file)
	if err == nil {
		stored, err = hex.DecodeString(strings.TrimSpace(string(text)))
	}

	if err != nil {
		t.Fatal(err)
	}

	means, err := os.ReadFile(strings.TrimSuffix(file, ".hex") + ".json")
	if err != nil {
		t.Fatal(err)
	}

	read, meant = &specs.InstanceSpec{}, &specs.InstanceSpec{}
	if err := proto.Unmarshal(stored, read); err != nil {
		t.Fatal(err)
	}

	if err := protojson.Unmarshal(means, meant); err != nil {
		t.Fatalf("%s: %v", file, err)
	}

	return stored, read, meant
}

// Invariant: stored formats are promises. State that any release has written is
// read with the same meaning by every later one.
func TestStateOfEveryReleaseIsRead(t *testing.T) {
	t.Parallel()

	for _, file := range golden(t) {
		_, read, meant := readGolden(t, file)

		if !proto.Equal(read, meant) {
			t.Errorf("%s reads as %v", file, read)
		}

		if hasUnknown(read.ProtoReflect()) {
			t.Errorf("%s has fields that are no longer known", file)
		}
	}
}

// The newest golden file is of the format that is written now, with every field.
func TestTheFormatWrittenNowIsGolden(t *testing.T) {
	t.Parallel()

	written, err := proto.MarshalOptions{Deterministic: true}.Marshal(fullState())
	if err != nil {
		t.Fatal(err)
	}

	files := golden(t)
	if stored, _, _ := readGolden(t, files[len(files)-1]); string(stored) == string(written) {
		return
	}

	if !*update {
		t.Fatal("the state is written in a format that no golden file has: run the test with -update, and keep the older files")
	}

	name := filepath.Join("testdata", fmt.Sprintf("instance.%03d", len(files)+1))
	for suffix, text := range map[string]string{".hex": hex.EncodeToString(written), ".json": protojson.Format(fullState())} {
		if err := os.WriteFile(name+suffix, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheFullStateHasEveryField(t *testing.T) {
	t.Parallel()

	var check func(m protoreflect.Message)

	check = func(m protoreflect.Message) {
		for i := range m.Descriptor().Fields().Len() {
			field := m.Descriptor().Fields().Get(i)

			switch {
			case !m.Has(field) && m.Descriptor().FullName().Parent() != "google.protobuf" && !optionalHere[field.FullName()]:
				t.Errorf("%s is not set: a change of it would not be seen", field.FullName())
			case field.Message() == nil || !m.Has(field):
			case field.IsList():
				check(m.Get(field).List().Get(0).Message())
			default:
				check(m.Get(field).Message())
			}
		}
	}

	check(fullState().ProtoReflect())
}

// optionalHere are fields that not every message of their type has set in the
// full state; another one has.
var optionalHere = map[protoreflect.FullName]bool{
	"oxide.infraprovider.v1.DiskPlan.block_size": true,
	"oxide.infraprovider.v1.Attempt.last_error":  true,
	"oxide.infraprovider.v1.Attempt.failed":      true,
	"oxide.infraprovider.v1.Attempt.mend":        true,
	"oxide.infraprovider.v1.Attempt.invalid":     true,
}
