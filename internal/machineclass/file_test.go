package machineclass_test

import (
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

const resourceHead = "metadata: {namespace: default, type: MachineClasses.omni.sidero.dev, id: large}\n"

// found writes what was found, a line for each class.
func found(all []machineclass.Validated) string {
	lines := make([]string, len(all))
	for i, v := range all {
		lines[i] = v.Class + "|" + v.Mistakes.Error()
	}

	return strings.Join(lines, "\n")
}

// A file may hold what stands in a class, or the class as omnictl has it.
func TestValidateFile(t *testing.T) {
	t.Parallel()

	resource := func(spec string) string { return resourceHead + "spec: {" + spec + "}\n" }
	data := func(class string) string {
		return resource(`autoprovision: {providerid: oxide, providerdata: "` + class + `"}`)
	}

	for name, test := range map[string]struct{ text, want string }{
		"bare":                {"project: a", "|"},
		"bare, JSON":          {`{"project": "a"}`, "|"},
		"bare, wrong":         {"project: a\ncpus: 0", "|cpus: 0 is under the least of 1"},
		"empty":               {"", "|project: is required"},
		"no YAML":             {"a: [", "|not YAML: "},
		"two bare":            {"project: a\n---\nproject: b", "|more than one YAML document"},
		"resource":            {data("project: a"), "large|"},
		"resource, JSON":      {`{"metadata": {"namespace": "default", "type": "MachineClasses.omni.sidero.dev", "id": "a"}, "spec": {"autoprovision": {"providerid": "oxide", "providerdata": "{\"project\": \"a\"}"}}}`, "a|"},
		"resource, wrong":     {data(`project: A\ncpus: 0`), `large|spec.autoprovision.providerdata.project: "A" must be a name (1 to 63 of a-z, 0-9 and -, a letter first, no - last) or an ID; spec.autoprovision.providerdata.cpus: 0 is under the least of 1`},
		"resource, no class":  {data("[]"), "large|spec.autoprovision.providerdata: the class is a list, must be keys with values"},
		"two resources":       {data("project: a") + "---\n" + data("cpus: 1"), "large|\nlarge|spec.autoprovision.providerdata.project: is required"},
		"by labels":           {resource("matchlabels: [a=b]"), "large|spec.autoprovision: is required: a class without it has machines that are there already"},
		"both":                {resource(`matchlabels: [a], autoprovision: {providerid: oxide, providerdata: "project: a"}`), "large|spec.matchlabels: are not for a class with autoprovision"},
		"no provider":         {resource(`autoprovision: {providerdata: "project: a"}`), "large|spec.autoprovision.providerid: is required"},
		"another type":        {"metadata: {type: Clusters.omni.sidero.dev, id: a}", `a|metadata.type: "Clusters.omni.sidero.dev" is not MachineClasses.omni.sidero.dev`},
		"another namespace":   {strings.Replace(data("project: a"), "default", "x", 1), `large|metadata.namespace: "x" is not default`},
		"no ID":               {strings.Replace(data("project: a"), ", id: large", "", 1), "|metadata.id: is required"},
		"shape":               {"metadata: []\nspec: {}", "|is no machine class of Omni: "},
		"Omni's kernel args":  {resource(`autoprovision: {providerid: oxide, providerdata: "project: a", kernelargs: [` + strings.Repeat("a,", 65) + `]}`), "large|spec.autoprovision.kernelargs: 65 entries are over the limit of 64"},
		"a long kernel arg":   {resource(`autoprovision: {providerid: oxide, providerdata: "project: a", kernelargs: [` + strings.Repeat("a", 257) + `]}`), "large|spec.autoprovision.kernelargs[0]: has 257 bytes, over the limit of 256"},
		"class with metadata": {"project: a\nmetadata: {}", `|metadata.type: "" is not MachineClasses.omni.sidero.dev`},
	} {
		got := found(machineclass.ValidateFile(test.text))
		if got != test.want && (!strings.HasSuffix(test.want, ": ") || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s:\n got %s\nwant %s", name, got, test.want)
		}
	}
}

// Invariant: whatever a file holds, there is an answer of one line each.
func FuzzValidateFile(f *testing.F) {
	for _, seed := range []string{"project: a", resourceHead, "metadata: 1", "---\n---", "a: &a [*a]", "spec: {autoprovision: {providerdata: {}}}"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		all := machineclass.ValidateFile(text)
		if len(all) == 0 {
			t.Fatalf("%q: nothing found", text)
		}

		for _, v := range all {
			if strings.ContainsAny(v.Mistakes.Error(), "\n\r") {
				t.Fatalf("%q: %q", text, v.Mistakes.Error())
			}
		}
	})
}
