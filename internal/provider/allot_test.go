package provider

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/state"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

var errNoneFree = errors.New("none is free")

// takeLowest takes the lowest address of n that no other plan has.
func takeLowest(plan *specs.Plan, n int) func([]*specs.Plan) error {
	return func(others []*specs.Plan) error {
		taken := map[string]bool{}

		for _, o := range others {
			for _, nic := range o.GetNics() {
				taken[nic.GetIpv4()] = true
			}
		}

		for i := range n {
			if a := fmt.Sprintf("10.0.0.%d", i); !taken[a] {
				plan.Nics = []*specs.NicPlan{{Ipv4: a}}

				return nil
			}
		}

		return errNoneFree
	}
}

// Invariant: two plans never have the same part of what machines share, whether
// they are made at the same time, fail to be stored, or change before they are.
func TestPlansNeverShareAPart(t *testing.T) {
	t.Parallel()

	const (
		requests = 12
		parts    = 7
		rounds   = 25
	)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	bubble(t, func(t *testing.T, b *bench) {
		var (
			mu  sync.Mutex
			has = map[string]string{} // part to request
			all sync.WaitGroup
		)

		owns := func(part, request string) {
			mu.Lock()
			defer mu.Unlock()

			if other := has[part]; other != "" && other != request {
				t.Errorf("%s has %s, and so has %s", request, part, other)
			}

			has[part] = request
		}

		leaves := func(request string, but string) {
			mu.Lock()
			defer mu.Unlock()

			for part, of := range has {
				if of == request && part != but {
					delete(has, part)
				}
			}
		}

		for i := range requests {
			all.Go(func() {
				id, rng := fmt.Sprintf("r%d", i), rand.New(rand.NewPCG(seed, uint64(i)))

				for range rounds {
					b.store(id, stepPlan, &specs.InstanceSpec{})

					plan := &specs.Plan{RequestId: id}

					for b.work.allot(t.Context(), plan, takeLowest(plan, parts)) != nil {
						<-time.After(time.Duration(rng.IntN(5000)) * time.Millisecond)
					}

					owns(plan.GetNics()[0].GetIpv4(), id)

					// A step whose state was not stored, or which finds that it needs another.
					for range rng.IntN(3) {
						if rng.IntN(2) == 0 {
							b.store(id, stepPlan, &specs.InstanceSpec{Plan: plan})
						}

						if b.work.allot(t.Context(), plan, takeLowest(plan, parts)) == nil {
							owns(plan.GetNics()[0].GetIpv4(), id)
						}
					}

					b.store(id, stepImage, &specs.InstanceSpec{Plan: plan})
					leaves(id, plan.GetNics()[0].GetIpv4())
					<-time.After(time.Duration(rng.IntN(3000)) * time.Millisecond)

					if got := b.stored(id).TypedSpec().Value.GetPlan().GetNics()[0].GetIpv4(); got != plan.GetNics()[0].GetIpv4() {
						t.Errorf("%s is stored with %s", id, got)
					}

					leaves(id, "")
					b.ok(b.st.Destroy(t.Context(), b.stored(id).Metadata(), state.WithDestroyOwner(testID+sdkController)))
				}
			})
		}

		all.Wait()
	})
}
