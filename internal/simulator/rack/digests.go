package rack

import (
	"errors"
	"io"
	"net/http"
	"strconv"
)

// contentOf finds the content of a disk, or that of an image as a disk made
// from it would have it.
func (s *Server) contentOf(kind, id string) (*content, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if kind == kindDisk {
		if d, found := s.disks.get(id); found {
			return d.content, nil
		}
	} else if m, found := s.images.get(id); found {
		return newContent(m.size, m.layer, s.cfg.Content), nil
	}

	return nil, notFound(kind, id)
}

// DiskReader reads a disk as it is at each read, and tells its size.
func (s *Server) DiskReader(id string) (io.ReaderAt, int64, error) {
	c, err := s.contentOf(kindDisk, id)
	if err != nil {
		return nil, 0, err
	}

	return c, c.size, nil
}

// ImageReader reads an image, and tells its size.
func (s *Server) ImageReader(id string) (io.ReaderAt, int64, error) {
	c, err := s.contentOf(kindImage, id)
	if err != nil {
		return nil, 0, err
	}

	return c, c.size, nil
}

// ImageDigest is the SHA-256, in hex, of the first length bytes of an image;
// 0 means the whole of it, the zeros after the uploaded bytes included.
func (s *Server) ImageDigest(id string, length int64) (string, error) {
	return s.digestOf(kindImage, id, length)
}

// DiskDigest is ImageDigest for a disk.
func (s *Server) DiskDigest(id string, length int64) (string, error) {
	return s.digestOf(kindDisk, id, length)
}

func (s *Server) digestOf(kind, id string, length int64) (string, error) {
	c, err := s.contentOf(kind, id)
	if err != nil {
		return "", err
	}

	return c.digest(length)
}

// ImageChunks are the digests of an image's chunks of 512 KiB that are not
// zero: the one way to compare what ContentHashed keeps.
func (s *Server) ImageChunks(id string) ([]ChunkDigest, error) {
	c, err := s.contentOf(kindImage, id)
	if err != nil {
		return nil, err
	}

	return c.digests()
}

// getDigest answers the SHA-256 of a disk or image, of ?length= bytes or all;
// with ?chunks those of its chunks that are not zero.
func (s *Server) getDigest(w http.ResponseWriter, r *http.Request) {
	kind := map[string]string{"disks": kindDisk, "images": kindImage}[r.PathValue("kind")]
	length, err := strconv.ParseInt(r.URL.Query().Get("length"), 10, 64)

	switch {
	case kind == "":
		controlError(w, http.StatusNotFound, "there are digests of disks and images")

		return
	case r.URL.Query().Has("length") && (err != nil || length < 1):
		controlError(w, http.StatusBadRequest, "length must be a number of bytes")

		return
	}

	c, err := s.contentOf(kind, r.PathValue("id"))
	if err != nil {
		controlError(w, http.StatusNotFound, err.Error())

		return
	}

	answer := map[string]any{"size": c.size}

	if r.URL.Query().Has("chunks") {
		answer["chunks"], err = c.digests()
	} else {
		answer["sha256"], err = c.digest(length)
	}

	if errors.Is(err, errNotKept) {
		controlError(w, http.StatusConflict, err.Error())

		return
	}

	writeJSON(w, http.StatusOK, answer)
}
