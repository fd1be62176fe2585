package machineclass

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// describe says what kind of thing a value is.
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "keys with values"
	case yaml.SequenceNode:
		return "a list"
	default:
	}

	switch node.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!timestamp":
		return "a date"
	default:
		return "text"
	}
}

// wrongType names the value, if it is short enough to be one, and its type.
func wrongType(node *yaml.Node) string {
	what := "is " + describe(node)

	switch {
	case node.Kind != yaml.ScalarNode:
		return what
	case describe(node) == "text":
		return quote(node.Value) + " " + what
	default:
		return show(node.Value) + " " + what
	}
}

// quote shows a text on one line, cut if it is long.
func quote(s string) string { return strconv.Quote(cut(s)) }

// show shows a key or a number on one line, cut if it is long.
func show(s string) string {
	quoted := quote(s)
	if bare := quoted[1 : len(quoted)-1]; bare == s && bare != "" && !strings.ContainsAny(bare, " ;:") {
		return bare
	}

	return quoted
}

func cut(s string) string {
	if runes := []rune(s); len(runes) > shownValue {
		return string(runes[:shownValue]) + "…"
	}

	return s
}

// otherWords are what people call keys elsewhere.
var otherWords = map[string]string{
	"ram": "memory", "mem": "memory", "cores": "cpus", "vcpu": "cpus", "processors": "cpus",
	"boot_disk": "boot_disk_size", "root_disk_size": "boot_disk_size", "volumes": "disks", "extra_disks": "disks", "data_disks": "disks",
	"nics": "network_interfaces", "networks": "network_interfaces", "interfaces": "network_interfaces",
	"public_ips": "external_ips", "ephemeral_ips": "external_ips", "floating_ips": "external_ips", "floating_ip": "external_ips",
	"mtu": "enable_jumbo_frames", "labels": "node_labels", "region": "topology.region", "zone": "topology.zone",
	"instance_type": "topology.instance_type", "affinity": "anti_affinity_groups", "system_extensions": "extensions",
	"ca": "trusted_cas", "ca_certs": "trusted_cas", "certificates": "trusted_cas", "ips": "addresses", "ip": "addresses",
}

// nearest returns the key that a user most likely meant: what people call it
// elsewhere, or the one that the fewest single-character edits lead to. Old keys
// are not for new classes.
func nearest(key string, known []field) string {
	key = strings.ReplaceAll(strings.ToLower(cut(key)), "-", "_")

	if word, ok := otherWords[key]; ok && has(known, topKey(word)) {
		return word
	}

	best, least := "", -1

	for _, f := range known {
		if f.title == "" {
			continue
		}

		if d := distance(key, f.key); least < 0 || d < least {
			best, least = f.key, d
		}
	}

	return best
}

func has(known []field, key string) bool {
	return slices.ContainsFunc(known, func(f field) bool { return f.key == key })
}

// distance is the number of insertions, deletions and replacements of one
// character that lead from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1

		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}

			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}

	return row[len(b)]
}
