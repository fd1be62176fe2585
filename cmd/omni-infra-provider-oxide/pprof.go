package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"go.uber.org/zap"
)

// openProfiles serves Go's profiles of this process at an address of this host until
// the function that it returns is called. The profiles of the heap and of all calls
// show no values, but CPU profiles cost time and are no business of other hosts.
func openProfiles(ctx context.Context, address string, logger *zap.Logger) (func(), error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for profiles: %w", err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)

	// No command line: whatever was given there stays with this process.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})

	go func() {
		defer close(done)

		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("profiles are no longer served", zap.Error(err))
		}
	}()

	logger.Info("profiles are served", zap.Stringer("address", l.Addr()))

	return func() {
		_ = server.Close()
		<-done
	}, nil
}
