package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// importStart is the rack's operation that begins each upload.
const importStart = "disk_bulk_write_import_start"

// finish waits for what is removed in the background, ends the daemon, and sums
// up. Whatever should not be left is an error.
func (s *show) finish(ctx context.Context) error {
	err := s.until(ctx, "scratch objects to be removed", func() (bool, error) {
		rack, err := s.op.Inventory(ctx)

		return err == nil && rack.Leftovers() == 0, err
	})
	if err != nil {
		return err
	}

	if err := s.daemon.stop(); err != nil {
		return err
	}

	s.children = s.children[:len(s.children)-1]

	rack, err := s.op.Inventory(ctx)
	if err != nil {
		return err
	}

	omni, err := s.op.Omni(ctx)
	if err != nil {
		return err
	}

	uploads, err := s.uploads(ctx)
	if err != nil {
		return err
	}

	lines := []string{
		fmt.Sprintf("machines joined   %d", s.joined),
		fmt.Sprintf("images uploaded   %d", uploads),
		fmt.Sprintf("images kept       %d", rack.Images()),
		fmt.Sprintf("objects left over %d", rack.Leftovers()+omni.Links+omni.ConfigPatchRequests),
		fmt.Sprintf("time              %s", time.Since(s.began).Round(100*time.Millisecond)),
	}

	_, _ = fmt.Fprintf(s.cfg.Out, "\n%s\n", strings.Join(lines, "\n"))

	var errs []error

	if n := rack.Leftovers(); n != 0 {
		errs = append(errs, fmt.Errorf("invariant broken: %d objects are left in the rack", n))
	}

	if n := omni.Links + omni.ConfigPatchRequests; n != 0 {
		errs = append(errs, fmt.Errorf("invariant broken: %d links and config patches are left in Omni", n))
	}

	if uploads != 1 || rack.Images() != 1 {
		errs = append(errs, fmt.Errorf("invariant broken: %d uploads and %d images for one schematic", uploads, rack.Images()))
	}

	return errors.Join(errs...)
}

// uploads asks the simulated rack how often an import was begun.
func (s *show) uploads(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.control, "/")+"/simulator/summary", nil)
	if err != nil {
		return 0, err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("asking the simulated rack for its summary: %w", err)
	}

	defer resp.Body.Close() //nolint:errcheck // only read from

	var summary struct {
		Calls map[string]int `json:"calls"`
	}

	if err := json.NewDecoder(resp.Body).Decode(&summary); err != nil {
		return 0, fmt.Errorf("reading the simulated rack's summary: %w", err)
	}

	return summary.Calls[importStart], nil
}
