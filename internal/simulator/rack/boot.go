package rack

import (
	"context"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
)

// Booter runs a guest until it halts or ctx ends.
type Booter interface {
	Boot(ctx context.Context, hw guest.Hardware, log *zap.Logger) guest.Exit
}

// Guests is the Booter that runs simulated Talos machines.
type Guests struct{}

// Boot runs a machine to its end.
func (Guests) Boot(ctx context.Context, hw guest.Hardware, log *zap.Logger) guest.Exit {
	return guest.Run(ctx, hw, log)
}

// vm is a guest under way; done closes when it has ended.
type vm struct {
	cidata []byte
	cancel context.CancelFunc
	done   chan struct{}
}

// boot runs the guest of an instance that has come to run. Held: s.mu.
func (s *Server) boot(i *instance, cidata []byte) {
	ctx, cancel := context.WithCancel(s.ctx)
	v := &vm{cidata: cidata, cancel: cancel, done: make(chan struct{})}
	i.vm = v

	if s.cfg.Booter == nil || s.closed {
		close(v.done)

		return
	}

	hw := s.hardware(i, cidata)
	log := s.log.With(zap.String("oxide.instance.id", i.id), zap.String("oxide.instance.name", i.name))

	s.spawn(func() {
		exit := s.cfg.Booter.Boot(ctx, hw, log)
		cancel()
		close(v.done)

		if exit != guest.ExitPowerOff {
			return // stopped from outside, or nothing bootable: the VM idles in its firmware
		}

		s.mu.Lock()
		defer s.mu.Unlock()

		if i.vm == v && (i.state == stateRunning || i.state == stateMigrating) {
			s.guestHalted(i) //nolint:contextcheck // a later boot has a context of its own, not that of this guest
		}
	})
}

// halt ends the guest; the channel closes when it is gone.
func (i *instance) halt() <-chan struct{} {
	v := i.vm
	i.vm = nil

	if v == nil {
		none := make(chan struct{})
		close(none)

		return none
	}

	v.cancel()

	return v.done
}

func (s *Server) hardware(i *instance, cidata []byte) guest.Hardware {
	hw := guest.Hardware{
		UUID: i.id, CIData: cidata, Hostname: i.hostname, TimeScale: s.cfg.TimeScale,
	}

	if s.cfg.SwapGuestUUID {
		hw.UUID = swapUUID(i.id)
	}

	if d, found := s.disks.get(i.bootDisk); found {
		hw.BootDisk, hw.BootDiskSize, hw.Store = d.content, d.size, d.store
	}

	for _, n := range i.nics {
		if n.v4.IsValid() {
			hw.Addresses = append(hw.Addresses, n.v4.String())
		}

		if n.v6.IsValid() {
			hw.Addresses = append(hw.Addresses, n.v6.String())
		}
	}

	return hw
}

// swapUUID reverses the bytes of the first three groups.
func swapUUID(id string) string {
	u, err := uuid.Parse(id)
	if err != nil {
		return id
	}

	u[0], u[1], u[2], u[3] = u[3], u[2], u[1], u[0]
	u[4], u[5] = u[5], u[4]
	u[6], u[7] = u[7], u[6]

	return u.String()
}
