// Package recent remembers the last lines of the log at warn and above, for a
// support bundle.
package recent

import (
	"encoding/json"
	"net"
	"net/http"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

// kept is how many lines are remembered, and maxText bounds the text of each.
const (
	kept    = 200
	maxText = 4 << 10
)

// Lines remembers.
type Lines struct {
	mu    sync.Mutex
	lines []Line
	next  int
}

// Line is one line of the log.
type Line struct {
	At     time.Time      `json:"at"`
	Level  string         `json:"level"`
	Text   string         `json:"text"`
	Fields map[string]any `json:"fields,omitempty"`
}

// All are the lines remembered, the oldest first.
func (l *Lines) All() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.lines) < kept {
		return slices.Clone(l.lines)
	}

	return append(slices.Clone(l.lines[l.next:]), l.lines[:l.next]...)
}

func (l *Lines) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.lines) < kept {
		l.lines = append(l.lines, line)

		return
	}

	l.lines[l.next] = line
	l.next = (l.next + 1) % kept
}

// Core is a core that remembers what is written at warn and above, beside another
// one that logs.
func (l *Lines) Core() zapcore.Core { return core{lines: l} } //nolint:ireturn // as zap wants

type core struct {
	lines  *Lines
	fields []zapcore.Field
}

// Enabled implements zapcore.Core.
func (c core) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core { //nolint:ireturn // as zap wants
	return core{lines: c.lines, fields: append(slices.Clip(slices.Clone(c.fields)), fields...)}
}

// Check implements zapcore.Core.
func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}

	return ce
}

// Write implements zapcore.Core.
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()

	for _, f := range append(slices.Clone(c.fields), fields...) {
		f.AddTo(enc)
	}

	text := e.Message
	if len(text) > maxText {
		text = text[:maxText]
	}

	c.lines.add(Line{At: e.Time, Level: e.Level.String(), Text: text, Fields: enc.Fields})

	return nil
}

// Sync implements zapcore.Core.
func (c core) Sync() error { return nil }

// Handler serves the lines as JSON, for those on this host alone.
func (l *Lines) Handler() http.Handler {
	return local(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		_ = json.NewEncoder(w).Encode(l.All())
	})
}

// Goroutines serves the stacks of all goroutines, for those on this host alone.
func Goroutines() http.Handler {
	return local(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")

		// Without the values of arguments, which may be addresses of secrets.
		_ = pprof.Lookup("goroutine").WriteTo(w, 1)
	})
}

// local refuses who comes from another host.
func local(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			http.Error(w, "only for those on this host", http.StatusForbidden)

			return
		}

		h(w, r)
	})
}
