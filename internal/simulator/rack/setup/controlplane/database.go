package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

const (
	// DatabaseName is the name under which the hand-over is stored.
	DatabaseName = "database"
	rackPath     = "/rack"
	// bodyLimit bounds what is read of a hand-over: that of a full rack is
	// below 300 KiB.
	bodyLimit = 4 << 20
)

// Database is what the nodes of the control plane's database hold together. Of
// all its content only the hand-over is simulated: the rack's objects are kept
// by the rack's server, and live as long as that does.
type Database struct {
	store store.Store

	mu     sync.Mutex
	broken error
}

// NewDatabase is a database on what is in the store.
func NewDatabase(s store.Store) *Database { return &Database{store: s} }

// Break makes every node answer 503 until it is called with nil.
func (d *Database) Break(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.broken = err
}

// Handler is one node: GET /rack answers the hand-over or 404, POST /rack stores
// one and answers 201, or 409 with the one that was first.
func (d *Database) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+rackPath, d.read)
	mux.HandleFunc("POST "+rackPath, d.insert)

	return mux
}

func (d *Database) read(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()

	raw, found, err := d.load()

	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case !found:
		http.Error(w, "the rack has not been handed over", http.StatusNotFound)
	default:
		writeRaw(w, http.StatusOK, raw)
	}
}

// insert looks and stores under one lock: of two at once one is the second.
func (d *Database) insert(w http.ResponseWriter, r *http.Request) {
	var h HandOver
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimit)).Decode(&h); err != nil {
		http.Error(w, "no hand-over: "+err.Error(), http.StatusBadRequest)

		return
	}

	raw, err := json.Marshal(h)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	first, found, err := d.load()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)

		return
	}

	if found {
		writeRaw(w, http.StatusConflict, first)

		return
	}

	if err := d.store.Save(DatabaseName, raw); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)

		return
	}

	writeRaw(w, http.StatusCreated, raw)
}

func (d *Database) load() ([]byte, bool, error) {
	if d.broken != nil {
		return nil, false, d.broken
	}

	raw, found, err := d.store.Load(DatabaseName)
	if err != nil {
		return nil, false, fmt.Errorf("the database can not be read: %w", err)
	}

	return raw, found, nil
}

func writeRaw(w http.ResponseWriter, status int, raw []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Whoever has gone asks again.
	_, _ = w.Write(raw)
}
