package main

import (
	"io"
	"net"
	"net/http"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Profiles are served where they are asked for, without the command line, and until
// the daemon ends.
func TestProfilesAreServed(t *testing.T) {
	t.Parallel()

	core, logs := observer.New(zap.InfoLevel)

	stop, err := openProfiles(t.Context(), "127.0.0.1:0", zap.New(core))
	if err != nil {
		t.Fatal(err)
	}

	address, ok := logs.All()[0].ContextMap()["address"].(string)
	if !ok {
		t.Fatalf("logged %v", logs.All()[0])
	}

	transport := &http.Transport{}
	defer transport.CloseIdleConnections()

	for path, want := range map[string]int{
		"/debug/pprof/heap": http.StatusOK, "/debug/pprof/profile?seconds=1": http.StatusOK,
		"/debug/pprof/cmdline": http.StatusNotFound, "/": http.StatusNotFound,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}

		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}

		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()

		if err != nil || resp.StatusCode != want || want == http.StatusOK && len(body) < 2 {
			t.Errorf("%s answers %d with %d bytes, %v", path, resp.StatusCode, len(body), err)
		}
	}

	stop()

	if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); err == nil {
		_ = c.Close()

		t.Error("they are served after the end")
	}
}
