package omni

import (
	"strings"
	"sync"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"google.golang.org/grpc/codes"
)

// maxCalls bounds the call log; the older half goes when it is full.
const maxCalls = 200_000

// Call is one call of the Omni API.
type Call struct {
	// Number counts from 1 in order of arrival.
	Number int `json:"number"`
	// Verb is the method's short name: Get, List, Create, Update, Destroy,
	// Teardown, TeardownAndDestroy, Watch, or a management call's.
	Verb      string `json:"verb"`
	Namespace string `json:"namespace,omitempty"`
	Type      string `json:"type,omitempty"`
	ID        string `json:"id,omitempty"`
	// Identity is the account that signed it, empty when refused.
	Identity string `json:"identity,omitempty"`
	// Code is the gRPC code of the answer, empty while there is none.
	Code string    `json:"code,omitempty"`
	Time time.Time `json:"time"`
}

// Name is the call as hooks get it: verb, type and ID.
func (c Call) Name() string {
	return strings.TrimSpace(strings.Join([]string{c.Verb, c.Type, c.ID}, " "))
}

type hook func(number int, name string)

// callLog numbers and keeps calls, and runs the hooks outside of its lock.
type callLog struct {
	mu            sync.Mutex
	calls         []Call
	count         int
	before, after hook
}

// SetHooks replaces both hooks; nil is none.
func (s *Server) SetHooks(before, after func(number int, name string)) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()

	s.calls.before, s.calls.after = before, after
}

// Calls returns the calls of the API so far, oldest first.
func (s *Server) Calls() []Call {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()

	return append([]Call(nil), s.calls.calls...)
}

// ForgetCalls empties the log of calls; they are numbered on.
func (s *Server) ForgetCalls() {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()

	s.calls.calls = nil
}

// Call is one call by its number, as hooks get it; false when the log does not
// hold it any more.
func (s *Server) Call(number int) (Call, bool) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()

	index := number - (s.calls.count - len(s.calls.calls)) - 1
	if index < 0 || index >= len(s.calls.calls) {
		return Call{}, false
	}

	return s.calls.calls[index], true
}

func (l *callLog) begin(call Call) int {
	l.mu.Lock()

	l.count++
	call.Number = l.count
	call.Time = time.Now()

	if len(l.calls) >= maxCalls {
		l.calls = append([]Call(nil), l.calls[maxCalls/2:]...)
	}

	l.calls = append(l.calls, call)
	before := l.before

	l.mu.Unlock()

	if before != nil {
		before(call.Number, call.Name())
	}

	return call.Number
}

func (l *callLog) end(number int, code codes.Code) {
	l.mu.Lock()

	index := number - (l.count - len(l.calls)) - 1
	if index < 0 {
		l.mu.Unlock()

		return
	}

	l.calls[index].Code = code.String()
	name, after := l.calls[index].Name(), l.after

	l.mu.Unlock()

	if after != nil {
		after(number, name)
	}
}

// describeCall reads from a request what it is about.
func describeCall(method string, request any) Call {
	call := Call{Verb: method[strings.LastIndex(method, "/")+1:]}

	switch r := request.(type) {
	case *v1alpha1.CreateRequest:
		md := r.GetResource().GetMetadata()
		call.Namespace, call.Type, call.ID = md.GetNamespace(), md.GetType(), md.GetId()
	case *v1alpha1.UpdateRequest:
		md := r.GetNewResource().GetMetadata()
		call.Namespace, call.Type, call.ID = md.GetNamespace(), md.GetType(), md.GetId()
	case interface {
		GetNamespace() string
		GetType() string
	}:
		call.Namespace, call.Type = r.GetNamespace(), r.GetType()

		if withID, ok := request.(interface{ GetId() string }); ok {
			call.ID = withID.GetId()
		}
	}

	return call
}
