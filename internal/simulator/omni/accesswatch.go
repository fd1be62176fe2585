package omni

import (
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
)

// Watch implements state.CoreState.
func (g *gate) Watch(ctx context.Context, ptr resource.Pointer, ch chan<- state.Event, opts ...state.WatchOption) error {
	entered, err := g.enter(ctx, state.Watch, ptr.Namespace(), ptr.Type())
	if err != nil {
		return err
	}

	return g.store.Watch(ctx, ptr, filter(ctx, g, entered, ch, one), opts...)
}

// WatchKind implements state.CoreState.
func (g *gate) WatchKind(ctx context.Context, kind resource.Kind, ch chan<- state.Event, opts ...state.WatchKindOption) error {
	entered, err := g.enter(ctx, state.Watch, kind.Namespace(), kind.Type())
	if err != nil {
		return err
	}

	return g.store.WatchKind(ctx, kind, filter(ctx, g, entered, ch, one), opts...)
}

// WatchKindAggregated implements state.CoreState.
func (g *gate) WatchKindAggregated(ctx context.Context, kind resource.Kind, ch chan<- []state.Event, opts ...state.WatchKindOption) error {
	entered, err := g.enter(ctx, state.Watch, kind.Namespace(), kind.Type())
	if err != nil {
		return err
	}

	return g.store.WatchKindAggregated(ctx, kind, filter(ctx, g, entered, ch, several), opts...)
}

// one and several keep of what a watch delivers what the scope sees.
func one(entered scope, event state.Event) (state.Event, bool) {
	if !passes(entered, event) {
		return event, false
	}

	return own(event), true
}

func several(entered scope, events []state.Event) ([]state.Event, bool) {
	var kept []state.Event

	for _, event := range events {
		if passes(entered, event) {
			kept = append(kept, own(event))
		}
	}

	return kept, len(kept) > 0
}

// own is the event with resources of its own: the store hands the same ones to
// all who watch, and a message is written to while it is sent.
func own(event state.Event) state.Event {
	if event.Resource != nil {
		event.Resource = event.Resource.DeepCopy()
	}

	if event.Old != nil {
		event.Old = event.Old.DeepCopy()
	}

	return event
}

func passes(entered scope, event state.Event) bool {
	switch event.Type {
	case state.Created, state.Updated, state.Destroyed:
		return event.Resource == nil || entered.sees(event.Resource)
	case state.Bootstrapped, state.Errored, state.Noop:
		return true
	default:
		return true
	}
}

// filter returns a channel whose events go on to out if the scope sees them.
// The goroutine behind it ends with ctx.
func filter[E any](ctx context.Context, g *gate, entered scope, out chan<- E, keep func(scope, E) (E, bool)) chan<- E {
	in := make(chan E)

	g.filters.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-in:
				event, ok := keep(entered, event)
				if !ok {
					continue
				}

				select {
				case <-ctx.Done():
					return
				case out <- event:
				}
			}
		}
	})

	return in
}
