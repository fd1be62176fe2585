package controlplane

import (
	"encoding/json"
	"net/http"

	"go.uber.org/zap"
)

const handOverPath = "/rack/hand-over"

// Health is the answer of GET /health.
type Health struct {
	ID    string `json:"id"`
	State string `json:"state"` // waiting or told
}

type taken struct {
	// First says whether this hand-over is the one that counts.
	First bool `json:"first"`
	// Differs names what the one that counts says otherwise.
	Differs []string `json:"differs,omitempty"`
}

// internal is the interface that only the rack's own services reach:
//
//	GET /health           whether it waits for the hand-over
//	PUT /rack/hand-over   201 for the first one, 200 for any other
//	PUT /datasets/{id}    409 always: datasets come with the hand-over
func (c *ControlPlane) internal() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", c.health)
	mux.HandleFunc("PUT "+handOverPath, c.take)
	mux.HandleFunc("PUT /datasets/{id}", func(w http.ResponseWriter, r *http.Request) {
		c.cfg.Log.Warn("refused a dataset that was registered by itself", zap.String("dataset.id", r.PathValue("id")))
		http.Error(w, "datasets are registered by the hand-over of the rack, and in no other way", http.StatusConflict)
	})

	return mux
}

func (c *ControlPlane) health(w http.ResponseWriter, _ *http.Request) {
	out := Health{ID: c.cfg.ID, State: "waiting"}

	select {
	case <-c.told:
		out.State = "told"
	default:
	}

	writeJSON(w, http.StatusOK, out)
}

func (c *ControlPlane) take(w http.ResponseWriter, r *http.Request) {
	var h HandOver

	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyLimit))
	decoder.DisallowUnknownFields()

	if err := decoder.Decode(&h); err != nil {
		http.Error(w, "no hand-over: "+err.Error(), http.StatusBadRequest)

		return
	}

	if h.RackID == "" || len(h.Sleds) == 0 || len(h.Services) == 0 {
		http.Error(w, "no hand-over: rack_id, sleds and services are needed", http.StatusBadRequest)

		return
	}

	// The database may store it although this call's client has gone.
	first, won, err := c.cfg.Peers.insertRack(r.Context(), h)
	if err != nil {
		http.Error(w, "storing the hand-over: "+err.Error(), http.StatusServiceUnavailable)

		return
	}

	if won {
		c.cfg.Log.Info("the rack has been handed over", zap.String("rack.id", h.RackID))
		writeJSON(w, http.StatusCreated, taken{First: true})

		return
	}

	differs, err := h.difference(first)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	}

	if len(differs) > 0 {
		c.cfg.Log.Warn("the rack had been handed over before, with other parameters; this hand-over changes nothing", zap.Strings("differs", differs))
	} else {
		c.cfg.Log.Info("the rack had been handed over before; this hand-over changes nothing")
	}

	writeJSON(w, http.StatusOK, taken{Differs: differs})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	}

	writeRaw(w, status, raw)
}
