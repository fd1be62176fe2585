package image

import (
	"runtime/debug"
	"testing"
)

func percent() int {
	n := debug.SetGCPercent(100)
	debug.SetGCPercent(n)

	return n
}

// The garbage collector is as it was once the last upload has ended. Not in
// parallel with others: uploads of theirs would count.
func TestTheCollectorIsThriftyWhileUploadsRun(t *testing.T) { //nolint:paralleltest // see above
	for _, before := range []int{100, 10, -1} {
		was := debug.SetGCPercent(before)
		first, second := thrifty(), thrifty()

		first()
		first()

		want := uploadGC
		if before < uploadGC {
			want = before
		}

		if n := percent(); n != want {
			t.Errorf("%d %% during an upload, %d %% before", n, before)
		}

		second()

		if n := percent(); n != before {
			t.Errorf("%d %% afterwards, %d %% before", n, before)
		}

		debug.SetGCPercent(was)
	}
}
