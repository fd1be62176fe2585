package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
)

func instances(state oxide.InstanceState, names ...string) operator.Rack {
	var r operator.Rack

	for _, n := range names {
		r.Instances = append(r.Instances, oxide.Instance{Name: oxide.Name(n), RunState: state})
	}

	return r
}

// The demo fails, with the reason, when an invariant breaks.
func TestABrokenInvariantIsTold(t *testing.T) {
	t.Parallel()

	provisioned := []operator.Request{{ID: "a", Stage: "PROVISIONED"}}

	for want, tc := range map[string]struct {
		requests []operator.Request
		rack     operator.Rack
		omni     operator.Omni
	}{
		"":                            {requests: provisioned, rack: instances(oxide.InstanceStateRunning, "a")},
		"provisioned, and its":        {requests: provisioned, rack: instances(oxide.InstanceStateStopped, "a")},
		"two instances are named":     {rack: instances(oxide.InstanceStateRunning, "a", "a")},
		`request "a" failed: no such`: {requests: []operator.Request{{ID: "a", Stage: "FAILED", Error: "no such"}}},
		"refused its config":          {omni: operator.Omni{ConfigErrors: []string{"no platform set"}}},
	} {
		err := (&show{}).check(tc.requests, tc.rack, tc.omni)

		switch {
		case want == "" && err != nil:
			t.Errorf("all is well, and it says %v", err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestSettledMeansNothingIsOnItsWay(t *testing.T) {
	t.Parallel()

	joined := operator.Request{ID: "a", Joined: true}
	one := operator.Omni{Machines: 1, Ready: 1}

	if !settled([]operator.Request{joined}, instances(oxide.InstanceStateRunning, "a"), one, 1) {
		t.Error("one machine is not one")
	}

	leaving := joined
	leaving.TearingDown = true

	for name, ok := range map[string]bool{
		"leaving":        settled([]operator.Request{leaving}, instances(oxide.InstanceStateRunning, "a"), one, 1),
		"left in rack":   settled(nil, instances(oxide.InstanceStateStopped, "a"), operator.Omni{}, 0),
		"left in Omni":   settled(nil, operator.Rack{}, one, 0),
		"not configured": settled([]operator.Request{joined}, instances(oxide.InstanceStateRunning, "a"), operator.Omni{Machines: 1}, 1),
	} {
		if ok {
			t.Errorf("%s counts as settled", name)
		}
	}
}

func TestProgressIsPrintedOncePerChange(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	s := &show{cfg: Config{Out: &out}, began: time.Now(), seen: map[string]string{}}

	for range 3 {
		s.progress([]operator.Request{{ID: "a", Stage: "PROVISIONING", Status: "uploading: 10 %"}})
	}

	s.progress([]operator.Request{{ID: "a", Stage: "PROVISIONED", Joined: true}})
	s.progress(nil)

	if n := strings.Count(out.String(), "\n"); n != 3 || s.joined != 1 ||
		!strings.Contains(out.String(), "uploading: 10 %") || !strings.Contains(out.String(), "gone") {
		t.Errorf("%d lines, %d joined:\n%s", n, s.joined, out.String())
	}
}
