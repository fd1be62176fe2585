package machineclass

import (
	"fmt"
	"slices"
	"strings"
)

var (
	// selfSet are the labels in Kubernetes' own namespaces that a kubelet may
	// give its node; whatever else is there the API server refuses it.
	selfSet = []string{
		"beta.kubernetes.io/instance-type", "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
	}
	// selfSetSpaces are namespaces in which it may set any.
	selfSetSpaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
	// kubeletOwn are labels that kubelet gives its node whatever it is told.
	kubeletOwn = []string{
		"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}
	kubernetesSpaces = []string{"kubernetes.io", "k8s.io"}
	topologyLabels   = map[string]string{
		labelRegion: "topology.region", labelZone: "topology.zone", labelInstanceType: "topology.instance_type",
	}
)

// labelKey is the key of a label that is written key=value.
func labelKey(label string) string {
	key, _, _ := strings.Cut(label, "=")

	return key
}

// checkLabel holds a label against what kubelet may set on its own node: the
// API server refuses anything else, and the node would never be ready.
func checkLabel(text string) string {
	key := labelKey(text)
	space, _, spaced := strings.Cut(key, "/")

	if !spaced {
		return ""
	}

	if wrong := checkLabelPrefix(space); wrong != "" {
		return wrong
	}

	switch field, topology := topologyLabels[key]; {
	case topology:
		return "is what " + field + " is for"
	case slices.Contains(kubeletOwn, key):
		return "is set by kubelet itself"
	case under(space, []string{"node-restriction.kubernetes.io"}):
		return "is a label that a node may not give itself (node-restriction.kubernetes.io)"
	case under(space, kubernetesSpaces) && !under(space, selfSetSpaces) && !slices.Contains(selfSet, key):
		return fmt.Sprintf("is a label that a node may not give itself (%s); use a domain of your own", space)
	default:
		return ""
	}
}

func checkLabelPrefix(space string) string {
	if len(space) > maxLabelPrefix {
		return fmt.Sprintf("has a prefix of %d characters, over the limit of %d", len(space), maxLabelPrefix)
	}

	for part := range strings.SplitSeq(space, ".") {
		if part == "" || len(part) > maxLabelName || strings.HasPrefix(part, "-") || strings.HasSuffix(part, "-") {
			return "has a prefix that is no DNS name"
		}
	}

	return ""
}

// under tells whether a namespace is one of those or below one of them.
func under(space string, spaces []string) bool {
	return slices.ContainsFunc(spaces, func(s string) bool { return space == s || strings.HasSuffix(space, "."+s) })
}
