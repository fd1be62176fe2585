package machineclass

import "fmt"

// final is said of what becomes a config patch.
const final = "It becomes a config patch of the machine, which no cluster template can override."

// nodeFields say what a machine is to Talos and to Kubernetes.
func nodeFields() []field {
	return []field{
		{
			key: "hostname", title: "Host name", kind: kindEnum, def: HostnamePlatform,
			values: []string{HostnamePlatform, HostnamePinned},
			help:   "platform (the instance's name by the rack's DHCP; templates may set another) or pinned (the same, for good)",
			note:   final + " Only `pinned` makes one.",
		},
		{
			key: "topology", title: "Topology", kind: kindObject, fields: topologyFields(),
			help: "Where the nodes are, as the node labels that Kubernetes spreads work by", note: final,
			example: "{region: west, zone: rack-1, instance_type: oxide-large}",
		},
		{
			key: "node_labels", title: "Node labels", kind: kindList, max: maxLabels, unique: true,
			help:    "Other labels of the nodes, such as a kubelet may give its own node",
			entry:   &field{kind: kindText, form: labelForm, title: "Label", help: "Label as key=value"},
			example: "[example.com/tier=gold]",
			note: final + " The API server lets a node give itself none in kubernetes.io and k8s.io, other than below " +
				"kubelet.kubernetes.io and node.kubernetes.io.",
		},
		{
			key: "extensions", title: "System extensions", kind: kindList, max: maxExtensions, unique: true,
			help:    "Talos system extensions that the image has from the start",
			entry:   &field{kind: kindText, form: extensionForm, title: "Extension", help: "Extension as vendor/name"},
			example: "[siderolabs/iscsi-tools]",
			note:    "Each distinct list is another image. Extensions of a cluster or machine set that the image lacks cost an upgrade after the join.",
		},
		{
			key: "kernel_args", title: "Kernel arguments", kind: kindList, max: maxKernelArgs, unique: true,
			help:    fmt.Sprintf("Kernel arguments of the image, each of at most %d characters without spaces; one with - before it removes a default one", maxKernelArg),
			entry:   &field{kind: kindText, form: kernelArgForm, title: "Argument", help: "One kernel argument"},
			example: "[talos.dashboard.disabled=1]",
			note:    "Each distinct list is another image. They come after those of Omni's own kernel arguments for the class.",
		},
		{
			key: "image_scope", title: "Image scope", kind: kindEnum, def: ScopeAuto,
			values: []string{ScopeAuto, ScopeSilo, ScopeProject},
			help:   "Where the Talos image is kept: silo (shared by all projects), project, or auto (silo if the daemon's token may)",
		},
		{
			key: "trusted_cas", title: "Trusted CAs", kind: kindText, form: certificatesForm,
			help:    fmt.Sprintf("PEM certificates of CAs that the machine trusts before it joins, about %d KiB at most", (maxUserData-joinConfig)>>10),
			note:    "For an Omni whose certificate is of a private CA. They ride in the user-data, which can not change in the life of a machine.",
			example: `"-----BEGIN CERTIFICATE----- MIIB… -----END CERTIFICATE-----"`,
		},
	}
}

func topologyFields() []field {
	part := func(key, title, label, example string) field {
		return field{
			key: key, title: title, kind: kindText, form: labelValueForm, help: "Value of the node label " + label, example: example,
		}
	}

	return []field{
		part("region", "Region", labelRegion, "west"),
		part("zone", "Zone", labelZone, "rack-1"),
		part("instance_type", "Instance type", labelInstanceType, "oxide-large"),
	}
}
