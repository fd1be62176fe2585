package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

const (
	emptyPackage = "github.com/oxidecomputer/omni-infra-provider-oxide/hack/bench/empty"
	// maxStartOverEmpty is how much longer the daemon's first line may take than that
	// of a program that only loads the SDKs.
	maxStartOverEmpty = 2.0
)

// measureStart compares the time to the first line of the daemon's log with that of
// an empty program with the same SDKs, in turns.
func (o *loadOptions) measureStart(ctx context.Context) (r loadResult, err error) {
	r = loadResult{Row: rowStart, Conditions: map[string]any{"runs": o.runs, "cores": runtime.NumCPU()}, About: "from starting the process to the first line of its log, " +
		"medians, in turns with an empty program that imports the same SDKs; real time"}

	dir, err := os.MkdirTemp("", "oipo-start-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // only litter is left otherwise

	empty := filepath.Join(dir, "empty")
	if err := build(ctx, empty, emptyPackage); err != nil {
		return r, err
	}

	s, err := site.Start(ctx, site.Config{})
	if err != nil {
		return r, err
	}

	defer func() { err = errors.Join(err, s.Close()) }()

	key, err := s.ProviderKey(ctx, loadProvider)
	if err != nil {
		return r, err
	}

	env := []string{
		"HOME=" + dir, "OMNI_ENDPOINT=" + s.Omni.Endpoint(), "OMNI_SERVICE_ACCOUNT_KEY=" + key, "PROVIDER_ID=" + loadProvider,
		"OXIDE_HOST=" + s.RackURL, "OXIDE_TOKEN=" + s.RackToken,
	}

	var ours, theirs []float64

	for range o.runs {
		for _, p := range []struct {
			binary string
			took   *[]float64
		}{{empty, &theirs}, {o.daemon, &ours}} {
			d, err := firstLine(ctx, p.binary, env)
			if err != nil {
				return r, err
			}

			*p.took = append(*p.took, 1000*d.Seconds())
		}
	}

	slices.Sort(ours)
	slices.Sort(theirs)

	r.bounded("first line of the log", percentile(ours, 0.5), "ms", percentile(theirs, 0.5), maxStartOverEmpty)

	for _, f := range []struct{ name, file string }{{"size of the binary", o.daemon}, {"size of the empty program", empty}} {
		info, err := os.Stat(f.file)
		if err != nil {
			return r, err
		}

		r.add(f.name, mib(info.Size()), "MiB", 0)
	}

	return r, nil
}

// firstLine starts a program, waits for its first output and ends it.
func firstLine(ctx context.Context, binary string, env []string) (took time.Duration, err error) {
	in, out, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer in.Close() //nolint:errcheck // only read from

	cmd := exec.CommandContext(ctx, binary)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out

	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, errors.Join(err, out.Close())
	}

	_ = out.Close()

	line := make([]byte, 4096)
	n, err := in.Read(line)
	took = time.Since(began)

	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed

	if err != nil || !strings.HasPrefix(string(line[:n]), "{") {
		return 0, fmt.Errorf("%s said %q: %w", filepath.Base(binary), line[:n], err)
	}

	return took, nil
}
