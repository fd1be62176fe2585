package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
)

// Glimpse is what the record says to somebody who only looks.
type Glimpse struct {
	// Holder is who holds the lease, by host if it has told one; empty when it is
	// free or was never taken.
	Holder string
	Term   uint64
	// Renewed is when the record was last written, by Omni's clock.
	Renewed time.Time
	// Duration is how long the holder may show no sign of life.
	Duration time.Duration
}

// Peek reads the record without taking part; nil if there is none.
func Peek(ctx context.Context, s Store, ns resource.Namespace, t resource.Type) (*Glimpse, error) {
	res, err := s.Get(ctx, resource.NewMetadata(ns, t, recordID, resource.VersionUndefined))
	if state.IsNotFoundError(err) {
		return nil, nil //nolint:nilnil // absence is an answer
	}

	if err != nil {
		return nil, fmt.Errorf("reading the lease from Omni: %w", err)
	}

	r, ok := res.(*Resource)
	if !ok {
		return nil, fmt.Errorf("reading the lease from Omni: it is a %T", res)
	}

	return &Glimpse{
		Holder: r.holder(), Term: r.Lease().GetTerm(), Renewed: r.md.Updated(), Duration: r.Lease().GetDuration().AsDuration(),
	}, nil
}
