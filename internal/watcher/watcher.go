// Package watcher looks after machines that are provisioned: nobody calls the
// provider for those any more, and Omni is minutes late to see that one is off.
//
// In each round it asks Omni once for all machines and the rack once for each
// project's complete list of instances, and compares. What it finds is logged
// once, counted, and stands in health until it has passed:
//
//	finding    the rack says                    the daemon does
//	stopped    stopped                          starts it, if its class asks so
//	failed     failed                           starts it, if its class asks so
//	vanished   not in the project's full list   nothing: only Omni ends a request
//	unjoined   anything, and Omni knows no      nothing
//	           machine of it long after its
//	           start
//
// A machine is never stopped or removed here. A project that can not be read
// hides its machines, which proves nothing about them: that is told instead.
package watcher

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	// roundAtMost bounds the pause between rounds while they fail.
	roundAtMost = 10 * time.Minute
	// listDeadline bounds one complete list of a project.
	listDeadline = 2 * time.Minute
)

// Machine is one whose request runs in Omni and was provisioned.
type Machine struct {
	RequestID, InstanceID, InstanceName, ProjectID, ProjectName string
	// RunningSince is when the instance was first seen running, by our clock.
	RunningSince time.Time
	// Joined says that Omni knows the machine.
	Joined bool
	// Restart says that the class wants it started when it is found stopped.
	Restart bool
}

// Rack is what the watcher asks of the rack.
type Rack interface {
	// SeekInstances lists a project's instances until enough are there, or all.
	SeekInstances(ctx context.Context, projectID string, enough rack.Enough[oxide.Instance]) ([]oxide.Instance, error)
	StartInstance(ctx context.Context, id string) error
}

// Omni is what the watcher asks of Omni.
type Omni interface {
	// Machines are all that are to be watched.
	Machines(ctx context.Context) ([]Machine, error)
	// Wanted says whether the request is still there and is not torn down.
	Wanted(ctx context.Context, requestID string) (bool, error)
}

// Board is where findings stand for people.
type Board interface {
	Note(subject, key, text string)
	OK(subject string)
	Withdraw(subject string)
}

// The subjects on the board.
const (
	SubjectMachines = "machines"
	SubjectProjects = "projects"
)

// Config says what is watched, and how.
type Config struct {
	Rack Rack
	Omni Omni
	// Ours says whether a description bears our mark for the request.
	Ours func(description, requestID string) bool
	// Mine says whether an instance's description bears any mark of ours; it may be
	// nil. Started counts a start, "ok" or "error"; it may be nil.
	Mine    func(description string) bool
	Started func(result string)
	// Every is the time between rounds, a minute if zero.
	Every time.Duration
	// JoinTime is how long after its start a machine may be unknown to Omni.
	JoinTime time.Duration
	Board    Board
	Logger   *zap.Logger
}

// Watcher watches. Its findings live as long as it does, over many calls of Run.
type Watcher struct {
	cfg Config

	mu     sync.Mutex
	counts Counts

	// What follows is of Run alone.
	findings map[string]finding
	starts   map[string]restart
}

// Counts are how many machines there were of each kind at the end of the last
// round, and how many starts were asked for so far.
type Counts struct {
	Watched, Stopped, Failed, Vanished, Unjoined, Unreadable int
	// Starts and StartErrors grow only.
	Starts, StartErrors int
	// States are the instances with our mark by state, in the projects of the
	// machines.
	States map[string]int
}

// New makes a watcher.
func New(cfg Config) *Watcher {
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}

	if cfg.Started == nil {
		cfg.Started = func(string) {}
	}

	return &Watcher{cfg: cfg, findings: map[string]finding{}, starts: map[string]restart{}}
}

// Counts is safe to call at any time.
func (w *Watcher) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.counts
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	pause := w.cfg.Every

	// Whoever watches next finds them again.
	defer w.cfg.Board.Withdraw(SubjectMachines)
	defer w.cfg.Board.Withdraw(SubjectProjects)

	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(spread(pause)):
		}

		if err := w.round(ctx); err != nil && ctx.Err() == nil {
			// Health tells of an Omni or a rack that is away.
			w.cfg.Logger.Debug("a round of watching machines failed", zap.Error(err))

			pause = min(2*pause, max(roundAtMost, w.cfg.Every))
		} else {
			pause = w.cfg.Every
		}
	}
}

// spread keeps many daemons of one rack from asking together.
func spread(d time.Duration) time.Duration {
	return d - d/8 + time.Duration(rand.Int64N(int64(d)/4+1)) //nolint:gosec // spreading load is no secret
}
