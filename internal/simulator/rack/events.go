package rack

import "fmt"

// Crash makes an instance's VM fail, as a lost sled or hypervisor would.
func (s *Server) Crash(id string) error {
	return s.event(id, func(i *instance) { s.endVM(i, s.cfg.Latencies.Fail, stateFailed) })
}

// GuestPowerOff makes a guest halt itself: the instance stops and stays so.
func (s *Server) GuestPowerOff(id string) error {
	return s.event(id, s.guestHalted)
}

func (s *Server) guestHalted(i *instance) {
	if i.intent == intentRunning {
		i.intent = intentGuestShutdown
	}

	s.endVM(i, s.cfg.Latencies.Fail, stateStopped)
}

// GuestReboot makes a guest begin anew by itself.
func (s *Server) GuestReboot(id string) error {
	return s.running(id, func(i *instance) error {
		s.reboot(i)

		return nil
	})
}

// running applies what happens only to an instance that runs.
func (s *Server) running(id string, f func(*instance) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, found := s.instances.get(id)
	if !found {
		return notFound(kindInstance, id)
	}

	if i.state != stateRunning {
		return fmt.Errorf("instance %s is %s, not running", id, i.state)
	}

	return f(i)
}

func (s *Server) event(id string, f func(*instance)) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, found := s.instances.get(id)
	if !found {
		return notFound(kindInstance, id)
	}

	if !i.hasVM() {
		return fmt.Errorf("instance %s is %s and has no running VM", id, i.state)
	}

	f(i)

	return nil
}

// hasVM says whether there is a VM that can be stopped or fail.
func (i *instance) hasVM() bool {
	switch i.state {
	case stateStarting, stateRunning, stateRebooting, stateMigrating:
		return true
	case stateCreating, stateStopping, stateStopped, stateFailed:
	}

	return false
}
