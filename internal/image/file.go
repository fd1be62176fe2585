package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// FileSource reads one image from a file, where no factory can be reached. What
// is wrong with a file stays so: its errors are for a person to mend.
type FileSource struct{ Path string }

// Open implements Source.
func (s FileSource) Open(ctx context.Context, _ naming.ImageIdentity) (Stream, error) {
	stream, err := talos.OpenFile(ctx, s.Path)
	if err != nil {
		return nil, s.mend(err)
	}

	return fileStream{Stream: stream, source: s}, nil
}

func (s FileSource) mend(err error) error {
	if f, ok := errors.AsType[*talos.FactoryError](err); ok && errors.Unwrap(f) != nil {
		err = errors.Unwrap(f)
	}

	return &MendError{Reason: fmt.Sprintf("%s can not be imported: %s", s.Path, clip(err.Error(), maxCause))}
}

type fileStream struct {
	Stream

	source FileSource
}

// Read implements io.Reader.
func (s fileStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = s.source.mend(err)
	}

	return n, err
}

// Bring asks for an image until it is there, for a person who waits for it. It
// tells the job as it goes on, each second, and ends at the first thing that the
// person must mend.
func (m *Manager) Bring(ctx context.Context, w Want, tell func(JobInfo)) (Status, error) {
	for {
		s, err := m.Ask(ctx, w)

		switch {
		case err != nil:
			return Status{}, err
		case s.Ready:
			return s, nil
		case s.SchematicUnknown:
			return Status{}, &MendError{Reason: fmt.Sprintf("the image factory %s does not know schematic %s for Talos %s: register it there first",
				w.Identity.FactoryHost, w.Identity.Schematic, w.Identity.Talos)}
		}

		for _, j := range m.Jobs() {
			tell(j)
		}

		if err := pause(ctx, min(s.RetryIn, minRetry)); err != nil {
			return Status{}, err
		}
	}
}
