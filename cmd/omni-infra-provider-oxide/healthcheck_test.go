package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Invariant: the exit code is what a container runtime goes by, and the answer is
// what a person reads in it.
func TestHealthcheckExitCodes(t *testing.T) {
	t.Parallel()

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, "the rack does not answer")

			return
		}

		_, _ = fmt.Fprintln(w, "ok")
	}))
	defer s.Close()

	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")

	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--health-address", "127.0.0.1:" + port}, 0, "ok\n"},
		// An address to listen at is none to connect to.
		{[]string{"--health-address", ":" + port}, 0, "ok\n"},
		{[]string{"--health-address", "0.0.0.0:" + port}, 0, "ok\n"},
		{[]string{"--health-address", "127.0.0.1:" + port, "--ready"}, 1, "the rack does not answer\n"},
		{[]string{"--health-address", "127.0.0.1:1"}, 1, "the daemon does not answer"},
		{[]string{"--health-address", "nothing"}, 2, "--health-address: address nothing: missing port"},
		{nil, 2, "--health-address ($HEALTH_ADDRESS) is not set"},
	} {
		var out bytes.Buffer

		if code := run(append([]string{"healthcheck"}, c.args...), &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("healthcheck %v: exit code %d: %s", c.args, code, out.String())
		}
	}
}
