package omni

import (
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The verbs of writes, as faults and the call log name them.
const (
	verbCreate   = "Create"
	verbUpdate   = "Update"
	verbDestroy  = "Destroy"
	verbTeardown = "Teardown"
)

// Fault makes one write through the API fail, once.
type Fault struct {
	// Verb, Type and ID say which writes count; empty is any. Verbs are Create,
	// Update, Destroy and Teardown.
	Verb string
	Type resource.Type
	ID   resource.ID
	// Number is which of the writes that count fails, from 1; 0 is 1.
	Number int
	// After lets the write take effect and loses its answer only.
	After bool
	// Code is what the caller gets; OK is Unavailable.
	Code codes.Code
}

type armedFault struct {
	Fault

	seen int
}

type faults struct {
	mu    sync.Mutex
	armed []*armedFault
}

// Inject arms a fault.
func (s *Server) Inject(fault Fault) {
	if fault.Number == 0 {
		fault.Number = 1
	}

	if fault.Code == codes.OK {
		fault.Code = codes.Unavailable
	}

	s.gate.faults.mu.Lock()
	defer s.gate.faults.mu.Unlock()

	s.gate.faults.armed = append(s.gate.faults.armed, &armedFault{Fault: fault})
}

// around does the write unless a fault says otherwise.
func (f *faults) around(verb string, md *resource.Metadata, write func() error) error {
	fault := f.strike(verb, md)
	if fault == nil {
		return write()
	}

	if fault.After {
		if err := write(); err != nil {
			return err
		}
	}

	return status.Errorf(fault.Code, "an injected fault of %s %s/%s", verb, md.Type(), md.ID())
}

// strike counts the write and returns the fault that it meets.
func (f *faults) strike(verb string, md *resource.Metadata) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()

	for i, fault := range f.armed {
		if fault.Verb != "" && fault.Verb != verb || fault.Type != "" && fault.Type != md.Type() || fault.ID != "" && fault.ID != md.ID() {
			continue
		}

		if fault.seen++; fault.seen < fault.Number {
			continue
		}

		f.armed = append(f.armed[:i:i], f.armed[i+1:]...)

		return &fault.Fault
	}

	return nil
}
