package machineclass_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/hack/examples"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// exampleClass is the class in the example, as omnictl apply reads it.
func exampleClass(t *testing.T) string {
	t.Helper()

	return applied(t, []byte(machineclass.Example("large", "oxide-a"))).TypedSpec().Value.GetAutoProvision().GetProviderData()
}

// applied reads a file as omnictl apply does.
func applied(t *testing.T, file []byte) *omni.MachineClass {
	t.Helper()

	var document protobuf.YAMLResource
	if err := yaml.Unmarshal(file, &document); err != nil {
		t.Fatal(err)
	}

	class, ok := document.Resource().(*omni.MachineClass)
	if !ok {
		t.Fatalf("%T", document.Resource())
	}

	return class
}

// Invariant: the files are what omnictl apply takes, for the provider's default
// ID, and this version carries their classes out.
func TestExampleFilesCanBeApplied(t *testing.T) {
	t.Parallel()

	for name, file := range map[string][]byte{"small": examples.MachineClass, "all fields": examples.AllFields} {
		class := applied(t, file)
		p := class.TypedSpec().Value.GetAutoProvision()

		if class.Metadata().Namespace() != "default" || class.Metadata().ID() == "" || p.GetProviderId() != examples.ProviderID {
			t.Errorf("%s: %v, %v", name, class.Metadata(), p)
		}

		if err := validate(compiled(t), p.GetProviderData()); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		parsed, err := machineclass.Parse(p.GetProviderData())
		if err == nil {
			err = parsed.NotYet()
		}

		if err != nil || parsed.Project != examples.Project {
			t.Errorf("%s: %v, %+v", name, err, parsed)
		}
	}

	if string(examples.AllFields) != machineclass.Example("oxide-all-fields", "oxide") {
		t.Error("machine-class-all-fields.yaml is old: run make generate")
	}
}

func TestExampleIsForTheNamesGiven(t *testing.T) {
	t.Parallel()

	class := applied(t, []byte(machineclass.Example("large", "oxide-a")))
	if class.Metadata().ID() != "large" || class.TypedSpec().Value.GetAutoProvision().GetProviderId() != "oxide-a" {
		t.Errorf("%v, %v", class.Metadata(), class.TypedSpec().Value)
	}
}

// The example says what a class means that says nothing.
func TestExampleHasTheDefaults(t *testing.T) {
	t.Parallel()

	got, err := machineclass.Parse(exampleClass(t))
	if want := smallest(); err != nil || !equal(got, want) {
		t.Errorf("%v: %+v, want %+v", err, got, want)
	}
}

// commented is a field that the example gives as a comment.
var commented = regexp.MustCompile(`(?m)^# ([a-z_]+: .*)$`)

// Invariant: each line that the example has as a comment may be used as it is.
func TestEachCommentedExampleIsValid(t *testing.T) {
	t.Parallel()

	schema := compiled(t)
	found := commented.FindAllStringSubmatch(exampleClass(t), -1)

	for _, line := range found {
		text := "project: talos\n" + line[1]
		if strings.HasPrefix(line[1], "trusted_cas:") {
			text = withCAs(t, authority(t, "ca", 1)) // the example has only the beginning of one
		}

		if err := validate(schema, text); err != nil {
			t.Errorf("%s: %v", line[1], err)
		}

		if _, err := machineclass.Parse(text); err != nil {
			t.Errorf("%s: %v", line[1], err)
		}
	}

	if len(found) < 10 {
		t.Errorf("only %d examples", len(found))
	}
}
