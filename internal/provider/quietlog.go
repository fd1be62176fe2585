package provider

import (
	"errors"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// QuietCore takes out of the log what is no news. The COSI runtime logs every
// requeue with a reason as an error, and the SDK every run of every step; a
// machine that waits for its image would fill the log. The reasons stand in
// Omni, and failures are logged by the SDK once before the runtime repeats them.
type QuietCore struct{ zapcore.Core }

// Quiet wraps the logger that is handed to the SDK.
func Quiet(logger *zap.Logger) *zap.Logger {
	return logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return QuietCore{c} }))
}

// With implements zapcore.Core.
func (c QuietCore) With(fields []zapcore.Field) zapcore.Core { return QuietCore{c.Core.With(fields)} }

// Check implements zapcore.Core. The level is decided in Write, which sees the
// fields.
func (c QuietCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}

	return ce
}

// Write implements zapcore.Core.
func (c QuietCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	switch e.Message {
	case "running provision step", "reconcile succeeded":
		e.Level = zapcore.DebugLevel
	case "reconcile failed", "machine provision failed":
		switch err := errorField(fields); {
		case isA[*waiting](err):
			e.Level = zapcore.DebugLevel
		case isA[*mending](err) && e.Message == "reconcile failed":
			e.Level = zapcore.DebugLevel
		case isA[*mending](err):
			// A person must act, and it is not the daemon that is broken.
			e.Level = zapcore.WarnLevel
		}
	}

	if !c.Enabled(e.Level) {
		return nil
	}

	return c.Core.Write(e, fields)
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
