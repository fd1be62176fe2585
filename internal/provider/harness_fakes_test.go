package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/siderolabs/image-factory/pkg/schematic"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
)

// fakeImages answers as an image manager would.
type fakeImages struct {
	mu sync.Mutex
	// answer gets the number of the question, from 1.
	answer    func(n int, w image.Want) (image.Status, error)
	asked     []image.Want
	forgotten []string
}

var _ Images = (*fakeImages)(nil)

// Ask implements Images.
func (f *fakeImages) Ask(_ context.Context, w image.Want) (image.Status, error) {
	f.mu.Lock()
	f.asked = append(f.asked, w)
	n, answer := len(f.asked), f.answer
	f.mu.Unlock()

	return answer(n, w)
}

// Forget implements Images.
func (f *fakeImages) Forget(imageID string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.forgotten = append(f.forgotten, imageID)
}

func (f *fakeImages) answers(answer func(n int, w image.Want) (image.Status, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.answer = answer
}

// seen are the questions and the forgotten images so far.
func (f *fakeImages) seen() (asked []image.Want, forgotten []string) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return append([]image.Want(nil), f.asked...), append([]string(nil), f.forgotten...)
}

// fakeSchematics registers schematics as Omni would: by a hash of their bytes,
// with a salt for a factory that changes its mind.
type fakeSchematics struct {
	mu         sync.Mutex
	salt       string
	err        error
	registered []schematic.Schematic
}

// EnsureSchematic implements provision.FactoryClient.
func (f *fakeSchematics) EnsureSchematic(_ context.Context, s schematic.Schematic) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.err != nil {
		return "", f.err
	}

	f.registered = append(f.registered, s)

	raw, err := s.Marshal()
	if err != nil {
		return "", err
	}

	sum := sha256.Sum256(append(raw, f.salt...))

	return hex.EncodeToString(sum[:]), nil
}

func (f *fakeSchematics) set(salt string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.salt, f.err = salt, err
}

func (f *fakeSchematics) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return len(f.registered)
}
