package doctor

import (
	"context"
	"fmt"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// tried is the request for which a class is tried. There need not be one.
const tried = "doctor"

// classes checks machine classes by themselves, and one of them against the rack:
// project, VPC, subnet, pool and quota.
func (e *exam) classes(ctx context.Context) {
	const check = "class"

	if e.Classes == "" {
		e.skip(check, "no class was given (--class FILE)")

		return
	}

	found, wrong := machineclass.ValidateFile(e.Classes), false

	for _, f := range found {
		for _, m := range f.Mistakes {
			wrong = true

			text := m.Text
			if m.Field != "" {
				text = m.Field + ": " + text
			}

			if f.Class != "" {
				text = "class " + f.Class + ": " + text
			}

			e.fail(check, text, "mend the class; see `machine-class reference`")
		}
	}

	switch {
	case wrong:
	case len(found) != 1:
		e.note(check, fmt.Sprintf("the %d classes have no mistake by themselves; only a file with one class is checked against the rack", len(found)), "")
	case e.omni == nil || e.me == nil:
		e.skip(check, "Omni or the rack can not be asked")
	default:
		e.class(ctx, check)
	}
}

func (e *exam) class(ctx context.Context, check string) {
	if _, err := e.omni.Owner(ctx); err != nil {
		e.note(check, "it has no mistake by itself; it is checked against the rack once the daemon has run", "start the daemon once")

		return
	}

	class, kernelArgs := machineclass.ProviderData(e.Classes)

	made, err := e.omni.Preview(ctx, provider.PreviewOptions{
		Rack: e.Rack, FactoryURL: e.Config.Config.Factory.URL, Request: tried, Talos: version.MinimumTalos,
		Class: class, KernelArgs: kernelArgs, Scope: image.Scope(e.Config.Config.Images.Scope),
	})

	switch {
	case err != nil && rack.ClassOf(err).Passing() && ctx.Err() != nil:
		e.fail(check, "the rack does not answer in time: "+rack.Reason(err), "wait, or give it more --patience")

		return
	case err != nil:
		e.fail(check, err.Error(), "mend the class, or what it names in the rack")

		return
	}

	fits := true

	for _, q := range made.Quota {
		if !q.Fits {
			fits = false

			e.fail(check, fmt.Sprintf("the silo's quota of %s has no room for one machine: %s", q.Resource, room(q)), "remove something, or ask the rack's operator for more")
		}
	}

	if fits {
		e.ok(check, "a machine of it can be made in project %s", made.Project)
	}
}

// room is how much is used, in whole GiB where it is bytes.
func room(q provider.PreviewQuota) string {
	if q.Resource == "cpus" {
		return fmt.Sprintf("%d of %d are used, it needs %d more", q.Before, q.Quota, q.After-q.Before)
	}

	return fmt.Sprintf("%d of %d GiB are used, it needs %d more", q.Before>>30, q.Quota>>30, (q.After-q.Before)>>30)
}
