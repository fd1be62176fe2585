package factory

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind string

// The kinds of faults.
const (
	// KindStatus answers Status: 404 as for an unknown schematic, 5xx with an
	// HTML page, with Retry-After if RetryAfter is set.
	KindStatus FaultKind = "status"
	// KindHTML answers 200 with an HTML page.
	KindHTML FaultKind = "html"
	// KindNotServed answers 404 as for a file that the factory does not know.
	KindNotServed FaultKind = "not-served"
	// KindForget makes the factory forget the schematic that was asked for.
	KindForget FaultKind = "forget"
	// KindRedirect sends a GET to the object storage.
	KindRedirect FaultKind = "redirect"
	// KindTruncate closes the connection after Bytes bytes.
	KindTruncate FaultKind = "truncate"
	// KindStall sends nothing after Bytes bytes until the client goes away.
	KindStall FaultKind = "stall"
	// KindCorrupt flips a bit of the byte at offset Bytes.
	KindCorrupt FaultKind = "corrupt"
)

// Fault is something that goes wrong on demand. Faults are tried in the order
// in which they were injected; of each kind the first that fits is used.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// Match is a part of the path, such as ".raw.zst" or a schematic ID; empty
	// fits all.
	Match string `json:"match,omitempty"`
	// Skip is how many fitting requests pass unharmed first.
	Skip int `json:"skip,omitempty"`
	// Times is how many requests it harms; zero means for ever.
	Times int `json:"times,omitempty"`

	Status int `json:"status,omitempty"`
	// RetryAfter is sent in whole seconds, as a date if RetryDate is set.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	RetryDate  bool          `json:"retryDate,omitempty"`
	Bytes      int64         `json:"bytes,omitempty"`
}

type faults struct {
	mu   sync.Mutex
	list []*Fault
}

// take uses up one occurrence of the first fault of the kind that fits the path.
func (f *faults) take(path string, kind FaultKind) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	for i, fault := range f.list {
		if fault.Kind != kind || !strings.Contains(path, fault.Match) {
			continue
		}

		if fault.Skip > 0 {
			fault.Skip--

			continue
		}

		used := *fault

		if fault.Times > 0 {
			if fault.Times--; fault.Times == 0 {
				f.list = append(f.list[:i], f.list[i+1:]...)
			}
		}

		return used, true
	}

	return Fault{}, false
}

// Inject adds faults.
func (s *Server) Inject(list ...Fault) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()

	for _, fault := range list {
		s.faults.list = append(s.faults.list, &fault)
	}
}

// ClearFaults drops all faults.
func (s *Server) ClearFaults() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()

	s.faults.list = nil
}

func (s *Server) injectFaults(w http.ResponseWriter, r *http.Request) {
	var list []Fault

	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()

	if err := dec.Decode(&list); err != nil {
		http.Error(w, fmt.Sprintf("the body is no list of faults: %v", err), http.StatusBadRequest)

		return
	}

	s.Inject(list...)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) clearFaults(w http.ResponseWriter, _ *http.Request) {
	s.ClearFaults()
	w.WriteHeader(http.StatusNoContent)
}

// answerStatus plays a factory, or the proxy before it, that answers an error.
func (s *Server) answerStatus(w http.ResponseWriter, f Fault, schematic string) {
	if f.RetryAfter > 0 {
		value := fmt.Sprint(int64(f.RetryAfter / time.Second))
		if f.RetryDate {
			value = time.Now().Add(f.RetryAfter).UTC().Format(http.TimeFormat)
		}

		w.Header().Set("Retry-After", value)
	}

	if f.Status == http.StatusNotFound {
		http.Error(w, unknownSchematic(schematic), http.StatusNotFound)

		return
	}

	s.writePage(w, f.Status)
}

func (s *Server) writePage(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintf(w, "<!DOCTYPE html>\n<html><head><title>%d</title></head><body><h1>%s</h1></body></html>\n", code, http.StatusText(code))
}
