package image

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// maxRenewEvery is the time between two renewals, less for a short grace and
	// while people may want to see how far an upload is.
	maxRenewEvery = 30 * time.Second
	tellEvery     = 10 * time.Second
	renewDeadline = 15 * time.Second
)

// run is the record of this process. Its lock is a channel, so that waiting
// for a slow call to Omni obeys a context.
type run struct {
	lock     chan struct{}
	projects map[string]bool // in the record as last stored
}

// recordProject returns when the stored record names the project.
func (m *Manager) recordProject(ctx context.Context, projectID string) error {
	return m.withRecord(ctx, func(ctx context.Context) error {
		if m.run.projects[projectID] {
			return nil
		}

		projects := maps.Clone(m.run.projects)
		projects[projectID] = true

		if err := m.cfg.Runs.Renew(ctx, sorted(projects), m.Jobs()); err != nil {
			return fmt.Errorf("recording in Omni that an upload begins: %w", err)
		}

		m.run.projects = projects

		return nil
	})
}

// dropProject takes a project from the record, stored with the next renewal,
// if nothing of this process is in it.
func (m *Manager) dropProject(ctx context.Context, projectID string) error {
	return m.withRecord(ctx, func(context.Context) error {
		if !m.holding(projectID) {
			delete(m.run.projects, projectID)
		}

		return nil
	})
}

// recorded are the projects in the record.
func (m *Manager) recorded(ctx context.Context) ([]string, error) {
	var projects []string

	err := m.withRecord(ctx, func(context.Context) error {
		projects = sorted(m.run.projects)

		return nil
	})

	return projects, err
}

func (m *Manager) withRecord(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()

	select {
	case m.run.lock <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the record of this run: %w", context.Cause(ctx))
	}

	defer func() { <-m.run.lock }()

	return f(ctx)
}

// renewLoop keeps the record alive. Omni being away for a while is no reason to
// stop an upload.
func (m *Manager) renewLoop(ctx context.Context) {
	var (
		failing bool
		last    time.Time
		told    int
		most    = min(maxRenewEvery, m.cfg.Grace/4)
	)

	renew := func() {
		jobs := m.Jobs()
		if time.Since(last) < most && len(jobs) == 0 && told == 0 {
			return
		}

		last, told = time.Now(), len(jobs)

		err := m.withRecord(ctx, func(ctx context.Context) error {
			return m.cfg.Runs.Renew(ctx, sorted(m.run.projects), jobs)
		})

		if ctx.Err() != nil || (err != nil) == failing {
			return
		}

		failing = err != nil

		if failing {
			m.cfg.Log.Warn("the record of this run could not be renewed", zap.Error(err))
		} else {
			m.cfg.Log.Info("the record of this run is renewed again")
		}
	}

	renew()
	every(ctx, min(tellEvery, most), renew)
}

// endRun removes the record of a process that leaves nothing behind.
func (m *Manager) endRun(ctx context.Context) {
	if m.holding("") {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()

	if err := m.cfg.Runs.Forget(ctx, m.cfg.Run); err != nil {
		m.cfg.Log.Info("the record of this run is left to a later process", zap.Error(err))
	}
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
