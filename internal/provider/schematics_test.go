package provider

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/image-factory/pkg/schematic"
)

// slowFactory answers after a while, and counts.
type slowFactory struct {
	mu    sync.Mutex
	calls int
	err   error
}

func (f *slowFactory) EnsureSchematic(ctx context.Context, s schematic.Schematic) (string, error) {
	f.mu.Lock()
	f.calls++
	err := f.err
	f.mu.Unlock()

	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(5 * time.Second):
	}

	if err != nil {
		return "", err
	}

	id, err := s.ID()

	return "by-the-factory-" + id, err
}

func TestASchematicIsRegisteredOnceForAllWhoWantIt(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		f := &slowFactory{}
		c := newSchematicCache(f)
		other := schematic.Schematic{Customization: schematic.Customization{ExtraKernelArgs: []string{"a"}}}

		var group sync.WaitGroup

		for range 50 {
			group.Go(func() {
				if id, err := c.EnsureSchematic(t.Context(), schematic.Schematic{}); err != nil || len(id) < 64 {
					t.Errorf("got %q, %v", id, err)
				}
			})
		}

		group.Wait()

		if f.calls != 1 {
			t.Errorf("%d registrations", f.calls)
		}

		if _, err := c.EnsureSchematic(t.Context(), other); err != nil || f.calls != 2 {
			t.Errorf("another schematic: %d registrations, %v", f.calls, err)
		}

		if _, err := c.EnsureSchematic(context.WithValue(t.Context(), anew{}, true), other); err != nil || f.calls != 3 {
			t.Errorf("asked anew: %d registrations, %v", f.calls, err)
		}

		time.Sleep(schematicLife)

		if _, err := c.EnsureSchematic(t.Context(), other); err != nil || f.calls != 4 {
			t.Errorf("after a while: %d registrations, %v", f.calls, err)
		}
	})
}

func TestAFailedRegistrationIsNotKept(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		f := &slowFactory{err: errors.New("away")}
		c := newSchematicCache(f)

		if _, err := c.EnsureSchematic(t.Context(), schematic.Schematic{}); err == nil {
			t.Error("no error")
		}

		f.err = nil

		if _, err := c.EnsureSchematic(t.Context(), schematic.Schematic{}); err != nil {
			t.Error(err)
		}

		// Who gives up waiting takes the answer from nobody.
		impatient, cancel := context.WithTimeout(context.WithValue(t.Context(), anew{}, true), time.Second)
		defer cancel()

		if _, err := c.EnsureSchematic(impatient, schematic.Schematic{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}

		time.Sleep(time.Minute)
	})
}
