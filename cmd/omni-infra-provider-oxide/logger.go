package main

import (
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
)

// newLogger logs to standard error, all lines: sampling would hide what an
// operator looks for.
func newLogger(cfg config.Log) (*zap.Logger, error) {
	return newLoggerAt(cfg, zap.NewAtomicLevelAt(cfg.Level))
}

// newLoggerAt is newLogger with a level that can be changed.
func newLoggerAt(cfg config.Log, level zap.AtomicLevel) (*zap.Logger, error) {
	z := zap.NewProductionConfig()
	z.Level = level
	z.Sampling = nil
	z.DisableCaller = true
	z.DisableStacktrace = true
	z.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	z.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder

	if cfg.Format == config.FormatConsole {
		z.Encoding = "console"
		z.EncoderConfig.EncodeLevel = zapcore.CapitalLevelEncoder
	}

	return z.Build()
}
