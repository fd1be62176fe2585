package factory

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/siderolabs/image-factory/pkg/schematic"
	"go.uber.org/zap"
)

// maxSchematic bounds the body of a schematic, in bytes.
const maxSchematic = 1 << 20

// schematics are the known ones by ID, also as files <dir>/<ID>.yaml if dir is set.
type schematics struct {
	dir string

	mu   sync.Mutex
	byID map[string]*schematic.Schematic
}

// loadSchematics reads what an earlier run has left in the data directory. The
// empty schematic is always known, as it is to the public factory.
func loadSchematics(dataDir string) (*schematics, error) {
	s := &schematics{byID: map[string]*schematic.Schematic{}}

	if _, _, err := s.put([]byte("customization: {}\n")); err != nil {
		return nil, err
	}

	if dataDir == "" {
		return s, nil
	}

	s.dir = filepath.Join(dataDir, "schematics")

	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the schematics directory: %w", err)
	}

	files, err := filepath.Glob(filepath.Join(s.dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing schematics: %w", err)
	}

	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a schematic: %w", err)
		}

		id, _, err := s.put(data)
		if err != nil {
			return nil, fmt.Errorf("reading schematic %s: %w", file, err)
		}

		if want := strings.TrimSuffix(filepath.Base(file), ".yaml"); id != want {
			return nil, fmt.Errorf("reading schematic %s: its content has ID %s", file, id)
		}
	}

	return s, nil
}

var errInvalidSchematic = errors.New("invalid schematic")

// put registers a schematic; unknown fields are an error. It returns the ID and
// the canonical form.
func (s *schematics) put(body []byte) (id string, canonical []byte, err error) {
	parsed, err := schematic.Unmarshal(body)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errInvalidSchematic, err)
	}

	if canonical, err = parsed.Marshal(); err != nil {
		return "", nil, fmt.Errorf("encoding a schematic: %w", err)
	}

	if id, err = parsed.ID(); err != nil {
		return "", nil, fmt.Errorf("encoding a schematic: %w", err)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.dir != "" {
		if err := s.store(id, canonical); err != nil {
			return "", nil, err
		}
	}

	s.byID[id] = parsed

	return id, canonical, nil
}

func (s *schematics) store(id string, canonical []byte) error {
	file := filepath.Join(s.dir, id+".yaml")

	// A crash must leave the whole file or none.
	if err := os.WriteFile(file+".new", canonical, 0o600); err != nil {
		return fmt.Errorf("keeping a schematic: %w", err)
	}

	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("keeping a schematic: %w", err)
	}

	return nil
}

func (s *schematics) get(id string) (*schematic.Schematic, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	found, ok := s.byID[id]

	return found, ok
}

func (s *schematics) forget(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.byID, id)

	if s.dir == "" {
		return nil
	}

	if err := os.Remove(filepath.Join(s.dir, id+".yaml")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forgetting a schematic: %w", err)
	}

	return nil
}

func (s *schematics) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.byID)
}

// Register makes a schematic known, as POST /schematics does, and returns its ID.
func (s *Server) Register(body []byte) (string, error) {
	id, _, err := s.schematics.put(body)

	return id, err
}

// Forget drops a schematic: images of it answer 404 until it is posted again.
func (s *Server) Forget(id string) error { return s.schematics.forget(id) }

func (s *Server) createSchematic(w http.ResponseWriter, r *http.Request) {
	if f, ok := s.faults.take("/schematics", KindStatus); ok {
		s.answerStatus(w, f, "")

		return
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSchematic))
	if err != nil {
		http.Error(w, "internal server error", http.StatusInternalServerError)

		return
	}

	id, canonical, err := s.schematics.put(body)

	switch {
	case errors.Is(err, errInvalidSchematic):
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	case err != nil:
		s.log.Error("keeping a schematic", zap.Error(err))
		http.Error(w, "internal server error", http.StatusInternalServerError)

		return
	}

	s.writeJSON(w, http.StatusCreated, struct {
		ID        string `json:"id"`
		Schematic string `json:"schematic"`
	}{ID: id, Schematic: string(canonical)})
}

func (s *Server) viewSchematic(w http.ResponseWriter, r *http.Request) {
	found, ok := s.schematics.get(r.PathValue("id"))
	if !ok {
		http.Error(w, "schematic not found", http.StatusNotFound)

		return
	}

	body, err := found.Marshal()
	if err != nil {
		http.Error(w, "internal server error", http.StatusInternalServerError)

		return
	}

	w.Header().Set("Content-Type", "application/yaml")

	if _, err := w.Write(body); err != nil {
		s.log.Debug("answering", zap.Error(err))
	}
}
