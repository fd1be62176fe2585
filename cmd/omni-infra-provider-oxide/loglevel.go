package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// switchLevel has SIGUSR1 turn the log to debug, and SIGUSR2 back to the level of
// the configuration, until ctx ends.
func switchLevel(ctx context.Context, logger *zap.Logger, level zap.AtomicLevel, configured zapcore.Level) {
	signals := make(chan os.Signal, 4)

	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)

	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			to := configured
			if s == syscall.SIGUSR1 {
				to = zapcore.DebugLevel
			}

			// Told at whichever of the two levels says more.
			level.SetLevel(min(level.Level(), to, zapcore.InfoLevel))
			logger.Info("the log's level is set", zap.Stringer("level", to))
			level.SetLevel(to)
		}
	}
}
