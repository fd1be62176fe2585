package factory

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/image-factory/pkg/schematic"
	"go.uber.org/zap"
)

// The forms of an image.
const (
	formRaw  = ".raw"
	formXZ   = ".raw.xz"
	formZstd = ".raw.zst"
)

// unknownSchematic and unknownVersion are what a 404 says.
func unknownSchematic(id string) string { return fmt.Sprintf("schematic ID %q not found", id) }
func unknownVersion(version string) string {
	return fmt.Sprintf("version v%s is not available", version)
}

// parseFile reads the name of a disk image.
func parseFile(file string) (asset, bool) {
	for _, form := range []string{formXZ, formZstd, formRaw} {
		name, ok := strings.CutSuffix(file, form)
		if !ok {
			continue
		}

		name, secureBoot := strings.CutSuffix(name, "-secureboot")

		arch, ok := strings.CutPrefix(name, "nocloud-")
		if !ok || arch != "amd64" && arch != "arm64" {
			return asset{}, false
		}

		return asset{arch: arch, secureBoot: secureBoot, form: form}, true
	}

	return asset{}, false
}

// refusal is an answer other than the image.
type refusal struct {
	code int
	text string
}

// find checks a request in the order of the real factory: schematic, version's
// form, path, version.
func (s *Server) find(r *http.Request) (asset, *schematic.Schematic, *refusal) {
	id := r.PathValue("schematic")

	from, ok := s.schematics.get(id)
	if !ok {
		return asset{}, nil, &refusal{http.StatusNotFound, unknownSchematic(id)}
	}

	version, err := semver.Parse(strings.TrimPrefix(r.PathValue("version"), "v"))
	if err != nil {
		return asset{}, nil, &refusal{http.StatusInternalServerError, "internal server error"}
	}

	a, ok := parseFile(r.PathValue("file"))
	if !ok {
		return asset{}, nil, &refusal{http.StatusBadRequest, fmt.Sprintf("invalid profile path: %q", r.PathValue("file"))}
	}

	if !slices.Contains(s.config.Versions, version.String()) {
		return asset{}, nil, &refusal{http.StatusNotFound, unknownVersion(version.String())}
	}

	a.schematic, a.talos = id, version.String()

	return a, from, nil
}

// image serves GET and HEAD of an image; both make the factory build it.
func (s *Server) image(w http.ResponseWriter, r *http.Request) {
	if s.harm(w, r) {
		return
	}

	a, from, no := s.find(r)
	if no != nil {
		http.Error(w, no.text, no.code)

		return
	}

	built, err := s.builder.get(r.Context(), a, from)

	switch {
	case errors.Is(err, context.Canceled): // by the client, or because we close
		panic(http.ErrAbortHandler)
	case err != nil:
		s.log.Error("building an image", zap.Error(err))
		http.Error(w, "internal server error", http.StatusInternalServerError)

		return
	}

	if r.Method == http.MethodGet {
		if _, ok := s.faults.take(r.URL.Path, KindRedirect); ok {
			http.Redirect(w, r, s.storageURL+s.signer.sign("/storage"+r.URL.Path), http.StatusFound)

			return
		}
	}

	w.Header().Set("Content-Type", contentType(a.form))
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", a.file()))

	if s.config.Ranges {
		s.sendRange(w, r, built)

		return
	}

	w.Header().Set("Content-Length", strconv.FormatInt(built.size, 10))

	if r.Method == http.MethodHead {
		return
	}

	s.send(w, r, built)
}

func contentType(form string) string {
	switch form {
	case formXZ:
		return "application/x-xz"
	case formZstd:
		return "application/zstd"
	}

	return "application/octet-stream"
}

// harm answers in place of the factory when a fault says so.
func (s *Server) harm(w http.ResponseWriter, r *http.Request) bool {
	path, id := r.URL.Path, r.PathValue("schematic")

	if _, ok := s.faults.take(path, KindForget); ok {
		if err := s.schematics.forget(id); err != nil {
			s.log.Error("forgetting a schematic", zap.Error(err))
		}
	}

	if f, ok := s.faults.take(path, KindStatus); ok {
		s.answerStatus(w, f, id)

		return true
	}

	if _, ok := s.faults.take(path, KindNotServed); ok {
		http.Error(w, "404 page not found", http.StatusNotFound)

		return true
	}

	if _, ok := s.faults.take(path, KindHTML); ok {
		s.writePage(w, http.StatusOK)

		return true
	}

	return false
}

func (s *Server) storageRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /storage/image/{schematic}/{version}/{file}", s.stored)

	return s.logged("storage", mux)
}

// stored serves what a redirect pointed to. Like an object storage it wants its
// own signature and refuses a request that brings other credentials as well.
func (s *Server) stored(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, "<Error><Code>InvalidArgument</Code><Message>Only one auth mechanism allowed</Message></Error>")

		return
	}

	if !s.signer.valid(r.URL) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>AccessDenied</Code></Error>")

		return
	}

	a, from, no := s.find(r)
	if no != nil {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<Error><Code>NoSuchKey</Code></Error>")

		return
	}

	built, err := s.builder.get(r.Context(), a, from)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)

		return
	}

	w.Header().Set("Content-Type", "binary/octet-stream")
	s.sendRange(w, r, built)
}
