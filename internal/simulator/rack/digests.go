package rack

import "io"

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
