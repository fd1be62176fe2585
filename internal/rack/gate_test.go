package rack_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// testGate lets a number of checks pass and none after them; awaits always pass
// unless it is shut.
type testGate struct {
	left atomic.Int64
	shut bool
}

var errNotHeld = errors.New("somebody else works for the provider")

// Await implements rack.Gate.
func (g *testGate) Await(context.Context) error {
	if g.shut {
		return errNotHeld
	}

	return nil
}

// Check implements rack.Gate.
func (g *testGate) Check() error {
	if g.left.Add(-1) < 0 {
		return errNotHeld
	}

	return nil
}

// passes says whether no gate holds a method back: reads, and what fills a disk
// that this process has made.
func passes(method string) bool {
	return strings.HasPrefix(method, "List") || strings.HasPrefix(method, "Seek") || strings.HasPrefix(method, "View") ||
		slices.Contains([]string{"Me", "Ping", "Utilization", "StartBulkWrite", "BulkWrite", "StopBulkWrite"}, method)
}

// Invariant: without the gate's leave nothing is created, named, started, stopped
// or deleted. Every method that calls the rack is tried, those of tomorrow too.
func TestNoCallThatChangesTheRackPassesAClosedGate(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		name string
		gate *testGate
	}{
		{"shut before the call", &testGate{shut: true}},
		{"shut right before the request", &testGate{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()

			var requests atomic.Int64

			c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				answer(w, http.StatusNotFound, `{"error_code":"ObjectNotFound","message":"not found"}`)
			}).Behind(tc.gate)

			client := reflect.ValueOf(c)
			held := 0

			for i := range client.NumMethod() {
				name, method := client.Type().Method(i).Name, client.Method(i)

				last := method.Type().NumOut() - 1
				if last < 0 || method.Type().Out(last) != reflect.TypeFor[error]() || method.Type().Out(0) == reflect.TypeFor[*rack.Client]() {
					continue // asks nothing of the rack
				}

				before := requests.Load()
				err, _ := method.Call(arguments(t, method.Type()))[last].Interface().(error)
				sent := requests.Load() - before

				switch free := passes(name); {
				case free && (sent != 1 || rack.ClassOf(err) == rack.ClassFenced):
					t.Errorf("%s was held back: %v", name, err)
				case !free && (sent != 0 || rack.ClassOf(err) != rack.ClassFenced || !errors.Is(err, errNotHeld)):
					t.Errorf("%s made %d requests: %v", name, sent, err)
				case !free:
					held++
				}
			}

			if held < 10 {
				t.Errorf("%d methods were held back, which is not even those of today", held)
			}
		})
	}
}

// arguments are some that make a method call the rack.
func arguments(t *testing.T, method reflect.Type) []reflect.Value {
	t.Helper()

	args := make([]reflect.Value, method.NumIn())

	for i := range args {
		switch in := method.In(i); {
		case in == reflect.TypeFor[context.Context]():
			args[i] = reflect.ValueOf(t.Context())
		case in.Kind() == reflect.String:
			args[i] = reflect.ValueOf("8f3e6c10-0000-4000-8000-000000000001").Convert(in)
		default:
			args[i] = reflect.Zero(in)
		}
	}

	return args
}

// A holder may lose its right while a connection is dialed, which takes as long
// as the network likes: the request is not sent over it.
func TestTheGateIsAskedAgainOnceTheConnectionIsThere(t *testing.T) {
	t.Parallel()

	for name, start := range map[string]func(*httptest.Server){
		"HTTP/1": (*httptest.Server).Start,
		"HTTP/2": func(s *httptest.Server) {
			s.EnableHTTP2 = true
			s.StartTLS()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var requests, reads atomic.Int64

			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					reads.Add(1)
				} else {
					requests.Add(1)
				}

				if name == "HTTP/2" && r.ProtoMajor != 2 {
					t.Errorf("the request came by %s", r.Proto)
				}

				answer(w, http.StatusOK, `{"id":"i","name":"n"}`)
			}))
			start(s)
			t.Cleanup(s.Close)

			transport, _ := s.Client().Transport.(*http.Transport)

			open, err := rack.New(rack.Config{Host: s.URL, Token: "t", UserAgent: "test", Transport: transport})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(open.Close)

			gate := &testGate{}
			c := open.Behind(gate)

			// Over a new connection, and over one that is kept.
			for range 2 {
				gate.left.Store(1)

				err = c.StopInstance(t.Context(), "i")
				if rack.ClassOf(err) != rack.ClassFenced || !errors.Is(err, errNotHeld) || err.Error() != "stopping the instance: "+errNotHeld.Error() {
					t.Errorf("answered %v", err)
				}

				if _, err := c.ViewInstance(t.Context(), "i"); err != nil {
					t.Errorf("reading: %v", err)
				}
			}

			if n := requests.Load(); n != 0 {
				t.Errorf("%d requests reached the rack", n)
			}

			gate.left.Store(2)

			if err := c.StopInstance(t.Context(), "i"); err != nil || requests.Load() != 1 || reads.Load() != 2 {
				t.Errorf("with the gate open: %v, %d requests, %d reads", err, requests.Load(), reads.Load())
			}
		})
	}
}
