package omni

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/siderolabs/omni/client/pkg/omni/resources"
	"google.golang.org/protobuf/proto"
)

// historyCapacity is how many events of a type a watch may lag behind or resume
// over, as in Omni's in-memory state.
const (
	historyCapacity = 10000
	historyGap      = 20
)

// newStore makes the resource store. With a directory, resources of persistent
// namespaces are kept there, one file each.
func newStore(directory string) state.CoreState {
	return namespaced.NewState(func(ns resource.Namespace) state.CoreState {
		options := []inmem.StateOption{
			inmem.WithHistoryInitialCapacity(100),
			inmem.WithHistoryMaxCapacity(historyCapacity),
			inmem.WithHistoryGap(historyGap),
		}

		if directory != "" && persistent(ns) {
			options = append(options, inmem.WithBackingStore(&files{
				directory: filepath.Join(directory, "state", hex.EncodeToString([]byte(ns))),
			}))
		}

		return inmem.NewStateWithOptions(options...)(ns)
	})
}

func persistent(ns resource.Namespace) bool {
	switch ns {
	case meta.NamespaceName, resources.EphemeralNamespace, resources.InfraProviderEphemeralNamespace, resources.MetricsNamespace:
		return false
	default:
		return true
	}
}

// files keeps the resources of one namespace in a directory.
type files struct{ directory string }

func (f *files) path(resourceType resource.Type, id resource.ID) string {
	sum := sha256.Sum256([]byte(resourceType + "/" + id))

	return filepath.Join(f.directory, hex.EncodeToString(sum[:])+".pb")
}

// Load implements inmem.BackingStore.
func (f *files) Load(_ context.Context, handler inmem.LoadHandler) error {
	entries, err := os.ReadDir(f.directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".pb") {
			continue
		}

		res, err := readResource(filepath.Join(f.directory, entry.Name()))
		if err != nil {
			return fmt.Errorf("loading %s: %w", entry.Name(), err)
		}

		if err := handler(res.Metadata().Type(), res); err != nil {
			return err
		}
	}

	return nil
}

func readResource(path string) (resource.Resource, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	var stored v1alpha1.Resource

	if err := proto.Unmarshal(data, &stored); err != nil {
		return nil, err
	}

	raw, err := protobuf.Unmarshal(&stored)
	if err != nil {
		return nil, err
	}

	return protobuf.UnmarshalResource(raw)
}

// Put implements inmem.BackingStore. The rename makes a write whole or absent.
func (f *files) Put(_ context.Context, resourceType resource.Type, res resource.Resource) error {
	raw, err := protobuf.FromResource(res)
	if err != nil {
		return err
	}

	stored, err := raw.Marshal()
	if err != nil {
		return err
	}

	data, err := proto.Marshal(stored)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(f.directory, 0o700); err != nil {
		return err
	}

	path := f.path(resourceType, res.Metadata().ID())

	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}

	return os.Rename(path+".new", path)
}

// Destroy implements inmem.BackingStore.
func (f *files) Destroy(_ context.Context, resourceType resource.Type, ptr resource.Pointer) error {
	return os.Remove(f.path(resourceType, ptr.ID()))
}
