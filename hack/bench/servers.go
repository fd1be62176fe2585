package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// factoryConfig says which files a factory serves and how.
type factoryConfig struct {
	// Files are the image's, by the end of their name (".raw.zst").
	Files map[string]string `json:"files"`
	TLS   bool              `json:"tls"`
	// Rate is in bytes a second, for each download; 0 is no bound.
	Rate int64 `json:"rate"`
	// Build is how long the first byte takes.
	Build time.Duration `json:"build"`
}

// serveFactory serves files that are there already: what the simulated factory
// would spend on building them would be taken from the importer's processors.
func serveFactory(ctx context.Context, c factoryConfig, w *wire) error {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := path.Base(r.URL.Path)
		_, end, _ := strings.Cut(name, ".")

		file, err := os.Open(c.Files["."+end])
		if err != nil {
			http.Error(w, "404 page not found", http.StatusNotFound)

			return
		}
		defer file.Close() //nolint:errcheck // only read from

		info, err := file.Stat()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)

			return
		}

		time.Sleep(c.Build)
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))

		if c.Rate == 0 {
			io.Copy(w, file) //nolint:errcheck // the client sees it

			return
		}

		var p pacer

		buf := make([]byte, 32<<10)

		for {
			n, err := file.Read(buf)
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}

			if err != nil {
				return
			}

			p.spend(n, c.Rate)
		}
	})

	return serve(ctx, h, c.TLS, &gate{}, func(s server) error { return w.tell(s) })
}

type rackConfig struct {
	TLS   bool          `json:"tls"`
	Write time.Duration `json:"write"` // time of a bulk write
	Rate  int64         `json:"rate"`  // bytes a second that come in, over all connections
}

// rackCounts is what a rack answers to /bench.
type rackCounts struct {
	Connections int64          `json:"connections"`
	Calls       map[string]int `json:"calls"`
}

const (
	benchProject = "bench"
	opBulkWrite  = "disk_bulk_write_import"
)

func serveRack(ctx context.Context, c rackConfig, w *wire) error {
	// All but the writes is quick: what the rack's sagas take is not the
	// importer's to save.
	quick := time.Millisecond

	rack, err := simrack.New(simrack.Config{Projects: []string{benchProject}, Latencies: &simrack.Latencies{ //nolint:contextcheck // the simulator has its own
		DiskCreate: quick, DiskDelete: quick, BulkWrite: c.Write, Finalize: quick, SnapshotCreate: quick, SnapshotDelete: quick,
		ImageCreate: quick, ImageDelete: quick,
	}})
	if err != nil {
		return err
	}
	defer rack.Close()

	g := &gate{rate: c.Rate}
	mux := http.NewServeMux()
	mux.Handle("/", rack)
	mux.HandleFunc("GET /bench/counts", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, rackCounts{Connections: g.accepted.Load(), Calls: rack.Summary().Calls})
	})
	mux.HandleFunc("GET /bench/images/{id}/{length}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.PathValue("length"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)

			return
		}

		sum, err := rack.ImageDigest(r.PathValue("id"), n)
		if err != nil {
			http.Error(w, fmt.Sprint(err), http.StatusNotFound)

			return
		}

		answer(w, sum)
	})

	return serve(ctx, mux, c.TLS, g, func(s server) error { return w.tell(s) })
}
