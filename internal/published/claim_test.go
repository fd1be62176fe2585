package published_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/published"
)

const (
	three   = "0a1b2c3d-0000-4000-8000-000000000003"
	theirs  = "Managed by the Oxide Omni infrastructure provider (oxide)."
	request = "talos-workers-x7"
)

func machine(t *testing.T, stored []byte) published.Machine {
	t.Helper()

	var spec specs.PublishedMachineSpec
	if err := proto.Unmarshal(stored, &spec); err != nil {
		t.Fatal(err)
	}

	return published.Read(&spec)
}

func oldState() []byte {
	return wire(field(1, one), field(2, one), field(3, two), field(4, "talos-1-10-0-37656798-nocloud"), field(5, "3765"), field(6, "https://f/x"))
}

func newState() []byte {
	return wire(field(1, "talos"), field(2, one), field(3, disk(two, request)), field(3, disk(three, "disk-00-"+request)))
}

func vm() published.Object { return published.Object{ID: one, Name: request, Description: theirs} }

// Invariant: nothing foreign is claimed. An instance is claimed only if stored
// ID, name and description agree, in each form.
func TestOnlyTheStoredInstanceIsClaimed(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		stored   []byte
		provider string
		request  string
		change   func(*published.Object)
		wrong    string // part of the error, empty if it is claimed
	}{
		"old":                     {stored: oldState()},
		"new":                     {stored: newState()},
		"ID in capitals":          {stored: newState(), change: func(o *published.Object) { o.ID = strings.ToUpper(one) }},
		"empty":                   {wrong: `form "empty"`},
		"unknown":                 {stored: wire(field(1, "talos"), field(2, "x")), wrong: `form "unknown"`},
		"old, in the making":      {stored: wire(field(3, two), field(5, "3765")), wrong: "names no instance"},
		"new, in the making":      {stored: field(1, "talos"), wrong: "names no instance"},
		"another instance":        {stored: newState(), change: func(o *published.Object) { o.ID = two }, wrong: "is not the stored one"},
		"another name":            {stored: newState(), change: func(o *published.Object) { o.Name = "mine" }, wrong: `the name "mine"`},
		"another request":         {stored: oldState(), request: "talos-workers-x8", wrong: "the request"},
		"no request":              {stored: oldState(), request: "-", change: func(o *published.Object) { o.Name = "" }, wrong: "the request"},
		"another provider":        {stored: newState(), provider: "oxide-2", wrong: `the provider "oxide-2"`},
		"no description":          {stored: newState(), change: func(o *published.Object) { o.Description = "" }, wrong: "description"},
		"more behind":             {stored: oldState(), change: func(o *published.Object) { o.Description += " Mine now." }, wrong: "description"},
		"more before":             {stored: oldState(), change: func(o *published.Object) { o.Description = "Not " + theirs }, wrong: "description"},
		"a longer provider ID":    {stored: oldState(), change: func(o *published.Object) { o.Description = strings.Replace(theirs, "(oxide", "(oxide-2", 1) }, wrong: "description"},
		"a mark of this provider": {stored: oldState(), change: func(o *published.Object) { o.Description = "[oipo/1 owner=x]" }, wrong: "description"},
	} {
		instance, provider, id := vm(), "oxide", request
		if c.change != nil {
			c.change(&instance)
		}

		if c.provider != "" {
			provider = c.provider
		}

		if c.request != "" {
			id = strings.Trim(c.request, "-")
		}

		claim, err := machine(t, c.stored).Claim(provider, id, instance, []published.Object{{ID: two, Name: request, Description: theirs}})

		switch {
		case c.wrong == "" && (err != nil || claim.Instance != instance.ID || !slices.Equal(claim.Disks, []string{two})):
			t.Errorf("%s: claimed is %+v, %v", name, claim, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong) || claim.Instance != "" || claim.Disks != nil):
			t.Errorf("%s: claimed is %+v, %v", name, claim, err)
		}
	}
}

// Invariant: a disk that somebody attached later stays, whatever it is called
// and described as; the reason is told.
func TestAnAttachedDiskIsNotClaimed(t *testing.T) {
	t.Parallel()

	const four = "0a1b2c3d-0000-4000-8000-000000000004"

	for name, c := range map[string]struct {
		stored   []byte
		attached []published.Object
		disks    []string
		foreign  []string
	}{
		"new": {
			newState(),
			[]published.Object{{two, request, theirs}, {three, "disk-00-" + request, theirs}, {four, "backup", "of ours"}},
			[]string{two, three},
			[]string{four},
		},
		"new, with names and texts like theirs": {
			newState(), []published.Object{{two, request, theirs}, {four, "disk-01-" + request, theirs}}, []string{two}, []string{four},
		},
		"new, a stored disk with another text": {
			newState(), []published.Object{{two, request, "mine"}, {three, "disk-00-" + request, theirs}}, []string{three}, []string{two},
		},
		"new, a stored ID under another name": {
			newState(), []published.Object{{two, "disk-00-" + request, theirs}}, nil, []string{two},
		},
		"new, a stored disk with a name of no request": {
			wire(field(1, "talos"), field(2, one), field(3, disk(two, "data"))), []published.Object{{two, "data", theirs}}, nil, []string{two},
		},
		"new, no disks stored": {wire(field(1, "talos"), field(2, one)), []published.Object{{two, request, theirs}}, nil, []string{two}},
		"old": {
			oldState(), []published.Object{{three, request, theirs}, {four, "disk-00-" + request, theirs}}, []string{three}, []string{four},
		},
		"old, another text": {oldState(), []published.Object{{three, request, ""}}, nil, []string{three}},
		"old, no disks":     {oldState(), nil, nil, nil},
	} {
		claim, err := machine(t, c.stored).Claim("oxide", request, vm(), c.attached)
		if err != nil || !slices.Equal(claim.Disks, c.disks) || !slices.Equal(slices.Sorted(maps.Keys(claim.Foreign)), c.foreign) {
			t.Errorf("%s: claimed is %+v, %v", name, claim, err)
		}

		for id, why := range claim.Foreign {
			if why == "" {
				t.Errorf("%s: disk %s stays for no reason", name, id)
			}
		}
	}
}
