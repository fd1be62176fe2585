package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// result is what a row came to, medians of its runs. Times are in seconds,
// memory in MiB.
type result struct {
	Row      string  `json:"row"`
	About    string  `json:"about"`
	Runs     int     `json:"runs"`
	Download float64 `json:"download_s"`
	Decode   float64 `json:"decode_s"`
	Upload   float64 `json:"upload_s"`
	Wall     float64 `json:"wall_s"`
	// Ratio is wall over the greatest of the three.
	Ratio  float64 `json:"ratio"`
	Target float64 `json:"target,omitempty"`
	// CPU is over that of decoding alone.
	CPU       float64 `json:"cpu_ratio"`
	CPUTarget float64 `json:"cpu_target,omitempty"`
	Idle      float64 `json:"idle_mib"`
	Peak      float64 `json:"peak_mib"`
	Writers   float64 `json:"writers"`
	// Connections and Calls are to the rack; Calls are those beside the writes.
	Connections float64 `json:"connections"`
	Calls       float64 `json:"other_calls"`
	Uploads     int     `json:"uploads"`
	// Missed are the targets that were not met.
	Missed []string `json:"missed,omitempty"`
}

// sample is one run of a row.
type sample struct {
	download, decode, upload spent
	imported                 importResult
	idle, peak               int64
	connections              int64
	calls                    int
}

func (r row) measure(ctx context.Context, f imageFiles, runs int) (result, error) {
	var samples []sample

	for range runs {
		s, err := r.sample(ctx, f)
		if err != nil {
			return result{}, err
		}

		samples = append(samples, s)
	}

	return r.sum(samples), nil
}

func (r row) file(f imageFiles) string {
	if r.form == ".raw.xz" {
		return f.xz
	}

	return f.zstd
}

func (r row) sample(ctx context.Context, f imageFiles) (sample, error) {
	var s sample

	var where server

	factory, err := start(ctx, "factory", factoryConfig{
		Files: map[string]string{r.form: r.file(f)}, TLS: r.tls, Rate: r.factory, Build: r.build,
	}, &where)
	if err != nil {
		return s, err
	}
	defer factory.stop() //nolint:errcheck // it has told what it had to

	if err := r.imported(ctx, f, where, &s); err != nil {
		return s, err
	}

	if err := alone(ctx, "download", downloadConfig{Factory: where, File: "nocloud-amd64" + r.form}, &s.download); err != nil {
		return s, err
	}

	if err := alone(ctx, "decode", decodeConfig{File: r.file(f)}, &s.decode); err != nil {
		return s, err
	}

	err = r.uploadedAlone(ctx, f, &s)

	return s, err
}

// imported runs the importer against a new rack.
func (r row) imported(ctx context.Context, f imageFiles, factory server, s *sample) error {
	simulated, where, project, err := r.newRack(ctx)
	if err != nil {
		return err
	}
	defer simulated.stop() //nolint:errcheck // it has told what it had to

	var before, after rackCounts

	importer, err := start(ctx, "import", importConfig{Rack: where, Factory: factory, Project: project, Uploads: r.uploads, Profile: r.profile}, &struct{}{})
	if err != nil {
		return err
	}
	defer importer.stop() //nolint:errcheck // its result is in or its error is told

	if err := get(ctx, where, "/bench/counts", &before); err != nil {
		return err
	}

	if s.idle, err = importer.anonymous(); err != nil {
		return err
	}

	watching := importer.watch()
	err = importer.goOn(&s.imported)

	if peak, watchErr := watching.end(); err == nil {
		s.peak, err = peak, watchErr
	}

	if err != nil {
		return err
	}

	if err := get(ctx, where, "/bench/counts", &after); err != nil {
		return err
	}

	s.connections = after.Connections - before.Connections - 1 // ours, just now

	for op, n := range after.Calls {
		if op != opBulkWrite {
			s.calls += n - before.Calls[op]
		}
	}

	for _, id := range s.imported.Images {
		var sum string

		if err := get(ctx, where, fmt.Sprintf("/bench/images/%s/%d", id, f.size), &sum); err != nil {
			return err
		}

		if sum != f.sum {
			return fmt.Errorf("image %s in the rack is not the factory's", id)
		}
	}

	return nil
}

// uploadedAlone writes the same chunks with as many writers as the importer had
// at most.
func (r row) uploadedAlone(ctx context.Context, f imageFiles, s *sample) error {
	simulated, where, project, err := r.newRack(ctx)
	if err != nil {
		return err
	}
	defer simulated.stop() //nolint:errcheck // it has told what it had to

	return alone(ctx, "upload", uploadConfig{Rack: where, Project: project, File: f.raw, Writers: int(s.imported.Writers)}, &s.upload)
}

func (r row) newRack(ctx context.Context) (*part, server, string, error) {
	var where server

	simulated, err := start(ctx, "rack", rackConfig{TLS: r.tls, Write: r.write, Rate: r.rack}, &where)
	if err != nil {
		return nil, where, "", err
	}

	id, err := projectID(ctx, where)
	if err != nil {
		return nil, where, "", errors.Join(err, simulated.stop())
	}

	return simulated, where, id, nil
}

func projectID(ctx context.Context, where server) (string, error) {
	t, err := transport(where)
	if err != nil {
		return "", err
	}

	client, err := rack.New(rack.Config{Host: where.URL, Token: simrack.DefaultToken, Transport: t})
	if err != nil {
		return "", err
	}
	defer client.Close()

	p, err := client.ViewProject(ctx, benchProject)
	if err != nil {
		return "", err
	}

	return p.Id, nil
}

func alone(ctx context.Context, role string, config any, s *spent) error {
	p, err := start(ctx, role, config, &struct{}{})
	if err != nil {
		return err
	}

	return errors.Join(p.goOn(s), p.stop())
}

func (r row) sum(all []sample) result {
	seconds := func(f func(s sample) time.Duration) float64 {
		return median(all, func(s sample) float64 { return f(s).Seconds() })
	}
	mib := func(f func(s sample) int64) float64 {
		return median(all, func(s sample) float64 { return float64(f(s)) / (1 << 20) })
	}

	res := result{
		Row: r.name, About: r.about, Runs: len(all), Target: r.wall, CPUTarget: r.cpu, Uploads: r.uploads,
		Download:    seconds(func(s sample) time.Duration { return s.download.Wall }),
		Decode:      seconds(func(s sample) time.Duration { return s.decode.Wall }),
		Upload:      seconds(func(s sample) time.Duration { return s.upload.Wall }),
		Wall:        seconds(func(s sample) time.Duration { return s.imported.Wall }),
		Idle:        mib(func(s sample) int64 { return s.idle }),
		Peak:        mib(func(s sample) int64 { return s.peak }),
		Writers:     median(all, func(s sample) float64 { return float64(s.imported.Writers) }),
		Connections: median(all, func(s sample) float64 { return float64(s.connections) }),
		Calls:       median(all, func(s sample) float64 { return float64(s.calls) }),
	}

	res.CPU = seconds(func(s sample) time.Duration { return s.imported.CPU }) / seconds(func(s sample) time.Duration { return s.decode.CPU })
	res.Ratio = res.Wall / max(res.Download, res.Decode, res.Upload)
	res.judge()

	return res
}

func median(all []sample, f func(sample) float64) float64 {
	values := make([]float64, 0, len(all))
	for _, s := range all {
		values = append(values, f(s))
	}

	slices.Sort(values)

	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}

	return values[len(values)/2]
}

// The limits of one upload; each further one may add maxFurther.
const (
	maxPeak    = 40.0 // MiB
	maxGrowth  = 26.0 // MiB over idle
	maxFurther = 25.0 // MiB
	maxCalls   = 12   // beside the writes
	maxDials   = 2    // beside one for each writer
)

// judge holds the figures against the targets.
func (r *result) judge() {
	miss := func(ok bool, format string, args ...any) {
		if !ok {
			r.Missed = append(r.Missed, fmt.Sprintf(format, args...))
		}
	}

	further := maxFurther * float64(r.Uploads-1)

	miss(r.Target == 0 || r.Ratio <= r.Target, "wall %.2f of %.2f", r.Ratio, r.Target)
	miss(r.CPUTarget == 0 || r.CPU <= r.CPUTarget, "cpu %.2f of %.2f", r.CPU, r.CPUTarget)
	miss(r.Peak <= maxPeak+further, "peak %.1f of %.1f MiB", r.Peak, maxPeak+further)
	miss(r.Peak-r.Idle <= maxGrowth+further, "growth %.1f of %.1f MiB", r.Peak-r.Idle, maxGrowth+further)
	miss(r.Calls <= float64(maxCalls*r.Uploads), "%.0f calls of %d", r.Calls, maxCalls*r.Uploads)
	miss(r.Connections <= r.Writers+maxDials, "%.0f connections for %.0f writers", r.Connections, r.Writers)
}

func verdict(all []result) error {
	var missed []string

	for _, r := range all {
		for _, m := range r.Missed {
			missed = append(missed, r.Row+": "+m)
		}
	}

	if len(missed) > 0 {
		return fmt.Errorf("targets missed: %s", strings.Join(missed, "; "))
	}

	return nil
}
