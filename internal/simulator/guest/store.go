package guest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/siderolabs/omni/client/pkg/jointoken"
)

// Store is what a guest has written on its boot disk: the machine config on the
// STATE partition and the unique token in META. A reset wipes the first and
// keeps the second.
type Store struct {
	mu     sync.Mutex
	config []byte
	token  string
}

// NewStore is a disk on which no guest has written yet.
func NewStore() *Store { return &Store{} }

// Config is the machine config, nil if there is none.
func (s *Store) Config() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.config
}

func (s *Store) setConfig(config []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.config = config
}

// wipe is a reset of the STATE and EPHEMERAL partitions.
func (s *Store) wipe() { s.setConfig(nil) }

// uniqueToken is the machine's own token, made at its first use.
func (s *Store) uniqueToken(uuid string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.token != "" {
		return s.token, nil
	}

	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("making a unique token: %w", err)
	}

	fingerprint := sha256.Sum256([]byte(uuid))

	token, err := jointoken.NewNodeUniqueToken(hex.EncodeToString(fingerprint[:]), hex.EncodeToString(random)).Encode()
	if err != nil {
		return "", fmt.Errorf("making a unique token: %w", err)
	}

	s.token = token

	return token, nil
}
