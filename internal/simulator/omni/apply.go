package omni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	"go.yaml.in/yaml/v4"
)

// ApplyYAML creates or updates the resources of YAML documents, as omnictl
// apply does: metadata with namespace, type and id, and a spec whose keys are
// the lower-case names of its Go fields. st may be a client's state.
func ApplyYAML(ctx context.Context, st state.State, data []byte) error {
	wanted, err := decodeYAML(data)
	if err != nil {
		return err
	}

	for _, res := range wanted {
		if err := apply(ctx, st, res); err != nil {
			return fmt.Errorf("applying %s %q: %w", res.Metadata().Type(), res.Metadata().ID(), err)
		}
	}

	return nil
}

func decodeYAML(data []byte) ([]resource.Resource, error) {
	var (
		decoder = yaml.NewDecoder(bytes.NewReader(data))
		all     []resource.Resource
	)

	for {
		var document protobuf.YAMLResource

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}

		if err != nil {
			return nil, fmt.Errorf("decoding document %d: %w", len(all)+1, err)
		}

		all = append(all, document.Resource())
	}
}

func apply(ctx context.Context, st state.State, res resource.Resource) error {
	current, err := st.Get(ctx, res.Metadata())
	if state.IsNotFoundError(err) {
		return st.Create(ctx, res)
	}

	if err != nil {
		return err
	}

	// What the document does not name stays: the finalizers of controllers.
	res.Metadata().SetVersion(current.Metadata().Version())
	res.Metadata().Finalizers().Set(*current.Metadata().Finalizers())

	return st.Update(ctx, res)
}

// ApplyYAML applies documents as an administrator, with all of Omni's checks.
func (s *Server) ApplyYAML(ctx context.Context, data []byte) error {
	return ApplyYAML(withIdentity(ctx, identity{name: adminName, role: roleAdmin}), state.WrapCore(s.gate), data)
}

// AdminState is the store itself, without rules, checks and faults.
func (s *Server) AdminState() state.State { return s.state }
