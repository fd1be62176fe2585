// Package health knows whether the daemon can do its work, and says why not in
// one line: to Omni, to a probe over HTTP, and once per change to the log.
package health

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
)

// Board holds one condition for each thing that the daemon needs. It is safe
// for concurrent use.
type Board struct {
	logger *zap.Logger

	mu         sync.Mutex
	conditions map[string]condition
}

// condition is what is known of one need. An empty key is good.
type condition struct {
	key, text string
	known     bool
}

// NewBoard makes a board on which none of the needs is known to be met.
func NewBoard(logger *zap.Logger, needs ...string) *Board {
	b := &Board{logger: logger, conditions: map[string]condition{}}

	for _, n := range needs {
		b.conditions[n] = condition{text: "not yet known"}
	}

	return b
}

// OK says that a need is met.
func (b *Board) OK(need string) { b.set(need, "", "") }

// Trouble says that a need is not met. key tells one cause from another: the
// text of the same cause may change, with the rack's request IDs for one, and
// is logged only when the cause does.
func (b *Board) Trouble(need, key, text string) {
	b.set(need, key, strings.Join(strings.Fields(text), " "))
}

func (b *Board) set(need, key, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	before := b.conditions[need]
	b.conditions[need] = condition{key: key, text: text, known: true}

	switch {
	case key != "" && (!before.known || before.key != key):
		b.logger.Warn("not ready: "+text, zap.String("need", need))
	case key == "" && before.known && before.key != "":
		b.logger.Info("well again", zap.String("need", need))
	}
}

// Ready says whether all needs are met.
func (b *Board) Ready() bool { return len(b.troubles(true)) == 0 }

// Err is the troubles in one line, nil without any. Needs that are not yet
// known are no trouble.
func (b *Board) Err() error {
	if t := b.troubles(false); len(t) > 0 {
		return errors.New(strings.Join(t, "; "))
	}

	return nil
}

func (b *Board) troubles(unknownToo bool) []string {
	b.mu.Lock()
	defer b.mu.Unlock()

	var out []string

	for need, c := range b.conditions {
		switch {
		case c.key != "":
			out = append(out, need+": "+c.text)
		case !c.known && unknownToo:
			out = append(out, need+": "+c.text)
		}
	}

	slices.Sort(out)

	return out
}
