package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/doctor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

const diagnoseLong = `Writes a support bundle, a tar.gz with what is needed to find a fault from afar:

  versions.txt      what this build is
  config.txt        the options, secrets redacted
  doctor.json       what 'doctor' finds
  status.json       requests and what they wait for, as 'status' shows them
  stored.json       plans, attempts and IDs, as Omni keeps them
  objects.json      objects in the rack with this provider's mark: instances,
                    disks, snapshots, images, floating IPs, groups
  metrics.txt       of the daemon on this host, as the rest
  health.txt        /healthz and /readyz
  recent.json       the last 200 lines of its log at warn and above, with the
                    rack's request IDs
  goroutines.txt    what it does at the moment
  errors.txt        what could not be had, and why

The last ones come from --health-address, so run it beside the daemon with the
same options, as in its container: the bundle goes to standard output.

There is no key, token, join token or user-data in it, but names, IDs and
addresses are. It changes nothing.

Exits with 0 when the bundle is written, whatever it says, with 1 when it could
not be written, and with 2 when the command line or the configuration is wrong.`

type diagnoseCommand struct {
	loader  *config.Loader
	file    string
	timeout time.Duration
}

func newDiagnoseCommand() *cobra.Command {
	d := &diagnoseCommand{}
	cmd := &cobra.Command{
		Use: "diagnose", Short: "Write a support bundle", Long: diagnoseLong, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	d.loader = config.Register(cmd.Flags())
	cmd.Flags().StringVarP(&d.file, "file", "f", "-", "file to write, which must not be there yet; - for standard output")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 2*time.Minute, "give up on what takes longer")

	return cmd
}

func (d *diagnoseCommand) run(cmd *cobra.Command) error {
	cfg, err := d.loader.Load(os.LookupEnv)
	if err != nil {
		return err
	}

	if err := provider.Bind(cfg.Provider.ID); err != nil {
		return err
	}

	ways, err := newWays(cfg)
	if err != nil {
		return err
	}

	access, err := readAccess(&cfg)
	if err != nil {
		return err
	}

	silo, err := ways.rack(cfg, access)
	if err != nil {
		return err
	}

	defer silo.Close()

	ctx, cancel := context.WithTimeout(cmd.Context(), d.timeout)
	defer cancel()

	b := &bundle{at: time.Now()}
	b.text("versions.txt", version.Get().String())
	b.text("config.txt", cfg.String()+"\n")
	b.omni(ctx, cfg, ways)
	b.rack(ctx, silo)
	b.json("doctor.json", doctor.Examine(ctx, doctor.Config{Config: cfg, Network: reach.New(), Omni: ways.omni, Rack: silo}))
	b.daemon(ctx, cfg.HealthAddress)

	if cmd.Context().Err() != nil {
		return errors.New("interrupted: no bundle was written")
	}

	return d.write(cmd.OutOrStdout(), b)
}

func (d *diagnoseCommand) write(out io.Writer, b *bundle) error {
	if d.file == "-" {
		return b.write(out)
	}

	f, err := os.OpenFile(d.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}

	return errors.Join(b.write(f), f.Close())
}

// bundle is what goes into the archive.
type bundle struct {
	at    time.Time
	files []bundleFile
	// missing is what could not be had.
	missing bytes.Buffer

	owner    string
	projects map[string]bool
}

type bundleFile struct {
	name string
	text []byte
}

func (b *bundle) text(name, text string) { b.files = append(b.files, bundleFile{name, []byte(text)}) }

func (b *bundle) json(name string, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		b.lacks(name, err)

		return
	}

	b.text(name, string(text)+"\n")
}

func (b *bundle) lacks(name string, err error) { fmt.Fprintf(&b.missing, "%s: %v\n", name, err) }

func (b *bundle) omni(ctx context.Context, cfg config.Config, w *ways) {
	b.projects = map[string]bool{}

	omni, err := provider.Connect(ctx, w.omni, cfg.Omni.Key.Reveal())
	if err != nil {
		b.lacks("status.json", err)

		return
	}

	defer omni.Close()

	if o, err := omni.Overview(ctx); err != nil {
		b.lacks("status.json", err)
	} else {
		b.owner = o.Owner
		b.json("status.json", o)
	}

	stored, err := omni.Stored(ctx)
	if err != nil {
		b.lacks("stored.json", err)

		return
	}

	for _, s := range stored {
		if s.ProjectID != "" {
			b.projects[s.ProjectID] = true
		}
	}

	b.json("stored.json", stored)
}

// ownedObject is an object in the rack with our mark.
type ownedObject struct {
	Kind      string `json:"kind"`
	ID        string `json:"id"`
	Name      string `json:"name"`
	Project   string `json:"project"`
	State     string `json:"state"`
	Mark      string `json:"mark"`
	CreatedAt string `json:"created_at"`
}

func (b *bundle) rack(ctx context.Context, silo *rack.Client) {
	projects, err := silo.ListProjects(ctx)
	if err != nil {
		b.lacks("objects.json: the silo's projects", err)
	}

	for _, p := range projects {
		b.projects[p.Id] = true
	}

	objects := []ownedObject{}

	add := func(kind, id, name, project, state, description string, at *time.Time) {
		mark, ok := naming.Parse(description)
		if !ok || b.owner != "" && mark.Owner != b.owner {
			return
		}

		o := ownedObject{Kind: kind, ID: id, Name: name, Project: project, State: state, Mark: mark.String()}
		if at != nil {
			o.CreatedAt = at.UTC().Format(time.RFC3339)
		}

		objects = append(objects, o)
	}

	image := func(i oxide.Image) { add("image", i.Id, string(i.Name), i.ProjectId, "", i.Description, i.TimeCreated) }

	images, err := silo.ListImages(ctx, "")
	if err != nil {
		b.lacks("objects.json: the silo's images", err)
	}

	for _, i := range images {
		image(i)
	}

	for id := range b.projects {
		b.inProject(ctx, silo, id, add, image)
	}

	b.json("objects.json", objects)
}

// addObject notes an object if it is one of ours.
type addObject func(kind, id, name, project, state, description string, at *time.Time)

func (b *bundle) inProject(ctx context.Context, silo *rack.Client, id string, add addObject, image func(oxide.Image)) {
	each(b, "instances of project "+id, func() ([]oxide.Instance, error) { return silo.ListInstances(ctx, id) }, func(i oxide.Instance) {
		add("instance", i.Id, string(i.Name), id, string(i.RunState), i.Description, i.TimeCreated)
	})
	each(b, "disks of project "+id, func() ([]oxide.Disk, error) { return silo.ListDisks(ctx, id) }, func(d oxide.Disk) {
		add("disk", d.Id, string(d.Name), id, string(d.State.State()), d.Description, d.TimeCreated)
	})
	each(b, "snapshots of project "+id, func() ([]oxide.Snapshot, error) { return silo.ListSnapshots(ctx, id) }, func(s oxide.Snapshot) {
		add("snapshot", s.Id, string(s.Name), id, string(s.State), s.Description, s.TimeCreated)
	})
	each(b, "floating IPs of project "+id, func() ([]oxide.FloatingIp, error) { return silo.ListFloatingIPs(ctx, id) }, func(f oxide.FloatingIp) {
		state := "free"
		if f.InstanceId != "" {
			state = "attached to " + f.InstanceId
		}

		add("floating IP", f.Id, string(f.Name), id, state, f.Description, f.TimeCreated)
	})
	each(b, "anti-affinity groups of project "+id, func() ([]oxide.AntiAffinityGroup, error) { return silo.ListAntiAffinityGroups(ctx, id) }, func(g oxide.AntiAffinityGroup) {
		add("anti-affinity group", g.Id, string(g.Name), id, "", g.Description, g.TimeCreated)
	})
	each(b, "images of project "+id, func() ([]oxide.Image, error) { return silo.ListImages(ctx, id) }, image)
}

// each notes all objects of a list, or that it could not be had.
func each[T any](b *bundle, what string, list func() ([]T, error), note func(T)) {
	all, err := list()
	if err != nil {
		b.lacks("objects.json: "+what, err)
	}

	for _, o := range all {
		note(o)
	}
}

// maxPart bounds what is taken from the daemon.
const maxPart = 64 << 20

// daemon asks the daemon on this host.
func (b *bundle) daemon(ctx context.Context, address string) {
	if address == "" {
		b.lacks("metrics.txt, health.txt, recent.json, goroutines.txt", errors.New("--health-address is not set, so the daemon can not be asked"))

		return
	}

	here, err := onThisHost(address)
	if err != nil {
		b.lacks("metrics.txt", err)

		return
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 15 * time.Second}

	for _, part := range []struct{ name, path string }{
		{"metrics.txt", "/metrics"}, {"recent.json", "/debug/recent"}, {"goroutines.txt", "/debug/goroutines"},
	} {
		text, good, err := fetch(ctx, client, "http://"+here+part.path)
		if err == nil && !good {
			err = errors.New(text)
		}

		if err != nil {
			b.lacks(part.name, err)
		} else {
			b.text(part.name, text)
		}
	}

	var health string

	for _, path := range []string{"/healthz", "/readyz"} {
		text, _, err := fetch(ctx, client, "http://"+here+path)
		if err != nil {
			b.lacks("health.txt", err)

			return
		}

		health += path + "\n" + text
	}

	b.text("health.txt", health)
}

// fetch reads an address; good is status 200.
func fetch(ctx context.Context, client *http.Client, url string) (text string, good bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", false, err
	}

	resp, err := client.Do(req)
	if err != nil {
		return "", false, err
	}

	whole, err := io.ReadAll(io.LimitReader(resp.Body, maxPart))
	err = errors.Join(err, resp.Body.Close())

	return string(whole), resp.StatusCode == http.StatusOK, err
}

// write writes the archive.
func (b *bundle) write(out io.Writer) error {
	if b.missing.Len() == 0 {
		b.missing.WriteString("nothing is missing\n")
	}

	b.text("errors.txt", b.missing.String())

	z := gzip.NewWriter(out)
	t := tar.NewWriter(z)
	dir := "omni-infra-provider-oxide-" + b.at.UTC().Format("20060102-150405") + "/"

	for _, f := range b.files {
		h := &tar.Header{Name: dir + f.name, Mode: 0o600, Size: int64(len(f.text)), ModTime: b.at}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}

		if _, err := t.Write(f.text); err != nil {
			return fmt.Errorf("writing the bundle: %w", err)
		}
	}

	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}

	return nil
}
