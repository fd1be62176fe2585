package image

import (
	"runtime/debug"
	"sync"
)

// uploadGC is the GC percentage while an upload runs. Nearly all memory is then
// in buffers without a pointer that live for the whole upload: looking through
// the heap is cheap, and letting as much garbage gather as there are buffers
// would double the process.
const uploadGC = 5

// collector makes the garbage collector thrifty while something needs it. The
// setting is the process's, and so is the count.
//
//nolint:gochecknoglobals // see above
var collector struct {
	mu     sync.Mutex
	users  int
	before int
}

// thrifty sets the percentage until the last one has called the function that
// it answers. One that is lower already, or off in favour of a memory limit, is
// left alone.
func thrifty() (done func()) {
	collector.mu.Lock()
	defer collector.mu.Unlock()

	if collector.users++; collector.users == 1 {
		collector.before = debug.SetGCPercent(uploadGC)

		if collector.before < uploadGC {
			debug.SetGCPercent(collector.before)
		}
	}

	return sync.OnceFunc(func() {
		collector.mu.Lock()
		defer collector.mu.Unlock()

		if collector.users--; collector.users == 0 {
			debug.SetGCPercent(collector.before)
		}
	})
}
