package provider

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// patch is a config patch of a request.
type patch struct {
	name string
	data []byte
}

// patches are the config patches that a machine gets. A user can not override
// them from a template, so there is none that the class does not ask for but that
// of the provider ID.
//
// Omni copies a patch under its own name into a namespace that all providers and
// users share, so the name holds the provider and the request, with a dot between
// them that a provider ID can not hold. The weight keeps it before the user's
// patches of the same level.
func patches(plan *specs.Plan, instanceID string) ([]patch, error) {
	var (
		all    []patch
		prefix = fmt.Sprintf("000-%s.%s-", providerID(), plan.GetRequestId())
	)

	if labels := plan.GetNodeLabels(); len(labels) > 0 {
		data, err := labelsPatch(labels)
		if err != nil {
			return nil, err
		}

		all = append(all, patch{prefix + "node-labels", data})
	}

	if plan.GetPinHostname() {
		all = append(all, patch{prefix + "hostname", hostnamePatch(plan.GetInstanceName())})
	}

	return append(all, patch{prefix + "provider-id", providerIDPatch(instanceID)}), nil
}

// providerIDPatch gives kubelet its provider ID, as the Oxide cloud controller
// expects it.
func providerIDPatch(instanceID string) []byte {
	return fmt.Appendf(nil, "machine:\n  kubelet:\n    extraConfig:\n      providerID: oxide://%s\n", instanceID)
}

// hostnamePatch gives a node its name in the form of Talos 1.12 and later, the
// only ones that run on Oxide. They refuse a config that has the older form
// beside the document that Omni writes.
func hostnamePatch(hostname string) []byte {
	return fmt.Appendf(nil, "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: \"off\"\nhostname: %s\n", hostname)
}

func labelsPatch(labels []string) ([]byte, error) {
	var config struct {
		Machine struct {
			NodeLabels map[string]string `yaml:"nodeLabels"`
		} `yaml:"machine"`
	}

	config.Machine.NodeLabels = map[string]string{}

	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		config.Machine.NodeLabels[key] = value
	}

	data, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("writing the node labels: %w", err)
	}

	return data, nil
}
