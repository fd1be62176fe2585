package provider

import (
	"errors"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// All mistakes are told at once; where they do not fit into Omni's line, it says
// how many more there are.
func TestMistakesThatDoNotFitAreCounted(t *testing.T) {
	t.Parallel()

	mistakes := func(texts ...string) (m machineclass.Mistakes) {
		for _, t := range texts {
			m = append(m, machineclass.Mistake{Field: "f", Text: t})
		}

		return m
	}

	long := mistakes(strings.Repeat("a", 80), strings.Repeat("b", 60), strings.Repeat("c", 60), strings.Repeat("d", 60))

	got := fitting(long, 180)
	if want := long[0].String() + "; " + long[1].String() + "; and 2 more"; got != want || len(got) > 180 {
		t.Errorf("got %q", got)
	}

	if short := mistakes("a", "b"); fitting(short, 180) != "f: a; f: b" {
		t.Errorf("got %q", fitting(short, 180))
	}

	if one := mistakes(strings.Repeat("a", 300)); fitting(one, 180) != one[0].String() {
		t.Error("a single long mistake is left to the cut")
	}

	if got := fitting(errors.New("other"), 2); got != "other" {
		t.Errorf("got %q", got)
	}
}
