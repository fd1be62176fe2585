package rack

import (
	"fmt"

	"github.com/google/uuid"
)

// migration is a running instance on its way to another sled; both hold its
// reservation.
type migration struct {
	id     string
	target *sled
}

// Migrate moves a running instance to another sled, as an update of the rack
// does. Its guest notices nothing.
func (s *Server) Migrate(id string) error {
	return s.running(id, s.migrate)
}

func (s *Server) migrate(i *instance) error {
	if i.hasLocal() {
		return fmt.Errorf("instance %s has local disks: it stays where they are", i.id)
	}

	target := s.place(i, i.sled)
	if target == nil {
		return fmt.Errorf("no other sled has room for instance %s", i.id)
	}

	target.take(i)
	i.migration = &migration{uuid.NewString(), target}
	i.become(stateMigrating)
	gen := i.gen

	s.later(s.cfg.Latencies.Migrate, func() {
		if i.gen != gen {
			return
		}

		i.sled.give(i)
		i.sled, i.migration = target, nil
		i.become(stateRunning)

		if i.intent == intentStopped { // asked for meanwhile
			s.endVM(i, s.cfg.Latencies.Stop, stateStopped)
		}
	})

	return nil
}
