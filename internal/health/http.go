package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Handler serves /healthz, which answers 200 while the process lives and tells its
// role among replicas, and /readyz, which answers 503 and the reasons while a need
// is not met, and has a line for each note either way. A standby is ready when it
// could take over: only so can replicas be replaced one after another.
func (b *Board) Handler() http.Handler {
	mux := http.NewServeMux()

	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, strings.TrimSpace("ok\n"+b.roleLine()))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		lines := b.troubles(true)

		w.Header().Set("Content-Type", "text/plain; charset=utf-8")

		if len(lines) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			lines = []string{"ready"}
		}

		for _, note := range b.notes() {
			lines = append(lines, "note: "+note)
		}

		_, _ = fmt.Fprintln(w, strings.Join(lines, "\n"))
	})

	b.mu.Lock()
	defer b.mu.Unlock()

	for pattern, h := range b.mounted {
		mux.Handle(pattern, h)
	}

	return mux
}

// Mount has Handler serve something else too, under a pattern of http.ServeMux.
func (b *Board) Mount(pattern string, h http.Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.mounted == nil {
		b.mounted = map[string]http.Handler{}
	}

	b.mounted[pattern] = h
}

// Serve serves Handler at l until ctx ends.
func (b *Board) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: b.Handler(), ReadHeaderTimeout: 5 * time.Second}

	stopped := make(chan struct{})

	go func() {
		defer close(stopped)

		<-ctx.Done()

		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()

		_ = s.Shutdown(grace)
	}()

	err := s.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped

		return nil
	}

	return fmt.Errorf("serving health: %w", err)
}
