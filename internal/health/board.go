// Package health knows whether the daemon can do its work, and says why not in
// one line: to Omni, to a probe over HTTP, and once per change to the log.
//
// A need is something without which the daemon can not do its work; while one is
// not met, /readyz answers 503. A warning is something that a person should
// look at although the daemon works on, such as a machine that stopped: it
// stands on /readyz, which still answers 200, and in Omni after the troubles,
// led by "warning".
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

// condition is what is known of one need or subject. An empty key is good.
type condition struct {
	key, text string
	known     bool
	warning   bool
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

// Warn says that a person should look at a subject, which is none of the needs.
// key is as for Trouble; an empty one ends the warning.
func (b *Board) Warn(subject, key, text string) {
	text = strings.Join(strings.Fields(text), " ")

	b.mu.Lock()
	defer b.mu.Unlock()

	before := b.conditions[subject]

	if key == "" {
		delete(b.conditions, subject)
	} else {
		b.conditions[subject] = condition{key: key, text: text, known: true, warning: true}
	}

	switch {
	case key != "" && before.key != key:
		b.logger.Warn(text, zap.String("subject", subject))
	case key == "" && before.key != "":
		b.logger.Info("well again", zap.String("subject", subject))
	}
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

// Err is the troubles and then the warnings in one line, nil without any. Needs
// that are not yet known are no trouble.
func (b *Board) Err() error {
	if t := append(b.troubles(false), b.warnings()...); len(t) > 0 {
		return errors.New(strings.Join(t, "; "))
	}

	return nil
}

// warnings are one line for each warning.
func (b *Board) warnings() []string {
	return b.lines(func(subject string, c condition) string {
		if !c.warning {
			return ""
		}

		return "warning: " + subject + ": " + c.text
	})
}

func (b *Board) troubles(unknownToo bool) []string {
	return b.lines(func(need string, c condition) string {
		if !c.warning && (c.key != "" || !c.known && unknownToo) {
			return need + ": " + c.text
		}

		return ""
	})
}

func (b *Board) lines(of func(name string, c condition) string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()

	var out []string

	for name, c := range b.conditions {
		if line := of(name, c); line != "" {
			out = append(out, line)
		}
	}

	slices.Sort(out)

	return out
}
