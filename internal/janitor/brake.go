package janitor

import "fmt"

// spare is how many of our instances may be orphans at once without a person
// having a look: two, or a tenth.
const (
	spareInstances = 2
	spareShare     = 10
)

// brake says why nothing may be removed now, empty if it may. sure says that it
// was the same at the look before: between the two lists of one look a last
// request may end as it should.
func (j *Janitor) brake(f *finding) (why string, sure bool) {
	known := 0 // orphaned instances that were seen before

	for _, o := range f.orphans {
		if s := j.seen[o.ID]; o.Kind == kindInstance && s != nil && s.looks > 1 {
			known++
		}
	}

	return brakeText(f, known), known > 0 || len(f.spared) > 0 || f.machines == 0
}

// brakeText says why nothing may be removed with that many orphaned instances.
func brakeText(f *finding, lost int) string {
	if len(f.look.requests) == 0 && f.machines > 0 {
		return fmt.Sprintf("Omni lists no machine request at all and %d instances of this provider exist: nothing is removed; "+
			"was Omni restored from a backup? See `orphans list`", f.machines)
	}

	if u := f.look.unread; len(f.look.requests) == 0 && len(u) > 0 && len(f.orphans) > 0 {
		return fmt.Sprintf("Omni lists no machine request at all and project %q can not be read, where instances may be: nothing is removed", u[0].Name)
	}

	if limit := max(spareInstances, f.machines/spareShare); lost > limit {
		return fmt.Sprintf("%d of %d instances have no machine request in Omni, more than the %d that are removed without asking: "+
			"see `orphans list`, then `orphans delete`", lost, f.machines, limit)
	}

	return ""
}
