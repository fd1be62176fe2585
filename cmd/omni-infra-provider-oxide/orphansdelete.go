package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
)

// deletion is what `orphans delete` was told.
type deletion struct {
	finder

	yes     bool
	nothing int
}

func newOrphansDeleteCommand() *cobra.Command {
	d := &deletion{finder: finder{timeout: 30 * time.Minute}}
	cmd := &cobra.Command{
		Use: "delete", Short: "Delete them, after a question", Args: noArguments,
		Long: orphansLong + `

Instances are stopped before they are deleted. Right before each call the
request is looked for in Omni again. What an instance that is not ours uses, a
disk or an address that somebody attached, stays.

While Omni lists no request at all and instances exist nothing is deleted: that
is what an Omni looks like that was restored from a backup or reached by mistake.
Who is sure names the number of instances to be deleted:
--omni-lists-nothing=COUNT.`,
	}
	d.register(cmd)

	cmd.Flags().BoolVar(&d.yes, "yes", false, "do not ask")
	cmd.Flags().IntVar(&d.nothing, "omni-lists-nothing", 0,
		"delete this number of instances although Omni lists no machine request at all")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return d.with(cmd, func(ctx context.Context, hand *janitor.Janitor, r *janitor.Report) error {
			return d.delete(ctx, cmd, hand, r)
		})
	}

	return cmd
}

// deleted is the answer in JSON.
type deleted struct {
	*janitor.Report

	Removed int    `json:"removed"`
	Error   string `json:"error,omitempty"`
}

func (d *deletion) delete(ctx context.Context, cmd *cobra.Command, hand *janitor.Janitor, r *janitor.Report) error {
	out := cmd.OutOrStdout()

	if d.output == outputTable {
		if err := tell(out, r); err != nil {
			return err
		}
	}

	removed, err := 0, d.allowed(cmd, r)
	if err == nil && len(r.Orphans) > 0 {
		removed, err = hand.Delete(ctx, r, d.nothing)
	}

	if d.output == outputJSON {
		answer := deleted{Report: r, Removed: removed}
		if err != nil {
			answer.Error = err.Error()
		}

		return errors.Join(err, writeJSON(out, answer))
	}

	if len(r.Orphans) > 0 && !errors.Is(err, errRefused) {
		_, _ = fmt.Fprintf(out, "%d of %d removed.\n", removed, len(r.Orphans))
	}

	return err
}

// allowed asks, unless there is nothing to ask.
func (d *deletion) allowed(cmd *cobra.Command, r *janitor.Report) error {
	n := strconv.Itoa(len(r.Orphans))

	switch {
	case len(r.Orphans) == 0:
		return nil
	case r.Nothing && d.nothing != r.Lost():
		return fmt.Errorf("%w: Omni at this address lists no machine request at all, and %d instances of this provider exist. "+
			"If that is right, say so with --omni-lists-nothing=%d", errRefused, r.Instances, r.Lost())
	case !r.Nothing && d.nothing != 0:
		return fmt.Errorf("%w: --omni-lists-nothing is set, and Omni lists %d machine requests", errRefused, r.Requests)
	case d.yes:
		return nil
	}

	return confirm(cmd, fmt.Sprintf("This can not be undone. Type %s, the number of objects, to delete them: ", n), n)
}

// confirm wants a text typed.
func confirm(cmd *cobra.Command, question, want string) error {
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), question); err != nil {
		return err
	}

	line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}

	if got := strings.TrimSpace(line); got != want {
		return fmt.Errorf("%w: the answer %q is not %q", errRefused, got, want)
	}

	return nil
}
