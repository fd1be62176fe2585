package provider

import (
	"context"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// NeedJanitor is what the janitor notes on the health board.
const NeedJanitor = "janitor"

// JanitorMode says whether orphans are looked for, and removed.
type JanitorMode string

// The modes of the janitor.
const (
	JanitorOff    JanitorMode = "off"
	JanitorDryRun JanitorMode = "dry-run"
	JanitorOn     JanitorMode = "on"
)

// clean is the janitor's loop.
func (d *Daemon) clean(ctx context.Context) {
	if d.opts.Janitor != JanitorOn && d.opts.Janitor != JanitorDryRun {
		return
	}

	defer d.opts.Board.Withdraw(NeedJanitor)

	janitor.New(janitor.Config{
		Omni: &Records{State: func() state.State { return state.WrapCore(d.fenced(d.state())) }}, Rack: d.strictRack(), Machines: d.machines, Images: d.images,
		Owner: d.work.Owner, Provider: d.opts.ProviderID,
		Grace: d.opts.JanitorGrace, Settle: d.opts.Settle, DryRun: d.opts.Janitor == JanitorDryRun,
		Braked: d.braked, Looked: d.scene.looked, Acted: d.opts.Metrics.Janitor, Log: d.opts.Logger,
	}).Run(ctx)
}

// braked notes why the janitor holds back. That takes nothing out of service:
// machines are made and removed all the same.
func (d *Daemon) braked(why string) {
	d.scene.brake(why != "")

	if why == "" {
		d.opts.Board.OK(NeedJanitor)
	} else {
		d.opts.Board.Note(NeedJanitor, "brake", why)
	}
}

// JanitorOptions are what a person's janitor is made of.
type JanitorOptions struct {
	Rack       *rack.Client
	Settle     time.Duration
	MaxCreates int
	// Projects are looked at too, by name or ID.
	Projects []string
	Logger   *zap.Logger
}

// Janitor makes a janitor for a person, whose Find and Delete are to be used.
func (c *Connection) Janitor(ctx context.Context, opts JanitorOptions) (*janitor.Janitor, error) {
	owner, err := c.Owner(ctx)
	if err != nil {
		return nil, err
	}

	images := image.New(image.Config{Rack: opts.Rack, Owner: owner, Provider: providerID(), Log: opts.Logger})

	return janitor.New(janitor.Config{
		Omni: c.Records(), Rack: opts.Rack, Strays: images, Owner: owner, Provider: providerID(),
		Projects: opts.Projects, Settle: opts.Settle, Log: opts.Logger,
		Machines: instance.New(instance.Config{
			Rack: opts.Rack, Owner: owner, Provider: providerID(), MaxCreates: opts.MaxCreates, Settle: opts.Settle,
			Silo: siloOf(opts.Rack),
		}),
	}), nil
}
