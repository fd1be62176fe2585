package omni_test

import (
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

const classYAML = `
metadata: {namespace: default, type: MachineClasses.omni.sidero.dev, id: %ID%}
spec:
  autoprovision:
    providerid: %PROVIDER%
    kernelargs: [b=2, a=1]
    providerdata: "%DATA%"
`

func classOf(id, provider, data string) string {
	return replace(replace(replace(classYAML, "%ID%", id), "%PROVIDER%", provider), "%DATA%", data)
}

// Classes and sets are checked against their provider's schema, by field.
func TestClassValidation(t *testing.T) {
	server := newServer(t)
	newToy(t).startWithNewKey(server)

	admin := adminState(t, server)

	for _, test := range []struct {
		name, document string
		mistakes       []string
	}{
		{"good", classOf("good", toyID, `cores: 4\nzone: a`), nil},
		{"empty data", classOf("empty", toyID, ""), []string{"failed to validate:", "missing property 'cores'"}},
		{"three mistakes", classOf("bad", toyID, `cores: 99\nzone: 7\nextra: x`), []string{`"cores": `, `"zone": `, "'extra' not allowed"}},
		// The zone has a dot, which its pattern forbids, but is checked as "anull".
		{"nan", classOf("nan", toyID, `cores: 4\nzone: a.nan`), nil},
		{"unregistered provider", classOf("who", "nobody", `cores: 4`), []string{"failed to get provider", "nobody", "doesn't exist"}},
		{"not YAML", classOf("text", toyID, `a: b: c`), []string{"failed to unmarshal YAML"}},
		{"neither", "metadata: {namespace: default, type: MachineClasses.omni.sidero.dev, id: none}\nspec: {}",
			[]string{"either have auto provision or match labels set"}},
		{"set", replace(setYAML, "%COUNT%", "0"), nil},
		{"set with v", replace(replace(setYAML, "%COUNT%", "0"), "1.13.5", "v1.13.5"), []string{"v1.13.5", "doesn't exist"}},
		{"set with bad data", replace(replace(replace(setYAML, "%COUNT%", "0"), "cores: 2", "cores: 0"), "id: set", "id: other"), nil}, // only classes are held against the schema
	} {
		err := simulator.ApplyYAML(t.Context(), admin, []byte(test.document))
		if test.mistakes == nil {
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			}

			continue
		}

		if err == nil {
			t.Errorf("%s was accepted", test.name)

			continue
		}

		for _, mistake := range test.mistakes {
			if !strings.Contains(err.Error(), mistake) {
				t.Errorf("%s: %v\nlacks %q", test.name, err, mistake)
			}
		}
	}
}

// A class that a machine set uses can not be deleted.
func TestClassInUse(t *testing.T) {
	server := newServer(t)
	newToy(t).startWithNewKey(server)

	applyCluster(t, server, 0)

	err := adminState(t, server).Destroy(t.Context(), omni.NewMachineClass("small").Metadata())
	if err == nil || !strings.Contains(err.Error(), "still in use by machine sets: c-workers") {
		t.Errorf("deleting a class in use: %v", err)
	}
}

// Users read what providers write; they change requests, classes and sets.
func TestUserWrites(t *testing.T) {
	server := newServer(t)

	reader, err := server.MintUserKey(t.Context(), "reader", "Reader", time.Hour)
	check(t, err)

	st := connect(t, server, reader, "").Omni().State()

	if err := st.Create(t.Context(), newRequest("r", "oxide")); err == nil || !strings.Contains(err.Error(), "only operators and admins") {
		t.Errorf("a reader's request: %v", err)
	}

	if err := st.Create(t.Context(), omni.NewCluster("c")); err == nil || !strings.Contains(err.Error(), "insufficient role") {
		t.Errorf("a reader's cluster: %v", err)
	}

	_, err = st.List(t.Context(), omni.NewCluster("").Metadata())
	check(t, err)
}
