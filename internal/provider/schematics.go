package provider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/siderolabs/image-factory/pkg/schematic"
	"github.com/siderolabs/omni/client/pkg/infra/provision"
	"golang.org/x/sync/singleflight"
)

// schematicLife is how long an ID is believed without asking the factory again.
const schematicLife = 10 * time.Minute

// schematicCache registers each schematic once for all requests that want it:
// fifty machines of a class ask for the same one, each in a worker that others
// wait for.
type schematicCache struct {
	provision.FactoryClient

	flight singleflight.Group

	mu    sync.Mutex
	known map[string]registered
}

type registered struct {
	id string
	at time.Time
}

func newSchematicCache(c provision.FactoryClient) *schematicCache {
	return &schematicCache{FactoryClient: c, known: map[string]registered{}}
}

// anew marks a context in which the cache is not believed.
type anew struct{}

// EnsureSchematic implements provision.FactoryClient. The factory may add to a
// schematic, so the ID is the one that it answered, kept by the schematic's own.
func (c *schematicCache) EnsureSchematic(ctx context.Context, s schematic.Schematic) (string, error) {
	key, err := s.ID()
	if err != nil {
		return "", err
	}

	c.mu.Lock()
	k, found := c.known[key]
	c.mu.Unlock()

	if found && time.Since(k.at) < schematicLife && ctx.Value(anew{}) == nil {
		return k.id, nil
	}

	answer := c.flight.DoChan(key, func() (id any, err error) {
		// A panic here would be nobody's to recover.
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("registering the schematic: %v", r)
			}
		}()

		// The first who asks must not take the answer away from the others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), schematicDeadline)
		defer cancel()

		given, err := c.FactoryClient.EnsureSchematic(ctx, s)
		if err != nil {
			return "", err
		}

		c.mu.Lock()
		c.known[key] = registered{id: given, at: time.Now()}
		c.mu.Unlock()

		return given, nil
	})

	select {
	case r := <-answer:
		id, _ := r.Val.(string)

		return id, r.Err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
