package machineclass

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Validated is what was found about one class of a file.
type Validated struct {
	// Class is the ID of the machine class in Omni, "" for a bare class.
	Class    string   `json:"class,omitempty"`
	Mistakes Mistakes `json:"mistakes"`
}

// resourceType is that of machine classes in Omni.
const resourceType = "MachineClasses.omni.sidero.dev"

// ValidateFile checks a bare class, or each machine class of a file for omnictl
// apply, as this version of the daemon would. It finds at least one class, or a
// mistake.
func ValidateFile(text string) []Validated {
	resources, err := documents(text)

	switch {
	case err != nil:
		return []Validated{{Mistakes: Mistakes{{Text: "not YAML: " + oneLine(err)}}}}
	case len(resources) == 0 || !isResource(resources[0]):
		return []Validated{{Mistakes: check(text)}}
	}

	found := make([]Validated, 0, len(resources))
	for _, r := range resources {
		found = append(found, validateResource(r))
	}

	return found
}

func documents(text string) ([]*yaml.Node, error) {
	var all []*yaml.Node

	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var node yaml.Node

		switch err := decoder.Decode(&node); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}

		all = append(all, resolve(node.Content[0]))
	}
}

// isResource tells a resource of Omni from a bare class, which has no such keys.
func isResource(node *yaml.Node) bool {
	if node.Kind != yaml.MappingNode {
		return false
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i].Value; key == "metadata" || key == "spec" {
			return true
		}
	}

	return false
}

// check returns the mistakes of a class, never nil.
func check(text string) Mistakes {
	class, err := Parse(text)
	if err == nil {
		err = class.NotYet()
	}

	if m, wrong := errors.AsType[Mistakes](err); wrong {
		return m
	}

	return Mistakes{}
}

// resource is a machine class as omnictl writes and takes it.
type resource struct {
	Metadata struct {
		Namespace string `yaml:"namespace"`
		Type      string `yaml:"type"`
		ID        string `yaml:"id"`
	} `yaml:"metadata"`
	Spec struct {
		AutoProvision *struct {
			ProviderID   string   `yaml:"providerid"`
			ProviderData string   `yaml:"providerdata"`
			KernelArgs   []string `yaml:"kernelargs"`
		} `yaml:"autoprovision"`
		MatchLabels []string `yaml:"matchlabels"`
	} `yaml:"spec"`
}

const providerData = "spec.autoprovision.providerdata"

func validateResource(node *yaml.Node) Validated {
	var (
		r resource
		v = Validated{Mistakes: Mistakes{}}
	)

	add := func(field, format string, args ...any) {
		v.Mistakes = append(v.Mistakes, Mistake{field, fmt.Sprintf(format, args...)})
	}

	if err := node.Decode(&r); err != nil {
		add("", "is no machine class of Omni: %s", oneLine(err))

		return v
	}

	v.Class = r.Metadata.ID

	if r.Metadata.Type != resourceType {
		add("metadata.type", "%s is not %s", quote(r.Metadata.Type), resourceType)

		return v
	}

	if r.Metadata.Namespace != defaultName {
		add("metadata.namespace", "%s is not %s", quote(r.Metadata.Namespace), defaultName)
	}

	if r.Metadata.ID == "" {
		add("metadata.id", "is required")
	}

	p := r.Spec.AutoProvision
	if p == nil {
		add("spec.autoprovision", "is required: a class without it has machines that are there already")

		return v
	}

	if len(r.Spec.MatchLabels) > 0 {
		add("spec.matchlabels", "are not for a class with autoprovision")
	}

	if p.ProviderID == "" {
		add("spec.autoprovision.providerid", "is required")
	}

	if n := len(p.KernelArgs); n > maxKernelArgs {
		add("spec.autoprovision.kernelargs", "%d entries are over the limit of %d", n, maxKernelArgs)
	}

	for i, a := range p.KernelArgs {
		if len(a) > maxKernelArg {
			add(fmt.Sprintf("spec.autoprovision.kernelargs[%d]", i), "has %d bytes, over the limit of %d", len(a), maxKernelArg)
		}
	}

	for _, m := range check(p.ProviderData) {
		add(strings.TrimSuffix(providerData+"."+m.Field, "."), "%s", m.Text)
	}

	return v
}

// ProviderData is what Omni hands to the provider of a file with one class that
// ValidateFile finds no mistake in: the class, and the kernel arguments beside it.
func ProviderData(text string) (class string, kernelArgs []string) {
	resources, err := documents(text)
	if err != nil || len(resources) == 0 || !isResource(resources[0]) {
		return text, nil
	}

	var r resource
	if err := resources[0].Decode(&r); err != nil || r.Spec.AutoProvision == nil {
		return text, nil
	}

	return r.Spec.AutoProvision.ProviderData, r.Spec.AutoProvision.KernelArgs
}
