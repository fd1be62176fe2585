package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/offboard"
)

const offboardLong = `Removes what a provider has left in the rack after it was deleted in Omni, which
ends its key and leaves its instances running. It needs the rack's token alone.

Without --owner it lists the owners that the marks of objects name, with how
many objects each has and how old they are, and changes nothing. With --owner it
asks, and then removes all that is theirs: instances, which are stopped first,
their disks, floating addresses and anti-affinity groups, scratch and snapshots
of uploads. Images stay, unless --images is given: then they go last, when all
else is gone, except for those that a disk still stems from.

End the owner's daemon first: one that still runs goes on making things. What
bears no mark, or one that can not be read, is counted and never touched; a disk
that somebody attached is left, and so is what a stranger's instance uses. When
it is interrupted, running it again ends it.

Exits with 0 when all is well, with 1 when something could not be read or is
still there, with 2 when the command line or the configuration is wrong, and
with 3 when it refused and did nothing.`

// offboarding is what `offboard` was told.
type offboarding struct {
	loader             *config.Loader
	projects           []string
	owner, yes, output string
	images             bool
	timeout            time.Duration
	removed            []offboard.Object
}

func newOffboardCommand() *cobra.Command {
	o := &offboarding{}
	cmd := &cobra.Command{
		Use: "offboard", Short: "Remove what a provider has left in the rack, without its Omni", Long: offboardLong, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.loader = config.RegisterRack(cmd.Flags())

	f := cmd.Flags()
	f.StringSliceVar(&o.projects, "project", nil, "look in this project only, and at no image of the silo; may be given again; empty for the whole silo, which needs a role on it")
	f.StringVar(&o.owner, "owner", "", "OWNER or OWNER/PROVIDER whose objects are removed; empty to list the owners")
	f.StringVar(&o.yes, "yes", "", "the same text as --owner: do not ask")
	f.BoolVar(&o.images, "images", false, "remove the owner's images too, last; without it images stay")
	f.StringVarP(&o.output, "output", "o", outputTable, "form of the answer: table or json")
	f.DurationVar(&o.timeout, "timeout", time.Hour, "give up after this time")

	return cmd
}

var ownerForm = regexp.MustCompile(`^[a-z2-7]{26}(/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$`)

func (o *offboarding) check() error {
	switch {
	case o.output != outputTable && o.output != outputJSON:
		return fmt.Errorf("%w: --output %q is neither %s nor %s", errUsage, o.output, outputTable, outputJSON)
	case o.owner != "" && !ownerForm.MatchString(o.owner):
		return fmt.Errorf("%w: --owner %q is not of the form OWNER or OWNER/PROVIDER, where OWNER has 26 of a-z and 2-7", errUsage, o.owner)
	case o.yes != "" && o.yes != o.owner:
		return fmt.Errorf("%w: --yes %q is not --owner %q", errUsage, o.yes, o.owner)
	case o.images && o.owner == "":
		return fmt.Errorf("%w: --images is set without --owner", errUsage)
	case o.timeout <= 0:
		return fmt.Errorf("%w: --timeout %s is not more than 0s", errUsage, o.timeout)
	}

	return nil
}

func (o *offboarding) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}

	cfg, err := o.loader.Load(os.LookupEnv)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout, fmt.Errorf("gave up after %s", o.timeout))
	defer cancel()

	ways, err := rackAlone(cfg)
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

	id, provider, _ := strings.Cut(o.owner, "/")
	job := offboard.New(offboard.Config{
		Rack: silo, Projects: o.projects, Images: o.images, Owner: offboard.Owner{ID: id, Provider: provider},
		Removed: func(x offboard.Object) {
			o.removed = append(o.removed, x)

			if o.output == outputTable {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", objectText(x))
			}
		},
	})

	look, err := job.Look(ctx)
	if err != nil {
		return err
	}

	if o.owner == "" {
		return o.list(cmd.OutOrStdout(), look)
	}

	return o.remove(ctx, cmd, job, look)
}

// offboarded is the answer in JSON.
type offboarded struct {
	Owners     []offboard.Holding `json:"owners"`
	Strangers  int                `json:"strangers"`
	Unparsable int                `json:"unparsable"`
	Unread     []string           `json:"unread,omitempty"`
	Note       string             `json:"note,omitempty"`
	Removed    []offboard.Object  `json:"removed,omitempty"`
	Left       []offboard.Object  `json:"left,omitempty"`
	Error      string             `json:"error,omitempty"`
}

func (o *offboarding) list(out io.Writer, look *offboard.Look) error {
	if o.output == outputJSON {
		return errors.Join(unreadError(look), writeJSON(out, answerOf(look)))
	}

	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "OWNER\tPROVIDER\tOLDEST\tNEWEST\tOBJECTS")

	for _, h := range look.Owners() {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", h.ID, h.Provider, ageOf(h.Oldest), ageOf(h.Newest), counts(h.Objects))
	}

	if err := t.Flush(); err != nil {
		return err
	}

	tellLook(out, look)

	return unreadError(look)
}

func answerOf(look *offboard.Look) offboarded {
	return offboarded{Owners: look.Owners(), Strangers: look.Strangers, Unparsable: look.Unparsable, Unread: look.Unread}
}

func tellLook(out io.Writer, look *offboard.Look) {
	_, _ = fmt.Fprintf(out, "Not touched: %d objects without a mark, %d with a mark that can not be read.\n", look.Strangers, look.Unparsable)

	tellUnread(out, look)
}

func tellUnread(out io.Writer, look *offboard.Look) {
	for _, u := range look.Unread {
		_, _ = fmt.Fprintln(out, "Not looked at: "+u)
	}
}

func unreadError(look *offboard.Look) error {
	if n := len(look.Unread); n > 0 {
		return fmt.Errorf("%d projects or lists could not be read", n)
	}

	return nil
}

// chosen is the owner that the command line means.
func (o *offboarding) chosen(look *offboard.Look) (h offboard.Holding, found bool, err error) {
	var providers []string

	for _, each := range look.Owners() {
		if o.owner == each.String() || o.owner == each.ID {
			h = each

			providers = append(providers, each.String())
		}
	}

	if len(providers) > 1 {
		return h, false, fmt.Errorf("%w: --owner %s has several providers, name one of %s", errRefused, o.owner, strings.Join(providers, ", "))
	}

	return h, len(providers) == 1, nil
}

func (o *offboarding) remove(ctx context.Context, cmd *cobra.Command, job *offboard.Job, look *offboard.Look) error {
	h, found, err := o.chosen(look)
	if err != nil {
		return err
	}

	if !found {
		return o.answer(cmd.OutOrStdout(), look, nil, o.absent(look), unreadError(look))
	}

	what := fmt.Sprintf("%s (%s): %s, the newest %s old.", h.ID, h.Provider, counts(h.Objects), ageOf(h.Newest))
	if h.Objects[naming.KindImage] > 0 && !o.images {
		what += " Images stay."
	}

	if o.output == outputTable {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), what)
		tellUnread(cmd.OutOrStdout(), look)
	}

	if o.yes == "" {
		if err := confirm(cmd, what+"\nThis can not be undone. Type "+o.owner+" to remove them: ", o.owner); err != nil {
			return err
		}
	}

	left, last, err := job.Remove(ctx, h.Owner)
	if last != nil {
		look = last
	}

	if err == nil {
		err = unreadError(look)
	}

	if err == nil && slices.ContainsFunc(left, func(x offboard.Object) bool { return x.Kind != naming.KindImage || o.images }) {
		err = fmt.Errorf("%d objects are still there", len(left))
	}

	return o.answer(cmd.OutOrStdout(), look, left, "", err)
}

// absent says that the owner has nothing, as far as anybody looked.
func (o *offboarding) absent(look *offboard.Look) string {
	note := "no object of owner " + o.owner + " is on this rack"
	if !look.Whole() {
		note = "no object of owner " + o.owner + " is in what was looked at"
	}

	id, _, _ := strings.Cut(o.owner, "/")

	for _, h := range look.Owners() {
		if h.ID == id {
			note += "; there are some of " + h.String()
		}
	}

	return note
}

// answer tells what was done, and returns err once it is told.
func (o *offboarding) answer(out io.Writer, look *offboard.Look, left []offboard.Object, note string, err error) error {
	if o.output == outputJSON {
		answer := answerOf(look)
		answer.Note, answer.Removed, answer.Left = note, o.removed, left

		if err != nil {
			answer.Error = err.Error()
		}

		return errors.Join(err, writeJSON(out, answer))
	}

	for _, x := range left {
		_, _ = fmt.Fprintf(out, "left %s: %s\n", objectText(x), x.Why)
	}

	if note != "" {
		_, _ = fmt.Fprintln(out, note)
	} else {
		_, _ = fmt.Fprintf(out, "%d removed, %d left.\n", len(o.removed), len(left))
	}

	tellLook(out, look)

	return err
}

func objectText(x offboard.Object) string {
	where := "the silo"
	if x.Project != "" {
		where = "project " + x.Project
	}

	return fmt.Sprintf("%s %s (%s) of %s", x.Kind, x.Name, x.ID, where)
}

func ageOf(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}

	return time.Since(t).Round(time.Second).String()
}

func counts(objects map[naming.Kind]int) string {
	var parts []string

	for kind, n := range objects {
		parts = append(parts, fmt.Sprintf("%d %s", n, kind))
	}

	slices.Sort(parts)

	return strings.Join(parts, ", ")
}
