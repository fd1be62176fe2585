package provider

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
)

// Stored is what Omni holds of one machine request, for a support bundle.
type Stored struct {
	RequestID string          `json:"request_id"`
	Step      string          `json:"step"`
	ProjectID string          `json:"project_id"`
	State     json.RawMessage `json:"state"`
}

// Stored lists what is stored for all requests: plans, attempts and IDs. There is
// no user-data and no key in it.
func (c *Connection) Stored(ctx context.Context) ([]Stored, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareDeadline)
	defer cancel()

	states, _, err := listStates(ctx, c.state)
	if err != nil {
		return nil, c.Explain(err)
	}

	out := []Stored{}

	for _, res := range states {
		text, err := protojson.Marshal(res.TypedSpec().Value)
		if err != nil {
			return nil, err
		}

		out = append(out, Stored{RequestID: res.Metadata().ID(), Step: stepOf(res), ProjectID: res.TypedSpec().Value.GetPlan().GetProjectId(), State: text})
	}

	return out, nil
}
