package machineclass

import (
	"fmt"
	"strings"
)

// Mistake is something in a class that a user must mend.
type Mistake struct {
	// Field is the path of the value, such as "disks[0].size", or "" for the
	// class as a whole.
	Field string `json:"field"`
	// Text says the value, what is wrong with it, and the limit, on one line.
	Text string `json:"text"`
}

// String returns the mistake on one line.
func (m Mistake) String() string {
	if m.Field == "" {
		return m.Text
	}

	return m.Field + ": " + m.Text
}

// Mistakes is the error for a class that is wrong: all that a user must mend.
type Mistakes []Mistake

// Error returns the mistakes on one line.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, mistake := range m {
		lines[i] = mistake.String()
	}

	return strings.Join(lines, "; ")
}

// add notes a mistake of the value at the path.
func (c *checker) add(path, format string, args ...any) {
	c.mistakes = append(c.mistakes, Mistake{Field: path, Text: fmt.Sprintf(format, args...)})

	if c.wrong == nil {
		c.wrong = map[string]bool{}
	}

	c.wrong[topKey(path)] = true
}

// right tells whether the fields have no mistake so far, so that rules may look
// at them together.
func (c *checker) right(keys ...string) bool {
	for _, key := range keys {
		if c.wrong[key] {
			return false
		}
	}

	return true
}

func topKey(path string) string {
	if end := strings.IndexAny(path, ".["); end >= 0 {
		return path[:end]
	}

	return path
}
