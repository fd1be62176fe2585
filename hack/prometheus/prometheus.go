// Package prometheus holds the alert rules, and what checks them: promtool, of
// Debian's package prometheus.
package prometheus

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Alerts is alerts.yaml.
//
//go:embed alerts.yaml
var Alerts string

// ErrNoPromtool says that promtool is not installed.
var ErrNoPromtool = errors.New("promtool is not installed, it is in Debian's package prometheus")

// Promtool runs promtool with arguments that may name the files, which stand in
// its working directory by their names. Its error holds what promtool printed.
func Promtool(ctx context.Context, dir string, files map[string]string, args ...string) error {
	path, err := exec.LookPath("promtool")
	if err != nil {
		return ErrNoPromtool
	}

	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}

	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir

	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("promtool %v: %w\n%s", args, err, out)
	}

	return nil
}
