package omni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	"go.uber.org/zap"
)

// keyLifetime is what Omni gives a service account's key.
const keyLifetime = 365 * 24 * time.Hour

// serveControl serves the control endpoint, which the command line and demos
// use from other processes: POST /cut-streams, /drop-connections,
// /stale-bookmarks, /providers/{id}/key, /admin-key; GET /calls, /summary.
func (s *Server) serveControl(ctx context.Context, active *activity, listener net.Listener) {
	if listener == nil {
		return
	}

	mux := http.NewServeMux()

	mux.HandleFunc("POST /cut-streams", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, s.CutStreams())
	})
	mux.HandleFunc("POST /drop-connections", func(http.ResponseWriter, *http.Request) { s.DropConnections() })
	mux.HandleFunc("POST /stale-bookmarks", func(http.ResponseWriter, *http.Request) { s.StaleBookmarks() })
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, s.Calls(), nil) })
	mux.HandleFunc("GET /summary", func(w http.ResponseWriter, r *http.Request) {
		summary, err := s.Summary(r.Context())
		answerJSON(w, summary, err)
	})
	mux.HandleFunc("POST /providers/{id}/key", func(w http.ResponseWriter, r *http.Request) {
		key, err := s.MintProviderKey(r.Context(), r.PathValue("id"), keyLifetime)
		answerKey(w, key, err)
	})
	mux.HandleFunc("POST /admin-key", func(w http.ResponseWriter, r *http.Request) {
		key, err := s.MintAdminKey(r.Context(), keyLifetime)
		answerKey(w, key, err)
	})

	active.control = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}

	active.wg.Go(func() {
		if err := active.control.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("serving the control endpoint ended", zap.Error(err))
		}
	})
}

func answerKey(w http.ResponseWriter, key string, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	_, _ = fmt.Fprintln(w, key)
}

func answerJSON(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	}

	w.Header().Set("Content-Type", "application/json")

	_ = json.NewEncoder(w).Encode(value)
}

// Summary counts what there is, for demos and tests.
type Summary struct {
	// Requests by the stage of their status; "NONE" has no status yet, and
	// "TEARING_DOWN" is going.
	Requests map[string]int `json:"requests"`
	// Texts are the statuses of requests that are not provisioned, by ID.
	Texts map[string]string `json:"texts,omitempty"`
	// Machines are in Omni; Connected of them are connected, Configured have a
	// config and run it.
	Machines       int               `json:"machines"`
	Connected      int               `json:"connected"`
	Configured     int               `json:"configured"`
	Links          int               `json:"links"`
	Registrations  int               `json:"registrations"`
	PatchRequests  int               `json:"patch_requests"`
	ConfigErrors   map[string]string `json:"config_errors,omitempty"`
	OpenStreams    int               `json:"open_streams"`
	CallsSinceBoot int               `json:"calls"`
}

// Summary counts what there is now.
func (s *Server) Summary(ctx context.Context) (Summary, error) {
	summary := Summary{
		Requests: map[string]int{}, Texts: map[string]string{}, ConfigErrors: map[string]string{}, OpenStreams: s.OpenStreams(),
	}

	s.calls.mu.Lock()
	summary.CallsSinceBoot = s.calls.count
	s.calls.mu.Unlock()

	err := errors.Join(s.countRequests(ctx, &summary), s.countMachines(ctx, &summary))

	return summary, err
}

func (s *Server) countRequests(ctx context.Context, summary *Summary) error {
	requests, err := safe.StateListAll[*infra.MachineRequest](ctx, s.state)
	if err != nil {
		return err
	}

	for request := range requests.All() {
		status, ok, err := get[*infra.MachineRequestStatus](ctx, s.state, infra.NewMachineRequestStatus(request.Metadata().ID()).Metadata())

		switch {
		case err != nil:
			return err
		case !running(request):
			summary.Requests["TEARING_DOWN"]++
		case !ok:
			summary.Requests["NONE"]++
		default:
			summary.Requests[status.TypedSpec().Value.GetStage().String()]++
			summary.Texts[request.Metadata().ID()] = status.TypedSpec().Value.GetStatus()
		}
	}

	patches, err := safe.StateListAll[*infra.ConfigPatchRequest](ctx, s.state)
	summary.PatchRequests = patches.Len()

	return err
}

func (s *Server) countMachines(ctx context.Context, summary *Summary) error {
	machines, err := safe.StateListAll[*omni.Machine](ctx, s.state)
	if err != nil {
		return err
	}

	summary.Machines = machines.Len()

	for machine := range machines.All() {
		if machine.TypedSpec().Value.GetConnected() {
			summary.Connected++
		}
	}

	members, err := safe.StateListAll[*omni.ClusterMachineStatus](ctx, s.state)
	if err != nil {
		return err
	}

	for member := range members.All() {
		if member.TypedSpec().Value.GetReady() {
			summary.Configured++
		}

		if text := member.TypedSpec().Value.GetLastConfigError(); text != "" {
			summary.ConfigErrors[member.Metadata().ID()] = text
		}
	}

	links, err := safe.StateListAll[*siderolink.Link](ctx, s.state)
	if err != nil {
		return err
	}

	registrations, err := safe.StateListAll[*infra.MachineRegistration](ctx, s.state)
	summary.Links, summary.Registrations = links.Len(), registrations.Len()

	return err
}
