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
	return []func(ctx context.Context){d.clean, d.watch}
}

// hold works for the provider ID until ctx ends, and has ended all of it when it
// returns, but for d.work, which retire ends. fail ends the daemon.
func (d *Daemon) hold(ctx context.Context, fail context.CancelCauseFunc) error {
	ctx, cancel := context.WithCancel(ctx)

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
			d.startWork(ctx, owner, fail)
		}

		begin()
	})
}

// startWork begins what outlives links and goes on while nobody else works for
// the provider ID: uploads, for one.
func (d *Daemon) startWork(ctx context.Context, owner string, fail context.CancelCauseFunc) {
	images := d.makeWork(owner)

	ctx, d.endWork = context.WithCancel(context.WithoutCancel(ctx))

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
	d.work = nil
}
