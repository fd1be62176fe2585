package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

// format of both stored plans. A field changes its meaning only with it.
const format = 1

// Names of the stored plans.
const (
	SledsName    = "sled-plan"
	ServicesName = "service-plan"
)

// LoadSleds loads the sled plan; false when none has been made. One that was
// made of another description is an error, since its rack is another one.
func LoadSleds(s store.Store, d Description) (Sleds, bool, error) {
	var out Sleds

	found, err := load(s, SledsName, &out)
	if !found || err != nil {
		return Sleds{}, false, err
	}

	if err := out.check(); err != nil {
		return Sleds{}, false, store.Unusable(s, SledsName, err)
	}

	if err := out.isOf(d); err != nil {
		return Sleds{}, false, fmt.Errorf("%s %w", s.Where(SledsName), err)
	}

	return out, true, nil
}

// LoadServices loads the service plan that belongs to a sled plan; false when
// none has been made.
func LoadServices(s store.Store, sleds Sleds) (Services, bool, error) {
	var out Services

	found, err := load(s, ServicesName, &out)
	if !found || err != nil {
		return Services{}, false, err
	}

	if err := out.check(sleds); err != nil {
		return Services{}, false, store.Unusable(s, ServicesName, err)
	}

	return out, true, nil
}

// Save stores a plan under its name.
func Save(s store.Store, name string, plan any) error {
	raw, err := Encode(plan)
	if err != nil {
		return fmt.Errorf("encoding the %s: %w", spoken(name), err)
	}

	return s.Save(name, raw)
}

// Encode is the stored form of a plan.
func Encode(plan any) ([]byte, error) {
	raw, err := json.MarshalIndent(plan, "", "  ")

	return append(raw, '\n'), err
}

func load(s store.Store, name string, into any) (bool, error) {
	raw, found, err := s.Load(name)
	if err != nil || !found {
		return false, err
	}

	var head struct {
		Format int `json:"format"`
	}

	if err := json.Unmarshal(raw, &head); err != nil {
		return false, store.Unusable(s, name, err)
	}

	if head.Format != format {
		return false, store.Unusable(s, name, fmt.Errorf("its format is %d, and this program knows %d", head.Format, format))
	}

	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()

	if err := decoder.Decode(into); err != nil {
		return false, store.Unusable(s, name, err)
	}

	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return false, store.Unusable(s, name, errors.New("there is more after it"))
	}

	return true, nil
}

func spoken(name string) string { return strings.ReplaceAll(name, "-", " ") }

// isOf says what a plan's rack has that differs from the description's.
func (s Sleds) isOf(d Description) error {
	now, err := d.identity()
	if err != nil {
		return err
	}

	var before, after map[string]any

	if err := json.Unmarshal(s.Description, &before); err != nil {
		return fmt.Errorf("has a description that can not be read: %w", err)
	}

	if err := json.Unmarshal(now, &after); err != nil {
		return fmt.Errorf("reading the rack description: %w", err)
	}

	if differ := Difference(before, after); len(differ) > 0 {
		return fmt.Errorf("is the plan of another rack, which differs in %s: go back to its description, or begin with an empty directory",
			strings.Join(differ, ", "))
	}

	return nil
}

// Difference names the fields in which two decoded JSON objects differ, sorted.
func Difference(a, b map[string]any) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]any{}
	}

	maps.Copy(all, b)

	var out []string

	for _, k := range slices.Sorted(maps.Keys(all)) {
		// Maps are encoded with their keys sorted.
		x, errX := json.Marshal(a[k])
		y, errY := json.Marshal(b[k])

		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			out = append(out, k)
		}
	}

	return out
}
