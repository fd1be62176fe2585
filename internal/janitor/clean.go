package janitor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const kindInstance = naming.KindInstance

// place is what one removal works at: a request's objects in one project.
type place struct{ project, key string }

// clean takes the next step with every orphan that is due, and answers when to
// look again.
func (j *Janitor) clean(ctx context.Context, f *finding) time.Duration {
	j.removing, j.ourMachines = map[string]Orphan{}, f.machines

	var (
		places []place
		first  = map[place]Orphan{}
	)

	for _, o := range f.orphans {
		if !j.may(o) {
			continue
		}

		if j.cfg.DryRun {
			j.tellDry(o)

			continue
		}

		j.removing[o.ID] = o

		if at := (place{o.ProjectID, o.Key}); ofMachine(o) && first[at].ID == "" {
			first[at] = o

			places = append(places, at)
		}
	}

	next := time.Hour

	for _, at := range places {
		if ctx.Err() != nil {
			return next
		}

		next = min(next, j.removeMachine(ctx, first[at], f.look.silo))
	}

	for _, o := range f.orphans {
		if _, due := j.removing[o.ID]; due && !ofMachine(o) && ctx.Err() == nil {
			j.removeOther(ctx, o)
		}
	}

	j.removing = nil

	return next
}

func ofMachine(o Orphan) bool {
	return o.Kind == naming.KindInstance || o.Kind == naming.KindBoot || o.Kind == naming.KindData
}

func (j *Janitor) tellDry(o Orphan) {
	if j.once(o.ID) {
		j.cfg.Log.Info("an orphan would be removed, if this were no dry run", o.fields()...)
	}
}

// removeMachine takes the next step with the instance and disks of one request
// in one project.
func (j *Janitor) removeMachine(ctx context.Context, o Orphan, silo string) time.Duration {
	err := j.machines.RemoveMarked(ctx, &specs.Plan{
		RequestId: o.Request, ProjectId: o.ProjectID, ProjectName: o.Project, SiloId: silo,
	}, o.Key)
	if err == nil {
		return soon
	}

	after := maxEvery
	if w, ok := instance.AsWait(err); ok {
		after = w.After
	}

	j.tell(o.ID, "an orphan is still there", err, o.fields()...)

	return max(after, min(soon, j.every()))
}

// removeOther deletes an address or a group that nothing uses.
func (j *Janitor) removeOther(ctx context.Context, o Orphan) {
	err := j.free(ctx, o)
	if err == nil {
		err = j.guard(ctx, instance.Act{Verb: "delete", Kind: o.Kind, ID: o.ID, Name: o.Name})
	}

	if err == nil {
		if o.Kind == naming.KindIP {
			err = j.cfg.Rack.DeleteFloatingIP(ctx, o.ID)
		} else {
			err = j.cfg.Rack.DeleteAntiAffinityGroup(ctx, o.ID)
		}
	}

	if err != nil && rack.ClassOf(err) != rack.ClassGone && ctx.Err() == nil {
		j.tell(o.ID, "an orphan is still there", err, o.fields()...)
	}
}

// free says what still uses an address or a group.
func (j *Janitor) free(ctx context.Context, o Orphan) error {
	if o.busy != "" {
		return &instance.Wait{Reason: o.busy}
	}

	if o.Kind != naming.KindGroup {
		return nil
	}

	members, err := j.cfg.Rack.ListAntiAffinityGroupMembers(ctx, o.ID)
	if err == nil && len(members) > 0 {
		err = &instance.Wait{Reason: fmt.Sprintf("it has %d members", len(members))}
	}

	return err
}

// tell logs why something is not done, once and again when that changes.
func (j *Janitor) tell(what, text string, err error, fields ...zap.Field) {
	// Numbers in it, such as the rack's request IDs, are no news.
	why := withoutNumbers(err.Error())
	if j.told[what] == why || why == "" {
		return
	}

	j.told[what] = why
	j.cfg.Log.Info(text, append(fields, zap.NamedError("why", err))...)
}

func withoutNumbers(s string) string {
	words := strings.Fields(s)

	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return strings.ContainsAny(w, "0123456789") }), " ")
}

// fields are what the log says of an orphan.
func (o Orphan) fields() []zap.Field {
	id := map[naming.Kind]string{
		naming.KindInstance: "oxide.instance", naming.KindIP: "oxide.floating_ip", naming.KindGroup: "oxide.anti_affinity_group",
	}[o.Kind]
	if id == "" {
		id = "oxide.disk"
	}

	return []zap.Field{
		zap.String(id+".id", o.ID), zap.String(id+".name", o.Name), zap.String("oxide.project.id", o.ProjectID),
		zap.String("omni.request.id", o.Request), zap.String("reason", o.Reason),
	}
}
