package rack

import (
	"time"

	"go.uber.org/zap"
)

// start is the start saga: charge, place, and let the VM come up. On an error
// nothing has changed. Held: s.mu.
func (s *Server) start(i *instance) error {
	if i.ncpus == 0 {
		return internal() // no hypervisor makes such a VM
	}

	cidata, err := s.cidata(i)
	if err != nil {
		s.log.Warn("config disk could not be made", zap.String("oxide.instance.id", i.id), zap.Error(err))

		return internal()
	}

	if err := s.reserve(i); err != nil {
		return err
	}

	if err := s.sledAnswer(i.sled); err != nil {
		s.release(i)

		return err
	}

	i.intent = intentRunning
	i.natLost = false
	i.become(stateStarting)
	gen := i.gen

	// The VM comes up when the saga has ended, in which the caller waits.
	s.later(s.cfg.Latencies.InstanceStart+s.cfg.Latencies.Start, func() {
		s.stuck(kindInstance, string(stateStarting), &i.meta)

		if i.gen == gen {
			i.become(stateRunning)
			s.boot(i, cidata)
		}
	})

	return nil
}

func (s *Server) instanceStart(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	switch i.state {
	case stateCreating:
		return answer{}, conflict("instance is still being created")
	case stateStopping:
		return answer{}, conflict("instance must finish stopping before it can be started")
	case stateStarting, stateRunning, stateRebooting, stateMigrating:
		return accepted(s.viewInstance(i)), nil
	case stateStopped, stateFailed:
	}

	if err := s.start(i); err != nil {
		return answer{}, err
	}

	s.saga(s.cfg.Latencies.InstanceStart)

	return accepted(s.viewInstance(i)), nil
}

func (s *Server) instanceStop(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if i.state == stateCreating {
		return answer{}, invalidRequest("instance is still being created")
	}

	if c.fault.Action == ActionLostStop {
		return accepted(s.viewInstance(i)), nil
	}

	i.intent = intentStopped

	if err := s.sledAnswer(i.sled); err != nil {
		return answer{}, err
	}

	switch i.state {
	case stateFailed:
		i.become(stateStopped)
	case stateStarting, stateRunning, stateRebooting:
		s.endVM(i, s.cfg.Latencies.Stop, stateStopped)
	case stateCreating, stateStopping, stateStopped, stateMigrating:
		// A migration goes on to its end first.
	}

	return accepted(s.viewInstance(i)), nil
}

func (s *Server) instanceReboot(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if i.state != stateRunning && i.state != stateRebooting {
		return answer{}, invalidRequest("instance state cannot be changed from state %q", string(i.state))
	}

	if err := s.sledAnswer(i.sled); err != nil {
		return answer{}, err
	}

	s.reboot(i)

	return accepted(s.viewInstance(i)), nil
}

// reboot lets the guest begin anew. Held: s.mu.
func (s *Server) reboot(i *instance) {
	// The config disk is made at a start, not at a reboot.
	cidata := i.vm.cidata
	down := i.halt()

	i.become(stateRebooting)
	gen := i.gen

	s.spawn(func() {
		if !s.pause(s.cfg.Latencies.Reboot) {
			return
		}

		<-down

		s.mu.Lock()
		defer s.mu.Unlock()

		s.stuck(kindInstance, string(stateRebooting), &i.meta)

		if i.gen == gen {
			i.become(stateRunning)
			s.boot(i, cidata)
		}
	})
}

// endVM takes an instance through stopping to its end state, when the guest is
// gone and the time has passed. Held: s.mu.
func (s *Server) endVM(i *instance, after time.Duration, end runState) {
	down := i.halt()

	i.become(stateStopping)
	gen := i.gen

	s.spawn(func() {
		if !s.pause(after) {
			return
		}

		<-down

		s.mu.Lock()
		defer s.mu.Unlock()

		s.stuck(kindInstance, string(stateStopping), &i.meta)

		if i.gen != gen {
			return
		}

		s.release(i)
		i.become(end)

		if end == stateFailed {
			s.restartLater(i)
		}
	})
}

// restartLater starts a failed instance again by itself, once the cool-down
// since the last such start is over, if it should be running. Held: s.mu.
func (s *Server) restartLater(i *instance) {
	if i.policy == "never" || i.intent != intentRunning {
		return
	}

	wait := s.cfg.Latencies.Fail

	if !i.lastRestart.IsZero() {
		passed := time.Duration(float64(s.clock.Now().Sub(i.lastRestart)) / s.cfg.TimeScale)
		wait = max(wait, s.cfg.Latencies.RestartCooldown-passed)
	}

	gen := i.gen

	s.later(wait, func() {
		if i.gen != gen || i.intent != intentRunning || i.policy == "never" {
			return
		}

		i.lastRestart = s.clock.Now().UTC()

		if err := s.start(i); err != nil {
			s.log.Info("failed instance could not be restarted", zap.String("oxide.instance.id", i.id), zap.Error(err))
			s.restartLater(i)
		}
	})
}
