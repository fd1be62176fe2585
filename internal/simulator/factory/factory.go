// Package factory is a simulated Talos image factory: an HTTP server that keeps
// schematics and serves nocloud disk images made from them, as raw, xz and zstd.
//
// It answers like the real one: a schematic's ID is the SHA-256 of its canonical
// form; images are built when somebody asks, once for all who ask, and no byte
// is sent before a build is done; there is no Range and no ETag; unknown
// schematics and unknown versions are told apart by the text of a 404. A second
// listener plays the object storage to which a factory may redirect. Faults can
// be scripted, see Fault. What was asked for stands in the summary.
package factory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// Config configures a Server. The zero value serves small images on a free port.
type Config struct {
	// Listener takes the place of Address.
	Listener net.Listener
	// Address is where to listen, 127.0.0.1:0 if empty.
	Address string
	// DataDir keeps schematics over a restart; without one they are forgotten.
	// Large compressed images lie there too while the server runs.
	DataDir string
	// ImageSize is the size of a raw disk in bytes, talosimage.SmallSize if zero.
	ImageSize int64
	// ContentBytes is how much of the disk is not zero, a quarter if zero.
	ContentBytes int64
	// BuildDelay is how long a build takes beyond the work itself.
	BuildDelay time.Duration
	// TimeScale multiplies BuildDelay: 0.1 is ten times faster; zero means 1.
	TimeScale float64
	// Rate bounds each download, in bytes a second; zero means no bound.
	Rate int64
	// Ranges makes the factory itself obey Range; the object storage always does.
	Ranges bool
	// Token, if set, must come with each request as a bearer token.
	Token string
	// Versions are the Talos versions on offer, without v; a list of our own if empty.
	Versions []string
	// Log may be nil.
	Log *zap.Logger
}

// defaultVersions are offered if the configuration names none. The old ones are
// there so that it can be shown how they fail.
func defaultVersions() []string {
	return []string{
		"1.11.5", "1.12.0", "1.12.1", "1.12.2", "1.12.3", "1.12.7",
		"1.13.0-alpha.2", "1.13.0", "1.13.1", "1.13.2", "1.13.3", "1.13.4", "1.13.5", "1.13.6", "1.13.7", "1.13.8", "1.13.9",
		"1.14.0-beta.1", "1.14.0-rc.1",
	}
}

// Server is a running factory.
type Server struct {
	config     Config
	log        *zap.Logger
	schematics *schematics
	builder    *builder
	faults     *faults
	calls      *calls
	signer     signer

	url        string
	storageURL string

	cancel  context.CancelFunc
	servers []*http.Server
	serving sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	handlers sync.WaitGroup
}

// New starts a factory. Close ends it.
func New(config Config) (*Server, error) {
	if config.ImageSize == 0 {
		config.ImageSize = talosimage.SmallSize
	}

	if config.TimeScale == 0 {
		config.TimeScale = 1
	}

	if len(config.Versions) == 0 {
		config.Versions = defaultVersions()
	}

	if config.Log == nil {
		config.Log = zap.NewNop()
	}

	if config.Address == "" {
		config.Address = "127.0.0.1:0"
	}

	// Better now than at the first build.
	if _, err := talosimage.New(talosimage.Descriptor{}, config.ImageSize, talosimage.Content{Bytes: config.ContentBytes}); err != nil {
		return nil, fmt.Errorf("starting the factory: %w", err)
	}

	known, err := loadSchematics(config.DataDir)
	if err != nil {
		return nil, err
	}

	key, err := newSigner()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancel(context.Background())

	s := &Server{
		config: config, log: config.Log, schematics: known, cancel: cancel, signer: key,
		faults: &faults{}, calls: newCalls(),
	}

	if s.builder, err = newBuilder(ctx, config); err != nil {
		cancel()

		return nil, err
	}

	if err := s.listen(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}

	return s, nil
}

func (s *Server) listen(ctx context.Context) error {
	var config net.ListenConfig

	main := s.config.Listener
	if main == nil {
		var err error

		if main, err = config.Listen(ctx, "tcp", s.config.Address); err != nil {
			return fmt.Errorf("starting the factory: %w", err)
		}
	}

	s.url = "http://" + main.Addr().String()
	s.serve(ctx, main, s.routes())

	storage, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("starting the factory's object storage: %w", err)
	}

	s.storageURL = "http://" + storage.Addr().String()
	s.serve(ctx, storage, s.storageRoutes())

	return nil
}

func (s *Server) serve(ctx context.Context, listener net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler:           s.counted(handler),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}

	s.servers = append(s.servers, server)

	s.serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("serving", zap.Error(err))
		}
	})
}

// counted lets Close wait for the handlers, which http.Server does not.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()

		if s.closed {
			s.mu.Unlock()
			w.WriteHeader(http.StatusServiceUnavailable)

			return
		}

		s.handlers.Add(1)
		s.mu.Unlock()

		defer s.handlers.Done()

		next.ServeHTTP(w, r)
	})
}

// URL is the factory's address.
func (s *Server) URL() string { return s.url }

// StorageURL is the address of the object storage, for tests of redirects.
func (s *Server) StorageURL() string { return s.storageURL }

// Close ends all requests and builds and removes temporary files. Schematics
// stay if there is a data directory.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()

	s.cancel()

	var errs []error

	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}

	s.serving.Wait()
	s.handlers.Wait()

	return errors.Join(append(errs, s.builder.close())...)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()

	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("POST /schematics", s.createSchematic)
	mux.HandleFunc("GET /schematics/{id}", s.viewSchematic)
	mux.HandleFunc("GET /versions", s.listVersions)
	mux.HandleFunc("GET /image/{schematic}/{version}/{file}", s.image)

	outer := http.NewServeMux()
	outer.Handle("/", s.logged("factory", s.authorized(mux)))
	outer.HandleFunc("GET /simulator/summary", s.viewSummary)
	outer.HandleFunc("GET /simulator/calls", s.viewCalls)
	outer.HandleFunc("POST /simulator/faults", s.injectFaults)
	outer.HandleFunc("DELETE /simulator/faults", s.clearFaults)

	return outer
}

func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.config.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.config.Token {
			w.Header().Set("WWW-Authenticate", `Bearer realm="Image Factory"`)
			http.Error(w, "authentication required", http.StatusUnauthorized)

			return
		}

		next.ServeHTTP(w, r)
	})
}

func (s *Server) listVersions(w http.ResponseWriter, _ *http.Request) {
	versions := make([]string, 0, len(s.config.Versions))
	for _, v := range s.config.Versions {
		versions = append(versions, "v"+v)
	}

	s.writeJSON(w, http.StatusOK, versions)
}

func (s *Server) writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)

	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.log.Debug("answering", zap.Error(err))
	}
}
