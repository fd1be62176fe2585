package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// row is one condition, with what must hold under it.
type row struct {
	name    string
	about   string
	form    string // the only one that the factory serves; .raw.zst if empty
	tls     bool
	factory int64         // bytes a second
	build   time.Duration // before the first byte
	rack    int64         // bytes a second
	write   time.Duration // of each bulk write
	uploads int
	size    int64
	slow    bool   // measured once
	profile string // directory, or empty

	wall float64 // times the lower bound
	cpu  float64 // times that of decoding alone; 0 is not judged
}

const mega = 1_000_000

func rows(scale float64) []row {
	all := []row{
		{name: "fast", about: "factory unlimited, 20 ms a write", write: 20 * time.Millisecond, wall: 1.5, cpu: 1.9},
		{name: "tls", about: "the same, TLS on both sides", write: 20 * time.Millisecond, tls: true, wall: 1.6},
		{name: "factory25", about: "factory 25 MB/s", write: 20 * time.Millisecond, factory: 25 * mega, wall: 1.12},
		{name: "rack40", about: "rack 40 MB/s", write: 20 * time.Millisecond, rack: 40 * mega, wall: 1.12},
		{name: "write100", about: "100 ms a write", write: 100 * time.Millisecond, wall: 1.25},
		{name: "factory5", about: "factory 5 MB/s", write: 20 * time.Millisecond, factory: 5 * mega, wall: 1.04, slow: true},
		{name: "build", about: "first byte after 5 min, scaled", write: 20 * time.Millisecond, build: time.Duration(float64(5*time.Minute) * scale), factory: 25 * mega, wall: 1.04, slow: true},
		{name: "xz", about: "only .raw.xz", write: 20 * time.Millisecond, form: ".raw.xz", wall: 1.5},
		{name: "two", about: "two uploads at once", write: 20 * time.Millisecond, uploads: 2, slow: true},
		{name: "large", about: "8 GiB, the same data", write: 20 * time.Millisecond, size: 8 * gib, slow: true},
	}

	for i := range all {
		all[i].uploads = max(all[i].uploads, 1)

		if all[i].form == "" {
			all[i].form = ".raw.zst"
		}

		if all[i].size == 0 {
			all[i].size = talosimage.FullSize
		}
	}

	return all
}

type options struct {
	dir    string
	runs   int
	output string
	rows   []row
}

func images(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}

	var results []result

	for _, r := range o.rows {
		f, err := makeImage(ctx, o.dir, r.size, r.form == ".raw.xz")
		if err != nil {
			return err
		}

		runs := o.runs
		if r.slow {
			runs = 1
		}

		res, err := r.measure(ctx, f, runs)
		if err != nil {
			return fmt.Errorf("row %s: %w", r.name, err)
		}

		results = append(results, res)

		if o.output != "json" {
			fmt.Fprintln(os.Stderr, "measured", r.name)
		}
	}

	if o.output == "json" {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")

		if err := e.Encode(results); err != nil {
			return err
		}
	} else {
		table(os.Stdout, results)
	}

	return verdict(results)
}

func parse(args []string) (options, error) {
	var (
		o       options
		names   string
		scale   float64
		profile string
	)

	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	fs.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "oipo-bench"), "where the image's files are kept; they take 3 GB")
	fs.IntVar(&o.runs, "runs", 3, "how often each row is measured, except slow ones")
	fs.StringVar(&o.output, "output", "table", "table or json")
	fs.StringVar(&names, "rows", "", "rows to measure, separated by commas; all if empty")
	fs.StringVar(&profile, "profile", "", "directory for profiles of the importer's last run; they cost time")
	fs.Float64Var(&scale, "scale", 1.0/30, "scale of the five minutes before the first byte")

	if err := fs.Parse(args); err != nil {
		return o, err
	}

	o.rows = rows(scale)
	for i := range o.rows {
		o.rows[i].profile = profile
	}

	if names != "" {
		wanted := strings.Split(names, ",")

		for _, n := range wanted {
			if !slices.ContainsFunc(o.rows, func(r row) bool { return r.name == n }) {
				return o, fmt.Errorf("there is no row %q", n)
			}
		}

		o.rows = slices.DeleteFunc(o.rows, func(r row) bool { return !slices.Contains(wanted, r.name) })
	}

	return o, nil
}
