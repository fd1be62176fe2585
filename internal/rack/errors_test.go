package rack_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// newClient serves every call with h.
func newClient(t *testing.T, h http.HandlerFunc) *rack.Client {
	t.Helper()

	s := httptest.NewServer(h)
	t.Cleanup(s.Close)

	c, err := rack.New(rack.Config{Host: s.URL, Token: "oxide-token-secret", UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)

	return c
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", "req-1")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestEveryAnswerOfTheRackHasItsClass(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   rack.Class
	}{
		{"gone or hidden", 404, `{"request_id":"r","message":"not found: instance with id \"x\"","error_code":"ObjectNotFound"}`, rack.ClassGone},
		{"an unknown route is not an absent object", 404, `{"request_id":"r","message":"Not Found"}`, rack.ClassInternal},
		{"no default pool is not an absent project", 404, `{"request_id":"r","message":"not found: default unicast IPv4 pool for current silo","error_code":"ObjectNotFound"}`, rack.ClassInvalid},
		{"name taken", 400, `{"request_id":"r","message":"already exists: disk \"a\"","error_code":"ObjectAlreadyExists"}`, rack.ClassExists},
		{"bad state", 400, `{"request_id":"r","message":"disk is attached","error_code":"InvalidRequest"}`, rack.ClassInvalid},
		{"parse failure", 400, `{"request_id":"r","message":"unable to parse JSON body: x"}`, rack.ClassInvalid},
		{"empty pool as 400", 400, `{"request_id":"r","message":"No external IP addresses available","error_code":"InvalidRequest"}`, rack.ClassCapacity},
		{"full subnet as 400", 400, `{"request_id":"r","message":"No available IPv4 addresses for interface in subnet","error_code":"InvalidRequest"}`, rack.ClassCapacity},
		{"older rack", 400, `{"request_id":"r","message":"server does not support this API version: 2026060800.0.0"}`, rack.ClassVersion},
		{"newer rack's value", 406, `{"request_id":"r","message":"x","error_code":"Not Acceptable"}`, rack.ClassVersion},
		{"bad token", 401, `{"request_id":"r","message":"credentials missing or invalid","error_code":"Unauthorized"}`, rack.ClassCredentials},
		{"malformed token", 400, `{"request_id":"r","message":"bad authorization header: not a bearer token"}`, rack.ClassCredentials},
		{"read but not do", 403, `{"request_id":"r","message":"Forbidden","error_code":"Forbidden"}`, rack.ClassForbidden},
		{"busy object", 409, `{"request_id":"r","message":"x","error_code":"Conflict"}`, rack.ClassConflict},
		{"quota", 507, `{"request_id":"r","message":"Insufficient capacity: vCPU Limit Exceeded","error_code":"InsufficientCapacity"}`, rack.ClassCapacity},
		{"maintenance", 503, `{"request_id":"r","message":"Service Unavailable","error_code":"ServiceNotAvailable"}`, rack.ClassBusy},
		{"a proxy's page", 502, `<html>bad gateway</html>`, rack.ClassBusy},
		{"dead sled", 504, `{"request_id":"r","message":"Internal Server Error","error_code":"Internal"}`, rack.ClassBusy},
		{"too many", 429, ``, rack.ClassBusy},
		{"internal", 500, `{"request_id":"r","message":"Internal Server Error","error_code":"Internal"}`, rack.ClassInternal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()

			c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, tc.status, tc.body) })

			_, err := c.ViewInstance(t.Context(), "4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11")
			if got := rack.ClassOf(err); got != tc.want {
				t.Errorf("class %v, want %v (%v)", got, tc.want, err)
			}

			if text := err.Error(); strings.ContainsAny(text, "\n\r") || strings.Contains(text, "http://") ||
				strings.Contains(text, "secret") || len(text) > 300 {
				t.Errorf("the text is not for people: %q", text)
			}
		})
	}
}

func TestAnErrorCarriesTheRacksRequestID(t *testing.T) {
	t.Parallel()

	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 503, `not json`) })

	_, err := c.Me(t.Context())
	if !strings.Contains(err.Error(), "req-1") || !strings.Contains(rack.Reason(err), "req-1") {
		t.Errorf("no request ID in %q", err)
	}
}

func TestExistsNamesTheKindThatIsInTheWay(t *testing.T) {
	t.Parallel()

	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 400, `{"request_id":"r","message":"already exists: disk \"boot-a\"","error_code":"ObjectAlreadyExists"}`)
	})

	_, err := c.ViewDisk(t.Context(), "x")

	kind, name, ok := rack.Exists(err)
	if !ok || kind != "disk" || name != "boot-a" {
		t.Errorf("got %q %q %v", kind, name, ok)
	}

	if _, _, ok := rack.Exists(errors.New("already exists: disk \"boot-a\"")); ok {
		t.Error("a foreign error was taken for the rack's")
	}
}

// Where nobody listens, the text says so and no more, however long the address.
func TestAnAPIThatIsNotOpenRefuses(t *testing.T) {
	t.Parallel()

	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()

	c, err := rack.New(rack.Config{Host: s.URL, Token: "oxide-token-secret", UserAgent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)

	_, viewErr := c.ViewDiskByName(t.Context(), strings.Repeat("p", 60), strings.Repeat("d", 60))

	for _, err := range []error{c.Ping(t.Context()), viewErr} {
		if !rack.Refused(err) || rack.Reason(err) != "no answer from the rack: connection refused" {
			t.Errorf("%v, %q", rack.Refused(err), rack.Reason(err))
		}
	}

	hung := newClient(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if err := hung.Ping(t.Context()); rack.Refused(err) || rack.ClassOf(err) != rack.ClassLost {
		t.Errorf("a connection that broke: %v", err)
	}
}

func TestACallWithoutAnAnswerIsLost(t *testing.T) {
	t.Parallel()

	c := newClient(t, func(_ http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })

	err := c.DeleteDisk(t.Context(), "x")
	if rack.ClassOf(err) != rack.ClassLost {
		t.Errorf("class %v (%v)", rack.ClassOf(err), err)
	}

	if strings.Contains(err.Error(), "http://") {
		t.Errorf("the address is in %q", err)
	}

	gone, cancel := context.WithCancel(t.Context())
	cancel()

	err = c.DeleteDisk(gone, "x")
	if rack.ClassOf(err) != rack.ClassLost || !errors.Is(err, context.Canceled) {
		t.Errorf("given up: class %v (%v)", rack.ClassOf(err), err)
	}
}

func TestADeadlineIsTold(t *testing.T) {
	t.Parallel()

	stop := make(chan struct{})
	c := newClient(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	})

	defer close(stop)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()

	if err := c.Ping(ctx); !strings.Contains(err.Error(), "no answer from the rack in time") {
		t.Errorf("got %v", err)
	}
}
