// Package health knows whether the daemon can do its work, and says why not in
// one line: to Omni, to a probe over HTTP, and once per change to the log.
//
// A need is something without which the daemon can not do its work; while one is
// not met, /readyz answers 503. A note is something that a person should look at
// although the daemon works on, such as a machine that stopped: it stands on
// /readyz, which still answers 200, and in Omni after the troubles.
package health

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
)

// Board holds one condition for each thing that the daemon needs. It is safe
// for concurrent use.
type Board struct {
	logger *zap.Logger
	needs  []string

	mu         sync.Mutex
	conditions map[string]condition
	role       string
	mounted    map[string]http.Handler

	probe chan struct{}
}

// condition is what is known of one need or other subject. An empty key is good.
type condition struct {
	key, text string
	known     bool
	// note says that the daemon works all the same.
	note bool
}

// NewBoard makes a board on which none of the needs is known to be met.
func NewBoard(logger *zap.Logger, needs ...string) *Board {
	b := &Board{logger: logger, needs: needs, conditions: map[string]condition{}, probe: make(chan struct{}, 1)}

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

// Note says that a person should look at something while the daemon does its
// work all the same: Omni shows it, and the probe stays ready. key is as for
// Trouble. OK ends it.
func (b *Board) Note(subject, key, text string) {
	b.put(subject, condition{key: key, text: strings.Join(strings.Fields(text), " "), known: true, note: true})
}

// Withdraw takes a note off the board without a word: whoever made it no longer
// knows.
func (b *Board) Withdraw(subject string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.conditions[subject].note {
		delete(b.conditions, subject)
	}
}

func (b *Board) set(need, key, text string) {
	b.put(need, condition{key: key, text: text, known: true})
}

func (b *Board) put(name string, c condition) {
	b.mu.Lock()
	defer b.mu.Unlock()

	before := b.conditions[name]
	b.conditions[name] = c

	switch {
	case c.key == "":
		if before.known && before.key != "" {
			b.logger.Info("well again", zap.String("need", name))
		}
	case before.known && before.key == c.key:
	case c.note:
		b.logger.Warn("needs a look: "+c.text, zap.String("need", name))
	default:
		b.logger.Warn("not ready: "+c.text, zap.String("need", name))
	}
}

// Role sets what this process is among its replicas, for /healthz.
func (b *Board) Role(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.role = text
}

// Line is all of it in one line: the role, and the troubles and notes or that all
// is well.
func (b *Board) Line() string {
	parts := append(b.troubles(true), b.notes()...)
	if len(parts) == 0 {
		parts = []string{"well"}
	}

	line := strings.Join(parts, "; ")
	if role := b.roleLine(); role != "" {
		line = role + ": " + line
	}

	return line
}

func (b *Board) roleLine() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.role
}

// Ready says whether all needs are met. What is only noted does not count.
func (b *Board) Ready() bool { return len(b.troubles(true)) == 0 }

// Err is the troubles and then the notes in one line, nil without any. Needs
// that are not yet known are no trouble.
func (b *Board) Err() error {
	if t := append(b.troubles(false), b.notes()...); len(t) > 0 {
		return errors.New(strings.Join(t, "; "))
	}

	return nil
}

// Needs says of each need whether it is met.
func (b *Board) Needs() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	met := map[string]bool{}

	for _, n := range b.needs {
		c := b.conditions[n]
		met[n] = c.known && c.key == ""
	}

	return met
}

// Subjects are those of all notes.
func (b *Board) Subjects() []string {
	return b.lines(func(subject string, c condition) string {
		if !c.note {
			return ""
		}

		return subject
	})
}

func (b *Board) notes() []string {
	return b.lines(func(subject string, c condition) string {
		if !c.note {
			return ""
		}

		return subject + ": " + c.text
	})
}

func (b *Board) troubles(unknownToo bool) []string {
	return b.lines(func(need string, c condition) string {
		if !c.note && (c.key != "" || !c.known && unknownToo) {
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
