package provider

import (
	"context"

	"github.com/cosi-project/runtime/pkg/state"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
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
		Braked: d.braked, Log: d.opts.Logger,
	}).Run(ctx)
}

// braked notes why the janitor holds back. That takes nothing out of service:
// machines are made and removed all the same.
func (d *Daemon) braked(why string) {
	if why == "" {
		d.opts.Board.OK(NeedJanitor)
	} else {
		d.opts.Board.Note(NeedJanitor, "brake", why)
	}
}
