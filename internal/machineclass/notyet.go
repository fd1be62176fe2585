package machineclass

import "slices"

type pendingField struct {
	path string
	used func(Class) bool
}

// notYet are the fields that the daemon does not carry out yet. A class that
// uses one is refused: nobody gets a machine that is not what was asked for.
// A line here is all that it takes, and goes when the field is carried out. There
// is none at present.
var notYet []pendingField

// pendingText is said of them wherever users read about fields.
const pendingText = "Not supported by this version yet."

// markPending marks the fields that are in notYet, those within lists and
// objects included.
func markPending(prefix string, known []field) []field {
	for i := range known {
		f := &known[i]
		path := prefix + f.key
		f.pending = slices.ContainsFunc(notYet, func(n pendingField) bool { return n.path == path })

		if f.kind == kindObject {
			markPending(path+".", f.fields)
		}

		if f.entry != nil && f.entry.kind == kindObject {
			markPending(path+"[].", f.entry.fields)
		}
	}

	return known
}

// NotYet returns the error, of type Mistakes, for a class that asks for what
// this version of the daemon does not carry out, and nil for any other.
func (c *Class) NotYet() error {
	var m Mistakes

	for _, f := range notYet {
		if f.used(*c) {
			m = append(m, Mistake{f.path, "is not supported by this version yet"})
		}
	}

	if len(m) == 0 {
		return nil
	}

	return m
}
