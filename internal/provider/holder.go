package provider

import (
	"context"
	"sync"
)

// holderLoops are the loops of whoever works for the provider ID, beside the
// SDK's Run. Each begins under the first link to Omni, when the owner is known
// and d.state answers; it must return soon after its context has ended, and has
// returned before another process works for the ID.
func (d *Daemon) holderLoops() []func(ctx context.Context) {
	return []func(ctx context.Context){d.clean, d.prune, d.watch, d.observe}
}

// hold works for the provider ID until held ends, and has ended all of it when it
// returns. Only d.work goes on when a lease was lost, as it may come back; retire
// ends it. daemon is the context of the whole daemon, which fail ends.
func (d *Daemon) hold(daemon, held context.Context, fail context.CancelCauseFunc) error {
	if d.stale {
		d.retire()
	}

	// Whatever ends with the daemon ends while the lease is still held.
	defer func() {
		if daemon.Err() != nil {
			d.retire()
		}
	}()

	ctx, cancel := context.WithCancel(held)

	var loops sync.WaitGroup

	defer loops.Wait()
	defer cancel()

	begin := sync.OnceFunc(func() {
		for _, loop := range d.holderLoops() {
			loops.Go(func() { loop(ctx) })
		}
	})

	return d.supervise(ctx, func(owner string) {
		if d.work == nil {
			d.startWork(daemon, owner, fail)
		}

		begin()
	})
}

// startWork begins what outlives links and goes on while nobody else works for
// the provider ID: uploads, for one.
func (d *Daemon) startWork(daemon context.Context, owner string, fail context.CancelCauseFunc) {
	images := d.makeWork(owner)

	var ctx context.Context

	ctx, d.endWork = context.WithCancel(daemon)

	d.working.Go(func() {
		if err := images.Run(ctx); err != nil {
			fail(err)
		}
	})
}

// retire ends the work and waits for it.
func (d *Daemon) retire() {
	if d.work == nil {
		return
	}

	d.endWork()
	d.working.Wait()
	d.scene.work.Store(nil)
	d.work, d.stale = nil, false
}
