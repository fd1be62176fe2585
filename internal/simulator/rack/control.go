package rack

import (
	"io"
	"net/http"
	"strconv"
)

// Summary is the state of the rack in numbers.
type Summary struct {
	Projects      int            `json:"projects"`
	Instances     map[string]int `json:"instances"` // by run state
	Disks         map[string]int `json:"disks"`     // by state
	Snapshots     int            `json:"snapshots"`
	ProjectImages int            `json:"project_images"`
	SiloImages    int            `json:"silo_images"`
	Calls         map[string]int `json:"calls"` // by operation
	NotServed     int            `json:"not_served"`
	BulkBytes     int64          `json:"bulk_write_bytes"`
	Provisioned   resourceCounts `json:"provisioned"`
}

// Summary counts what the rack has and has done.
func (s *Server) Summary() Summary {
	calls := s.calls.counted()

	s.mu.Lock()
	defer s.mu.Unlock()

	out := Summary{
		Projects: len(s.projects.byID), Snapshots: len(s.snapshots.byID),
		Instances: map[string]int{}, Disks: map[string]int{},
		Calls: calls, NotServed: calls[opNotServed],
		BulkBytes: s.bulkBytes, Provisioned: s.provisioned.view(),
	}

	for _, i := range s.instances.byID {
		out.Instances[string(i.state)]++
	}

	for _, d := range s.disks.byID {
		out.Disks[string(d.state)]++
	}

	for _, m := range s.images.byID {
		if m.scope == "" {
			out.SiloImages++
		} else {
			out.ProjectImages++
		}
	}

	return out
}

// InstanceState is what an instance looks like from inside the rack.
type InstanceState struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	RunState string `json:"run_state"`
	Intent   string `json:"intent"`
	Sled     string `json:"sled,omitempty"`
	// MigrationID and MigrationTarget are set while the instance migrates.
	MigrationID     string `json:"migration_id,omitempty"`
	MigrationTarget string `json:"migration_target,omitempty"`
	// NATLost is set when a refused delete has taken the instance's NAT
	// entries: it has no way out any more.
	NATLost bool `json:"nat_lost"`
}

// Inspect shows an instance from inside; false when there is none.
func (s *Server) Inspect(id string) (InstanceState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, found := s.instances.get(id)
	if !found {
		return InstanceState{}, false
	}

	out := InstanceState{ID: i.id, Name: i.name, RunState: string(i.state), Intent: string(i.intent), NATLost: i.natLost}
	if i.sled != nil {
		out.Sled = i.sled.Name
	}

	if m := i.migration; m != nil {
		out.MigrationID, out.MigrationTarget = m.id, m.target.Name
	}

	return out, true
}

// Control serves what is below /simulator/ and nothing of the rack: at an
// address of its own it answers also while the rack is away for maintenance.
func (s *Server) Control() http.Handler {
	mux := http.NewServeMux()
	s.control(mux)

	return mux
}

// control adds the endpoints that are the simulator's own and no part of the
// rack: no token, no version, no log.
func (s *Server) control(mux *http.ServeMux) {
	mux.HandleFunc("GET /simulator/summary", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.Summary())
	})
	mux.HandleFunc("GET /simulator/calls", func(w http.ResponseWriter, r *http.Request) {
		calls, err := s.calls.filterCalls(r.URL.Query())
		if err != nil {
			controlError(w, http.StatusBadRequest, err.Error())

			return
		}

		writeJSON(w, http.StatusOK, calls)
	})
	mux.HandleFunc("GET /simulator/faults", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.Faults())
	})
	mux.HandleFunc("POST /simulator/faults", s.postFaults)
	mux.HandleFunc("DELETE /simulator/faults", s.deleteFaults)
	mux.HandleFunc("GET /simulator/instances/{id}", func(w http.ResponseWriter, r *http.Request) {
		if i, found := s.Inspect(r.PathValue("id")); found {
			writeJSON(w, http.StatusOK, i)
		} else {
			controlError(w, http.StatusNotFound, "no such instance")
		}
	})
	mux.HandleFunc("GET /simulator/{kind}/{id}/digest", s.getDigest)
	mux.HandleFunc("POST /simulator/instances/{id}/crash", s.postEvent(s.Crash))
	mux.HandleFunc("POST /simulator/instances/{id}/power-off", s.postEvent(s.GuestPowerOff))
	mux.HandleFunc("POST /simulator/instances/{id}/reboot", s.postEvent(s.GuestReboot))
	mux.HandleFunc("POST /simulator/instances/{id}/migrate", s.postEvent(s.Migrate))
}

func controlError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]string{"message": message})
}

func (s *Server) postEvent(f func(id string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := f(r.PathValue("id")); err != nil {
			controlError(w, http.StatusConflict, err.Error())

			return
		}

		w.WriteHeader(http.StatusNoContent)
	}
}

// postFaults adds a rule, or an array of them, and answers the rules' IDs.
func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		controlError(w, http.StatusBadRequest, err.Error())

		return
	}

	rules, err := ParseFaults(raw)
	if err != nil {
		controlError(w, http.StatusBadRequest, err.Error())

		return
	}

	ids := []int{}

	for _, f := range rules {
		id, err := s.AddFault(f) //nolint:contextcheck // a rule outlives the call that adds it
		if err != nil {
			controlError(w, http.StatusBadRequest, err.Error())

			return
		}

		ids = append(ids, id)
	}

	writeJSON(w, http.StatusCreated, ids)
}

// deleteFaults drops the rule in ?id=, or all.
func (s *Server) deleteFaults(w http.ResponseWriter, r *http.Request) {
	id := 0

	if v := r.URL.Query().Get("id"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			controlError(w, http.StatusBadRequest, "id is no rule number")

			return
		}

		id = n
	}

	s.RemoveFault(id)
	w.WriteHeader(http.StatusNoContent)
}
