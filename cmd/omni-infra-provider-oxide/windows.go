package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/recent"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/systemd"
)

// windows are what others see of the daemon, beside Omni: its log, its HTTP
// address and what systemd is told.
type windows struct {
	level   zap.AtomicLevel
	recent  *recent.Lines
	metrics *metrics.Metrics
}

func newWindows(cfg config.Config) (*windows, *zap.Logger, error) {
	w := &windows{level: zap.NewAtomicLevelAt(cfg.Log.Level), recent: &recent.Lines{}, metrics: metrics.New()}

	logger, err := newLoggerAt(cfg.Log, w.level)
	if err != nil {
		return nil, nil, err
	}

	return w, logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewTee(c, w.recent.Core())
	})), nil
}

// open shows the daemon until the function that it returns is called.
func (w *windows) open(ctx context.Context, cfg config.Config, logger *zap.Logger, board *health.Board) (func(), error) {
	notifier, err := systemd.New(os.LookupEnv)
	if err != nil {
		return nil, err
	}

	board.Mount("GET /metrics", w.metrics.Handler())
	board.Mount("GET /debug/recent", w.recent.Handler())
	board.Mount("GET /debug/goroutines", recent.Goroutines())

	var l net.Listener

	if cfg.HealthAddress != "" {
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HealthAddress); err != nil {
			return nil, fmt.Errorf("listening for health probes: %w", err)
		}
	}

	closeProfiles := func() {}

	if cfg.ProfileAddress != "" {
		if closeProfiles, err = openProfiles(ctx, cfg.ProfileAddress, logger); err != nil {
			if l != nil {
				_ = l.Close()
			}

			return nil, err
		}
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))

	var open sync.WaitGroup

	if l != nil {
		open.Go(func() {
			if err := board.Serve(ctx, l); err != nil {
				logger.Error("health is no longer served", zap.Error(err))
			}
		})
	}

	open.Go(func() { switchLevel(ctx, logger, w.level, cfg.Log.Level) })
	open.Go(func() {
		notifier.Run(ctx, board.Line, func(err error) { logger.Warn("systemd can not be told", zap.Error(err)) })
	})

	return func() {
		cancel()
		closeProfiles()
		open.Wait()
	}, nil
}
