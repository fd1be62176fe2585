package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/blang/semver/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

const noOmni = "Omni can not be asked"

// omniKey proves the key by a first read.
func (e *exam) omniKey(ctx context.Context) {
	const check = "omni access"

	if !e.reached[atOmni] {
		e.skip(check, noOmni)

		return
	}

	conn, err := provider.Connect(ctx, e.Omni, e.Config.Config.Omni.Key.Reveal())
	if err != nil {
		e.fail(check, err.Error(), "make a key with `omnictl infraprovider create` or `renewkey`, and give that one")

		return
	}

	e.omni = conn
	e.ok(check, "Omni takes the key")
}

// provider says whether Omni knows the provider, and whose its objects are.
func (e *exam) provider(ctx context.Context) {
	const check = "provider"

	if e.omni == nil {
		e.skip(check, noOmni)

		return
	}

	o, err := e.omni.Overview(ctx)
	if err != nil {
		e.omni.Close()
		e.omni = nil
		e.fail(check, err.Error(), fmt.Sprintf("see `omnictl infraprovider list` and the provider ID, %q", e.Config.Config.Provider.ID))

		return
	}

	if o.Owner == "" {
		e.note(check, fmt.Sprintf("Omni knows the provider %q, which has never run", o.Provider), "start the daemon")

		return
	}

	e.ok(check, "Omni knows the provider %q; owner %s, %d machine requests", o.Provider, o.Owner, len(o.Requests))
}

func (e *exam) omniVersion(ctx context.Context) {
	const check = "omni version"

	if e.omni == nil {
		e.skip(check, noOmni)

		return
	}

	text, err := e.omni.Version(ctx)
	if err != nil {
		e.fail(check, err.Error(), "see Omni's log")

		return
	}

	_, wrong := semver.ParseTolerant(strings.TrimPrefix(text, "v"))

	switch err := version.Omni(text); {
	case err != nil:
		e.fail(check, err.Error(), "")
	case wrong != nil:
		e.note(check, fmt.Sprintf("Omni says that it is %q, which is no version", text), "")
	default:
		e.ok(check, "Omni is %s, and must be %s or later", text, version.MinimumOmni)
	}
}

// daemon says what is known of those that run.
func (e *exam) daemon(ctx context.Context) {
	const check = "daemon"

	if e.omni == nil {
		e.skip(check, noOmni)

		return
	}

	o, err := e.omni.Overview(ctx)

	switch {
	case err != nil:
		e.note(check, err.Error(), "")
	case o.Health == nil:
		e.note(check, "no daemon has told Omni of its health yet", "start it")
	case e.Now().Sub(o.Health.Heartbeat) > time.Minute:
		e.note(check, fmt.Sprintf("no daemon works now: the last heartbeat was at %s", o.Health.Heartbeat.UTC().Format(time.RFC3339)), "start it, or see its log")
	case o.Health.Error != "":
		e.note(check, "the daemon that works says: "+o.Health.Error, "")
	case o.Lease != nil && o.Lease.Holder != "":
		e.ok(check, "one works at %s, and says that it is well", o.Lease.Holder)
	default:
		e.ok(check, "one works, and says that it is well")
	}
}
