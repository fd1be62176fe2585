package setup

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Phase is where a rack is on its way; see the package's table.
type Phase string

// The phases, in order.
const (
	PhaseWaiting  Phase = "waiting"
	PhasePlanning Phase = "planning"
	PhaseDNS      Phase = "dns"
	PhaseServices Phase = "services"
	PhaseHanding  Phase = "handing"
	PhaseHanded   Phase = "handed"
	PhaseReady    Phase = "ready"
)

// State is where a rack is and what it waits for.
type State struct {
	Phase   Phase    `json:"phase"`
	Waiting string   `json:"waiting,omitempty"`
	Lines   []string `json:"lines"` // all that was said
}

// State is a copy.
func (r *Rack) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()

	out := r.state
	out.Lines = append([]string{}, r.state.Lines...)

	return out
}

func (r *Rack) say(phase Phase, format string, args ...any) {
	line := fmt.Sprintf(format, args...)

	r.mu.Lock()
	r.state.Phase = phase
	r.state.Lines = append(r.state.Lines, line)
	r.mu.Unlock()

	if r.cfg.Say != nil {
		r.cfg.Say(line)
	}
}

func (r *Rack) wait(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.state.Waiting = what
}

// Technician is for whoever stands before the rack while it comes up:
//
//	GET  /setup                             its State
//	POST /setup/sleds/{sled}/disks/{disk}   make a disk come up that has not
func (r *Rack) Technician() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /setup", func(w http.ResponseWriter, _ *http.Request) {
		raw, err := json.Marshal(r.State())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)

			return
		}

		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw)
	})
	mux.HandleFunc("POST /setup/sleds/{sled}/disks/{disk}", func(w http.ResponseWriter, req *http.Request) {
		if err := r.Report(req.PathValue("sled"), req.PathValue("disk")); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)

			return
		}

		w.WriteHeader(http.StatusNoContent)
	})

	return mux
}
