package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

// What the observer notes on the health board.
const (
	SubjectUploads = "image uploads"
	SubjectOrphans = "orphans"
	SubjectFactory = "image factory"
	SubjectRole    = "role"
)

const (
	observeEvery = 15 * time.Second
	// askEvery is how often the factory and the token's role are looked at, and
	// askDeadline bounds it.
	askEvery    = 5 * time.Minute
	askAgain    = time.Minute // while something is wrong
	askDeadline = 10 * time.Second
	// longPause is longer than the first pauses between two tries of an upload.
	longPause = time.Minute
	// longOrphans is how long orphans may be there, beyond the janitor's grace,
	// before health tells of them.
	longOrphans = 10 * time.Minute
)

// observe keeps on the board what no other loop does: uploads that fail, orphans
// that stay, a factory that can not be reached, a role that was lost. Health reads
// the board alone, so none of this can hold a heartbeat up.
func (d *Daemon) observe(ctx context.Context) {
	board := d.opts.Board
	o := lookout{Daemon: d}

	defer func() {
		for _, subject := range []string{SubjectUploads, SubjectOrphans, SubjectFactory, SubjectRole} {
			board.Withdraw(subject)
		}
	}()

	next := time.Now().Add(spread(observeEvery))

	for {
		o.uploads()
		o.orphans(time.Now())

		if !time.Now().Before(next) {
			next = time.Now().Add(spread(o.ask(ctx)))
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(observeEvery):
		}
	}
}

type lookout struct {
	*Daemon

	// since is from when on there have been orphans.
	since time.Time
}

func (o *lookout) uploads() {
	var failing []image.JobInfo

	for _, j := range o.images.Jobs() {
		// One that fails for the first time is tried again at once, unless a person
		// must mend something.
		if j.LastError != "" && (j.Attempts > 1 || time.Until(j.NextTry) > longPause) {
			failing = append(failing, j)
		}
	}

	if len(failing) == 0 {
		o.opts.Board.OK(SubjectUploads)

		return
	}

	slices.SortFunc(failing, func(a, b image.JobInfo) int { return b.Attempts - a.Attempts })

	text := fmt.Sprintf("Talos %s fails (%d tries): %s", failing[0].Identity.Talos, failing[0].Attempts, failing[0].LastError)
	if len(failing) > 1 {
		text = fmt.Sprintf("%d fail, Talos %s for one (%d tries): %s", len(failing), failing[0].Identity.Talos, failing[0].Attempts, failing[0].LastError)
	}

	o.opts.Board.Note(SubjectUploads, fmt.Sprint("failing", len(failing)), text)
}

func (o *lookout) orphans(now time.Time) {
	o.scene.mu.Lock()
	counts := o.scene.orphans
	o.scene.mu.Unlock()

	var parts []string

	for _, kind := range []string{"instance", "boot", "data", "ip", "group"} {
		if n := counts[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}

	switch {
	case len(parts) == 0:
		o.since = time.Time{}
		o.opts.Board.OK(SubjectOrphans)
	case o.since.IsZero():
		o.since = now
	case now.Sub(o.since) > o.opts.JanitorGrace+longOrphans:
		o.opts.Board.Note(SubjectOrphans, "there", "without a machine request for long: "+strings.Join(parts, ", ")+"; see `orphans list`")
	}
}

// ask asks the factory and the rack, and answers when to ask again.
func (o *lookout) ask(ctx context.Context) time.Duration {
	well := true

	if o.opts.Factory != nil {
		well = o.note(ctx, SubjectFactory, o.factoryTrouble) && well
	}

	if well = o.note(ctx, SubjectRole, o.roleTrouble) && well; !well {
		return askAgain
	}

	return askEvery
}

func (o *lookout) note(ctx context.Context, subject string, trouble func(context.Context) (key, text string)) bool {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()

	key, text := trouble(ctx)

	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return true
	case key == "":
		o.opts.Board.OK(subject)
	default:
		o.opts.Board.Note(subject, key, text)
	}

	return key == ""
}

// factoryTrouble asks for the factory's versions: any answer but a refusal of the
// credentials proves that it is there.
func (o *lookout) factoryTrouble(ctx context.Context) (key, text string) {
	address, err := o.factoryAddress(ctx)

	switch {
	case isA[*image.MendError](err):
		return "address", err.Error()
	case err != nil:
		return "", "" // Omni is away, of which it tells itself
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodHead, strings.TrimSuffix(address.Base, "/")+"/versions", nil)
	if err != nil {
		return "address", "its address is no URL"
	}

	for name, values := range address.Header {
		req.Header[name] = values
	}

	resp, err := o.opts.Factory.Transport().RoundTrip(req)
	if err != nil {
		what, _ := reach.Explain(err, req.URL.Host, "IMAGE_FACTORY_CA_FILE")

		return "lost", what + "; images that are not in the rack yet can not be brought"
	}

	_ = resp.Body.Close()

	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return "credentials", fmt.Sprintf("%s refuses the credentials (HTTP %d)", req.URL.Host, resp.StatusCode)
	}

	return "", ""
}

// roleTrouble reads what uploads must read. What the rack says of itself stands
// under the need already.
func (o *lookout) roleTrouble(ctx context.Context) (key, text string) {
	if _, err := o.opts.Rack.Utilization(ctx); rack.ClassOf(err) == rack.ClassForbidden {
		return "forbidden", "the token (OXIDE_TOKEN) may not read the silo's utilization, give its user the role silo viewer at least: " + rack.Reason(err)
	}

	return "", ""
}
