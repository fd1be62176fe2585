package rack

import (
	"context"
	"errors"
)

// errGaveUp ends calls that were let go on for as long as there was time.
var errGaveUp = errors.New("the daemon has no more time to wait for the rack's answer")

// Outliving is the same client, whose calls that change the rack are not cut off
// when the process is told to end: those that are in flight when stop ends have
// until end. The rack finishes what it began either way, but only who hears its
// answer can note what was made.
func (c *Client) Outliving(stop, end context.Context) *Client {
	longer := *c
	longer.stop, longer.end = stop, end

	return &longer
}

// outlive is the context of a call that begins now.
func (c *Client) outlive(ctx context.Context) (context.Context, func()) {
	if c.stop == nil || ctx.Err() != nil {
		return ctx, func() {}
	}

	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	calledOff := context.AfterFunc(ctx, func() {
		// A parent ends before its children do, so the end of the process shows.
		if c.stop.Err() == nil {
			cancel(context.Cause(ctx))
		}
	})
	late := context.AfterFunc(c.end, func() { cancel(errGaveUp) })

	return longer, func() {
		calledOff()
		late()
		cancel(nil)
	}
}
