package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/dns"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
)

// errNotTold is a database that can be read and knows of no hand-over.
var errNotTold = errors.New("the rack has not been handed over")

// Peers reaches the services of a rack by their kind.
type Peers struct {
	Resolver *dns.Resolver
	HTTP     *http.Client
}

// call asks the services of a kind one after the other until one answers at all.
func (p Peers) call(ctx context.Context, kind plan.ServiceKind, method, path string, body []byte) (int, []byte, error) {
	found, err := p.Resolver.Lookup(ctx, string(kind))
	if err != nil {
		return 0, nil, err
	}

	for _, at := range found {
		var (
			status int
			answer []byte
		)

		if status, answer, err = p.callAt(ctx, at, method, path, body); err == nil {
			return status, answer, nil
		}
	}

	return 0, nil, err
}

func (p Peers) callAt(ctx context.Context, at netip.AddrPort, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+at.String()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("calling %s: %w", at, err)
	}

	resp, err := p.HTTP.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("calling %s: %w", at, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it has been read

	answer, err := io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
	if err != nil {
		return 0, nil, fmt.Errorf("calling %s: %w", at, err)
	}

	return resp.StatusCode, answer, nil
}

// readRack asks the database for the hand-over.
func (p Peers) readRack(ctx context.Context) (HandOver, error) {
	status, answer, err := p.call(ctx, plan.Database, http.MethodGet, rackPath, nil)

	switch {
	case err != nil:
		return HandOver{}, err
	case status == http.StatusNotFound:
		return HandOver{}, errNotTold
	case status != http.StatusOK:
		return HandOver{}, answered("database", status, answer)
	}

	return decode(answer)
}

// insertRack stores a hand-over; false with the one that was first.
func (p Peers) insertRack(ctx context.Context, h HandOver) (HandOver, bool, error) {
	raw, err := json.Marshal(h)
	if err != nil {
		return HandOver{}, false, fmt.Errorf("encoding the hand-over: %w", err)
	}

	status, answer, err := p.call(ctx, plan.Database, http.MethodPost, rackPath, raw)

	switch {
	case err != nil:
		return HandOver{}, false, err
	case status != http.StatusCreated && status != http.StatusConflict:
		return HandOver{}, false, answered("database", status, answer)
	}

	stored, err := decode(answer)

	return stored, status == http.StatusCreated, err
}

// HandOver hands the rack over to any of its control planes; false when it had
// been before. Without an answer it may have been all the same: doing it again
// is harmless.
func (p Peers) HandOver(ctx context.Context, h HandOver) (bool, error) {
	raw, err := json.Marshal(h)
	if err != nil {
		return false, fmt.Errorf("encoding the hand-over: %w", err)
	}

	status, answer, err := p.call(ctx, plan.ControlPlane, http.MethodPut, handOverPath, raw)

	switch {
	case err != nil:
		return false, err
	case status != http.StatusCreated && status != http.StatusOK:
		return false, answered("control plane", status, answer)
	}

	return status == http.StatusCreated, nil
}

func answered(who string, status int, answer []byte) error {
	return fmt.Errorf("the %s answers %d: %s", who, status, strings.TrimSpace(string(answer)))
}

func decode(raw []byte) (HandOver, error) {
	var h HandOver
	if err := json.Unmarshal(raw, &h); err != nil {
		return HandOver{}, fmt.Errorf("reading the hand-over: %w", err)
	}

	return h, nil
}
