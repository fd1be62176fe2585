package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A few machines arrive as a thousand do: all figures are there, and those that do
// not depend on how busy this computer is keep their limits.
func TestTheLoadOfAFewMachines(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	// Limits of time are missed on a busy machine.
	err := load(t.Context(), []string{
		"--rows", "arrive", "--machines", "6", "--output", "json", "--join=false",
		"--create", "100ms", "--start", "200ms", "--call", "2ms",
	}, &out)
	if err != nil && !strings.Contains(err.Error(), "targets missed") {
		t.Fatal(err)
	}

	var results []loadResult
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		t.Fatal(err)
	}

	if len(results) != 1 || results[0].Row != rowArrive {
		t.Fatalf("got %s", &out)
	}

	arrived := results[0]

	for _, f := range arrived.Figures {
		if f.Missed && strings.Contains(f.Name, "Omni writes") {
			t.Errorf("%s is %g", f.Name, f.Value)
		}
	}

	// One of each is what a machine needs.
	for _, call := range []string{"instance_create", "instance_start"} {
		if arrived.RackCalls[call] != 1 {
			t.Errorf("%g %s for each machine", arrived.RackCalls[call], call)
		}
	}

	if len(arrived.Waits) == 0 || arrived.OmniCalls["Create Instance"] != 1 {
		t.Errorf("waits %v, calls of Omni %v", arrived.Waits, arrived.OmniCalls)
	}
}

// The bound is that of a queue before as many hands as creates may be in flight.
func TestTheBoundOfAnArrival(t *testing.T) {
	t.Parallel()

	o := loadOptions{creates: 2, create: time.Second, start: 5 * time.Second}

	for _, tc := range []struct {
		arrival arrival
		want    time.Duration
	}{
		{arrival{how: "burst"}, 8 * time.Second},
		// The second wave, of two, comes after 10 s.
		{arrival{how: "waves", waves: 2, every: 10 * time.Second}, 16 * time.Second},
	} {
		if ideal := o.ideal(tc.arrival.schedule(5)); ideal[4] != tc.want {
			t.Errorf("%s: %s, want %s", tc.arrival.how, ideal[4], tc.want)
		}
	}

	all := arrival{how: "poisson", rate: 10, seed: 1}.schedule(1000)
	if last := all[999]; last < 90*time.Second || last > 110*time.Second {
		t.Errorf("1000 requests at 10 a second take %s", last)
	}
}

// What can not be is told with its name, value and limits.
func TestOptionsOfALoad(t *testing.T) {
	t.Parallel()

	for want, args := range map[string]string{
		`no row "arive"`:                   "--rows arive",
		"machines is 0: it must be from 1": "--machines 0",
		`arrival is "flood"`:               "--arrival flood",
		`output is "xml"`:                  "--output xml",
	} {
		if err := load(t.Context(), strings.Fields(args), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
