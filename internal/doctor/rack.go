package doctor

import (
	"context"
	"fmt"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

const noRack = "the rack can not be asked"

func (e *exam) rackVersion(ctx context.Context) {
	const check = "rack version"

	if !e.reached[atRack] {
		e.skip(check, noRack)

		return
	}

	err := e.Rack.Ping(ctx)

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		e.ok(check, "the rack speaks API version %s", version.OxideAPIVersion)
	case rack.ClassVersion:
		e.fail(check, "the rack does not speak API version "+version.OxideAPIVersion+": "+rack.Reason(err),
			"update the rack to release "+version.OxideRelease+" or later")
	case rack.ClassLost, rack.ClassBusy:
		e.fail(check, "the rack's API does not answer: "+rack.Reason(err), "wait, it may be in an update")
	default:
		e.fail(check, "what answers at "+e.Rack.Host()+" is no Oxide API, or is not well: "+rack.Reason(err),
			"see OXIDE_HOST: it is the silo's own address")
	}

	e.reached[atRack] = err == nil
}

func (e *exam) rackToken(ctx context.Context) {
	const check = "rack token"

	if !e.reached[atRack] {
		e.skip(check, noRack)

		return
	}

	me, err := e.Rack.Me(ctx)

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		e.me = me
		e.ok(check, "it is that of %s in the silo %s", me.DisplayName, me.SiloName)
	case rack.ClassCredentials:
		e.fail(check, "the rack refuses the token: "+rack.Reason(err),
			"make a new device token in the rack's console, of a user of this very silo, and give that one")
	default:
		e.fail(check, "the token's user can not be read: "+rack.Reason(err), "wait, or ask the rack's operator")
	}
}

// role reads what the daemon must read, and who may make what.
func (e *exam) role(ctx context.Context) {
	const check = "rack role"

	if e.me == nil {
		e.skip(check, noRack)

		return
	}

	for _, read := range []struct {
		what string
		call func() error
	}{
		{"the silo's images", func() error { _, err := e.Rack.ListImages(ctx, ""); return err }},
		{"the silo's utilization", func() error { _, err := e.Rack.Utilization(ctx); return err }},
	} {
		if err := read.call(); err != nil {
			e.fail(check, fmt.Sprintf("the token may not read %s: %s", read.what, rack.Reason(err)),
				"give its user the role silo collaborator, or silo viewer with limited collaborator on the project")

			return
		}
	}

	projects, err := e.Rack.ListProjects(ctx)

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		e.makes(ctx, check, projects)
	case rack.ClassForbidden, rack.ClassGone:
		e.note(check, "the token reads what it must, but may not list the silo's projects",
			"orphans are looked for only in the projects that Omni leads to")
	default:
		e.fail(check, "the silo's projects can not be listed: "+rack.Reason(err), "wait, or ask the rack's operator")
	}
}
