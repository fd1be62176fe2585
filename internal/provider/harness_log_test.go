package provider

import (
	"fmt"
	"strings"

	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// logText is the log so far at info and above.
func (b *bench) logText() string { return text(b.logged(zapcore.InfoLevel)) }

// logged are the lines at or above a level.
func (b *bench) logged(level zapcore.Level) []entry {
	var out []entry

	for _, e := range b.logs.All() {
		if e.Level >= level {
			out = append(out, e)
		}
	}

	return out
}

type entry = observer.LoggedEntry

func text(entries []entry) string {
	var s strings.Builder

	for _, e := range entries {
		fmt.Fprintf(&s, "%s %s %v\n", e.Level, e.Message, e.ContextMap())
	}

	return s.String()
}
