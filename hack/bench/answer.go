package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) //nolint:errcheck,errchkjson // the client sees it
}

// get reads JSON from a part.
func get(ctx context.Context, s server, path string, v any) error {
	t, err := transport(s)
	if err != nil {
		return err
	}
	defer t.CloseIdleConnections()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return err
	}

	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read from

	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking a part for %s: %s", path, resp.Status)
	}

	return json.NewDecoder(resp.Body).Decode(v)
}
