// Package doctor looks for what keeps the daemon from its work: from the
// configuration to Omni, the rack and the image factory, in an order in which each
// check builds on the ones before it. What it finds is one plain line with what to
// do. It changes nothing, here or anywhere else.
package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

// State is what a check came to.
type State string

// The states. A check is skipped if one that it builds on has failed, or if there
// is nothing to check.
const (
	OK   State = "ok"
	Note State = "note"
	Fail State = "fail"
	Skip State = "skip"
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	State State  `json:"state"`
	// Text is one line: what is so, or what is wrong.
	Text string `json:"text"`
	// Mend is what to do, empty if nothing.
	Mend string `json:"mend,omitempty"`
}

// Report is all findings, in the order of the checks.
type Report struct {
	// Well says that no check has failed.
	Well     bool      `json:"well"`
	Findings []Finding `json:"findings"`
}

// First is the finding that explains the others, nil if nothing has failed: the
// first one that failed.
func (r *Report) First() *Finding {
	for i := range r.Findings {
		if r.Findings[i].State == Fail {
			return &r.Findings[i]
		}
	}

	return nil
}

// Config is what is looked at.
type Config struct {
	// Config is the daemon's configuration; with Mistakes it is empty.
	Config   config.Config
	Mistakes config.Mistakes

	Network *reach.Network
	// Environment holds the proxies; nil is os.LookupEnv.
	Environment func(string) (string, bool)
	Omni        provider.Way
	// Rack makes no call that changes something.
	Rack *rack.Client
	// Classes are the machine classes to check, as a file has them; empty for none.
	Classes string

	// Now is this host's clock; nil is time.Now.
	Now func() time.Time
	// Patience bounds each check, 10 s if zero.
	Patience time.Duration
}

// exam is one examination.
type exam struct {
	Config

	report Report
	// reached are the endpoints whose connection was good.
	reached map[string]bool
	omni    *provider.Connection
	factory string
	// me is whose token it is, nil if the rack does not take it.
	me *oxide.CurrentUser
}

// Examine makes all checks. The provider ID must have been bound with
// provider.Bind, unless there are mistakes.
func Examine(ctx context.Context, cfg Config) *Report {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	if cfg.Environment == nil {
		cfg.Environment = os.LookupEnv
	}

	if cfg.Patience == 0 {
		cfg.Patience = 10 * time.Second
	}

	e := &exam{Config: cfg, reached: map[string]bool{}}

	if !e.configuration() {
		e.report.Well = false

		return &e.report
	}

	defer func() {
		if e.omni != nil {
			e.omni.Close()
		}
	}()

	for _, check := range []func(context.Context){
		e.proxies, e.clocks, e.reachOmni, e.reachRack, e.omniKey, e.provider, e.omniVersion,
		e.rackVersion, e.rackToken, e.role, e.classes, e.reachFactory, e.factoryServes, e.factorySchematic, e.daemon,
	} {
		if ctx.Err() != nil {
			e.fail("interrupted", "the examination was ended early: "+context.Cause(ctx).Error(), "")

			break
		}

		bounded, cancel := context.WithTimeout(ctx, cfg.Patience)
		check(bounded)
		cancel()
	}

	e.report.Well = e.report.First() == nil

	return &e.report
}

func (e *exam) add(check string, state State, text, mend string) {
	e.report.Findings = append(e.report.Findings, Finding{Check: check, State: state, Text: oneLine(text), Mend: mend})
}

func (e *exam) ok(check, format string, args ...any) {
	e.add(check, OK, fmt.Sprintf(format, args...), "")
}

func (e *exam) skip(check, why string) { e.add(check, Skip, why, "") }

func (e *exam) fail(check, text, mend string) { e.add(check, Fail, text, mend) }

func (e *exam) note(check, text, mend string) { e.add(check, Note, text, mend) }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// configuration tells the mistakes, those of Omni's key apart.
func (e *exam) configuration() bool {
	if len(e.Mistakes) == 0 {
		e.ok("configuration", "all options can be read and fit together")
		e.keyLife()

		return true
	}

	for _, m := range e.Mistakes {
		check := "configuration"
		if strings.HasPrefix(m, "--omni-service-account-key") || strings.Contains(m, "OMNI_SERVICE_ACCOUNT_KEY:") {
			check = "omni key"
		}

		e.fail(check, m, "see --help and the README's options")
	}

	return false
}

// soon is how long before its end a key's expiry is told.
const soon = 30 * 24 * time.Hour

func (e *exam) keyLife() {
	expiry := e.Config.Config.Omni.KeyExpiry

	switch left := expiry.Sub(e.Now()); {
	case expiry.IsZero():
		e.ok("omni key", "it is that of provider %q and does not expire", e.Config.Config.Provider.ID)
	case left < soon:
		e.note("omni key", fmt.Sprintf("it expires on %s, in %d days", expiry.UTC().Format(time.DateOnly), int(left.Hours()/24)),
			"renew it with `omnictl infraprovider renewkey`")
	default:
		e.ok("omni key", "it is that of provider %q and expires on %s", e.Config.Config.Provider.ID, expiry.UTC().Format(time.DateOnly))
	}
}
