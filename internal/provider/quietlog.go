package provider

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
)

// What is logged with the stack of a panic.
const (
	stepPanicked     = "step panicked"
	teardownPanicked = "teardown panicked"
)

// requestField names the request that a line is about.
const requestField = "omni.request.id"

// quietCore takes out of the log what is no news. The COSI runtime logs every
// requeue with a reason as an error, and the SDK every run of every step and
// every failure each minute; a machine that waits for its image, or a class with
// a mistake in it, would fill the log. The reasons stand in Omni; the log has
// each failure once, and again when it changes.
type quietCore struct {
	zapcore.Core

	// request is the ID of the request that the logger is for.
	request string
	said    *said
}

// said holds the last failure logged for each request.
type said struct {
	mu       sync.Mutex
	failures map[string]string
}

// Quiet wraps the logger that is handed to the SDK.
func Quiet(logger *zap.Logger) *zap.Logger {
	return logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return quietCore{Core: c, said: &said{failures: map[string]string{}}}
	}))
}

// With implements zapcore.Core.
func (c quietCore) With(fields []zapcore.Field) zapcore.Core {
	before := c.request

	for _, f := range fields {
		if f.Key == "id" && f.Type == zapcore.StringType {
			c.request = f.String
		}
	}

	// The SDK names the request in words of its own; ours stand on each line, once.
	if c.request != before {
		fields = append(slices.Clone(fields), zap.String(requestField, c.request))
	} else if c.request != "" {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f zapcore.Field) bool { return f.Key == requestField && f.String == c.request })
	}

	c.Core = c.Core.With(fields)

	return c
}

// Check implements zapcore.Core. The level is decided in Write, which sees the
// fields.
func (c quietCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}

	return ce
}

// Write implements zapcore.Core.
func (c quietCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	switch e.Message {
	case "running provision step", "reconcile succeeded":
		e.Level = zapcore.DebugLevel
	case "machine provision finished", "machine deprovisioned":
		c.said.forget(c.request)
	case stepPanicked, teardownPanicked:
		// Tried again each minute, and the stack is long.
		if err := errorField(fields); err != nil && !c.said.news(c.request+"/"+e.Message, err.Error()) {
			e.Level = zapcore.DebugLevel
		}
	case "reconcile failed", "machine provision failed", "controller failed":
		e.Level = c.failure(e, errorField(fields))
	}

	if !c.Enabled(e.Level) {
		return nil
	}

	return c.Core.Write(e, fields)
}

// failure is the level of a failed reconcile.
func (c quietCore) failure(e zapcore.Entry, err error) zapcore.Level {
	switch {
	case isA[*waiting](err):
		return zapcore.DebugLevel
	case err != nil && linkBroken(err):
		// The health board tells of a link that is down. Where it can not see the
		// trouble, the first line of it is here.
		if code := codeOf(err); code != codes.Canceled && !errors.Is(err, context.Canceled) && c.said.news("", code.String()) {
			return zapcore.WarnLevel
		}

		return zapcore.DebugLevel
	case !isA[*mending](err):
		return e.Level
	case e.Message == "reconcile failed", !c.said.news(c.request, err.Error()):
		return zapcore.DebugLevel
	default:
		// A person must act, and it is not the daemon that is broken.
		return zapcore.WarnLevel
	}
}

// linkBroken says that the failure is one of the link to Omni, of which the health
// board tells once.
func linkBroken(err error) bool {
	switch codeOf(err) {
	case codes.Unavailable, codes.Unauthenticated, codes.Canceled, codes.DeadlineExceeded:
		return true
	default:
		return errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "Unauthenticated") ||
			strings.Contains(err.Error(), "code = Unavailable") || strings.Contains(err.Error(), "code = Canceled")
	}
}

// news says whether the failure is another one than the last; numbers in it,
// such as the rack's request IDs, make no difference.
func (s *said) news(request, failure string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	failure = withoutIDs(failure)
	if s.failures[request] == failure {
		return false
	}

	s.failures[request] = failure

	return true
}

func (s *said) forget(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.failures, request)
	delete(s.failures, request+"/"+stepPanicked)
	delete(s.failures, request+"/"+teardownPanicked)
}

// withoutIDs takes out the words that hold a digit.
func withoutIDs(s string) string {
	words := strings.Fields(s)

	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return strings.ContainsAny(w, "0123456789") }), " ")
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)

	return ok
}

func errorField(fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			return err
		}
	}

	return nil
}
