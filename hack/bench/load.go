package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// loadOptions say what arrives at what kind of rack.
type loadOptions struct {
	rows   []string
	output string
	daemon string // the binary; built if empty

	machines int
	arrival  arrival
	// projects is how many the machines are spread over: one for each thousand if 0.
	projects int

	create, start, stop, call time.Duration // of the rack
	omni                      time.Duration // of each call of Omni
	join                      bool

	creates, workers int // the daemon's limits

	// uploads are made, each at uploadRate bytes a second, and waiting requests find
	// no quota, while machines are removed that take longStop to stop.
	uploads, waiting int
	uploadRate       int64
	longStop         time.Duration

	idle time.Duration // for which the idle machines are looked at
	runs int           // of the row start
}

// arrival says how requests come.
type arrival struct {
	how   string        // burst, waves or poisson
	waves int           // how many
	every time.Duration // between two waves
	rate  float64       // requests a second, of a Poisson stream
	// churn is how many machines are removed and asked for anew each minute.
	churn float64
	seed  uint64
}

// The rows in the order in which they are measured, on one site.
const (
	rowArrive   = "arrive"
	rowIdle     = "idle"
	rowRestart  = "restart"
	rowTeardown = "teardown" // on a site of its own
	rowStart    = "start"
)

func loadRows() []string { return []string{rowArrive, rowIdle, rowRestart, rowTeardown, rowStart} }

func load(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseLoad(args)
	if err != nil {
		return err
	}

	results, err := o.measure(ctx)
	if err != nil {
		return err
	}

	if o.output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")

		if err := e.Encode(results); err != nil {
			return err
		}
	} else {
		loadTable(out, results)
	}

	return loadVerdict(results)
}

func parseLoad(args []string) (loadOptions, error) {
	var (
		o     loadOptions
		names string
	)

	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	fs.StringVar(&names, "rows", strings.Join(loadRows(), ","), "rows to measure, separated by commas")
	fs.StringVar(&o.output, "output", "table", "table or json")
	fs.StringVar(&o.daemon, "daemon", "", "the daemon's binary; built from the source if empty")
	fs.IntVar(&o.machines, "machines", 1000, "how many machines are asked for")
	fs.IntVar(&o.projects, "projects", 0, "how many projects they are spread over; one for each thousand if 0")
	fs.StringVar(&o.arrival.how, "arrival", "burst", "how they come: burst (at once), waves or poisson")
	fs.IntVar(&o.arrival.waves, "waves", 4, "with waves: how many")
	fs.DurationVar(&o.arrival.every, "wave-every", time.Minute, "with waves: the time between two")
	fs.Float64Var(&o.arrival.rate, "rate", 2, "with poisson: requests a second")
	fs.Float64Var(&o.arrival.churn, "churn", 0, "machines that are removed and asked for anew each minute, while others come")
	fs.Uint64Var(&o.arrival.seed, "seed", 1, "seed of all that is random")
	fs.DurationVar(&o.create, "create", time.Second, "how long the rack takes to create an instance")
	fs.DurationVar(&o.start, "start", 5*time.Second, "from start to running")
	fs.DurationVar(&o.stop, "stop", 3*time.Second, "from stop to stopped")
	fs.DurationVar(&o.call, "call", 20*time.Millisecond, "any other call of the rack")
	fs.DurationVar(&o.omni, "omni", 0, "how long each call of Omni takes longer")
	fs.BoolVar(&o.join, "join", true, "have the machines boot and join Omni")
	fs.IntVar(&o.creates, "max-creates", 4, "the daemon's MAX_CREATES")
	fs.IntVar(&o.workers, "workers", 10, "the daemon's PROVISIONER_CONCURRENCY")
	fs.DurationVar(&o.idle, "idle", 2*time.Minute, "for how long idle machines are looked at")
	fs.DurationVar(&o.longStop, "long-stop", 30*time.Second, "in the row teardown: from stop to stopped")
	fs.IntVar(&o.uploads, "uploads", 3, "in the row teardown: images that are uploaded meanwhile")
	fs.Int64Var(&o.uploadRate, "upload-rate", 25*mega, "in the row teardown: bytes a second that the factory sends of each")
	fs.IntVar(&o.waiting, "waiting", 100, "in the row teardown: requests that wait for quota meanwhile")
	fs.IntVar(&o.runs, "runs", 10, "how often each program is started in the row start")

	if err := fs.Parse(args); err != nil {
		return o, err
	}

	for n := range strings.SplitSeq(names, ",") {
		if !slices.Contains(loadRows(), n) {
			return o, fmt.Errorf("there is no row %q; there are: %s", n, strings.Join(loadRows(), ", "))
		}

		o.rows = append(o.rows, n)
	}

	err := o.check()

	return o, err
}

func (o *loadOptions) check() error {
	switch {
	case !slices.Contains([]string{"burst", "waves", "poisson"}, o.arrival.how):
		return fmt.Errorf("arrival is %q: it must be burst, waves or poisson", o.arrival.how)
	case o.output != "table" && o.output != "json":
		return fmt.Errorf("output is %q: it must be table or json", o.output)
	case o.machines < 1 || o.machines > 20000:
		return fmt.Errorf("machines is %d: it must be from 1 to 20000", o.machines)
	case o.uploads < 0 || o.waiting < 0 || o.uploadRate < 1:
		return errors.New("uploads and waiting must not be negative, and upload-rate positive")
	case o.arrival.waves < 1 || o.arrival.rate <= 0 || o.arrival.churn < 0 || o.runs < 1:
		return errors.New("waves, rate and runs must be positive, and churn not negative")
	}

	if o.projects == 0 {
		o.projects = (o.machines + machinesInProject - 1) / machinesInProject
	}

	return nil
}

// machinesInProject fit into the default subnet of a project.
const machinesInProject = 1000

func (o *loadOptions) has(rows ...string) bool {
	return slices.ContainsFunc(o.rows, func(r string) bool { return slices.Contains(rows, r) })
}

// measure runs the rows. Those that need machines share a site.
func (o *loadOptions) measure(ctx context.Context) (results []loadResult, err error) {
	if o.daemon == "" {
		dir, err := os.MkdirTemp("", "oipo-load-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // only litter is left otherwise

		if o.daemon, err = buildDaemon(ctx, dir); err != nil {
			return nil, err
		}
	}

	if o.has(rowArrive, rowIdle, rowRestart) {
		if results, err = o.measureSite(ctx); err != nil {
			return results, err
		}
	}

	if o.has(rowTeardown) {
		r, err := o.measureTeardown(ctx)
		if err != nil {
			return results, fmt.Errorf("row %s: %w", rowTeardown, err)
		}

		results = append(results, r)

		fmt.Fprintln(os.Stderr, "measured", rowTeardown)
	}

	if o.has(rowStart) {
		r, err := o.measureStart(ctx)
		if err != nil {
			return results, fmt.Errorf("row %s: %w", rowStart, err)
		}

		results = append(results, r)
	}

	return results, nil
}

func (o *loadOptions) measureSite(ctx context.Context) (results []loadResult, err error) {
	s, err := openLoadSite(ctx, *o, nil)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, s.close()) }()

	for _, row := range []struct {
		name string
		run  func(context.Context) (loadResult, error)
	}{
		{rowArrive, s.measureArrival}, {rowIdle, s.measureIdle}, {rowRestart, s.measureRestart},
	} {
		if !o.has(row.name) {
			continue
		}

		if row.name != rowArrive {
			if err := s.populate(ctx); err != nil {
				return results, fmt.Errorf("before row %s: %w", row.name, err)
			}
		}

		r, err := row.run(ctx)
		if err != nil {
			return results, fmt.Errorf("row %s: %w", row.name, err)
		}

		results = append(results, r)

		fmt.Fprintln(os.Stderr, "measured", row.name)
	}

	return results, nil
}
