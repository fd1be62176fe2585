package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/hack/examples"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/demo"
)

// The demo runs as a newcomer runs it: the real programs as processes, with the
// example class, from nothing to two machines and back.
func TestTheDemoEndsWithNothingLeft(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()

	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../omni-infra-provider-oxide")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}

	var out bytes.Buffer

	err := demo.Run(t.Context(), demo.Config{
		Simulator: buildSimulator(t), Daemon: filepath.Join(dir, "omni-infra-provider-oxide"),
		Class: examples.MachineClass, ClassName: examples.MachineClassName, Scales: []uint32{2, 1, 0},
		Dir: t.TempDir(), Out: &out,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}

	for _, want := range []string{"rack: service plan made and stored", "rack: hand-over: the control plane has taken the rack", "uploading Talos", "joined Omni", "machines joined   2", "images uploaded   1", "objects left over 0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output has no %q:\n%s", want, out.String())
		}
	}
}

// A daemon that ends is told, and the demo fails.
func TestTheDemoFailsWithItsDaemon(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	err := demo.Run(ctx, demo.Config{
		Simulator: buildSimulator(t), Daemon: "/bin/false",
		Class: examples.MachineClass, ClassName: examples.MachineClassName, Scales: []uint32{1, 0},
		Dir: t.TempDir(), Out: &bytes.Buffer{},
	})
	if err == nil || !strings.Contains(err.Error(), "daemon ended") {
		t.Errorf("got %v", err)
	}
}
