package rack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FaultKinds lists all actions, conditions and events with their own fields, a
// line each.
func FaultKinds() string {
	var b strings.Builder

	listKinds(&b, "action", actions)
	listKinds(&b, "condition", conditions)
	listKinds(&b, "event", events)

	return b.String()
}

func listKinds[K ~string](b *strings.Builder, what string, kinds map[K]kind) {
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]

		may := ""
		if k.may != "" {
			may = "[" + k.may + "]"
		}

		fmt.Fprintln(b, strings.TrimRight(fmt.Sprintf("  %-10s %-20s %s", what, name, strings.TrimSpace(k.needs+" "+may)), " "))
	}
}
