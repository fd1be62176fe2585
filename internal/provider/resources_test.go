package provider

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
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
