package rack

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// A clock that is stepped wakes each sleeper in its turn, and nobody early.
func TestStepClock(t *testing.T) {
	clock := NewStepClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	woken := make(chan time.Duration, 3)

	for _, d := range []time.Duration{3 * time.Minute, time.Minute, 2 * time.Minute} {
		go func() {
			if clock.Sleep(t.Context(), d) {
				woken <- d
			}
		}()
	}

	if n := clock.Sleepers(t.Context(), 3); n != 3 {
		t.Fatalf("%d sleep", n)
	}

	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute} {
		clock.Step(59 * time.Second)

		select {
		case d := <-woken:
			t.Errorf("%s was woken early", d)
		default:
		}

		clock.Step(time.Second)

		if d := <-woken; d != want {
			t.Errorf("%s was woken, not %s", d, want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if clock.Sleep(ctx, time.Hour) || clock.Sleepers(ctx, 0) != 0 {
		t.Error("a sleeper stayed after its context")
	}

	if got := clock.Now().Minute(); got != 3 {
		t.Errorf("it shows minute %d", got)
	}
}

// In a bubble the rack lives on the bubble's time, and a saga of an hour takes
// no time at all.
func TestRackInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Latencies: &Latencies{DiskCreate: time.Hour}})
		must(0, err)(t)
		defer s.Close()

		must(s.AddFault(Fault{Condition: ConditionStuck, Kind: kindDisk, State: "creating", Until: Duration(3 * time.Hour)}))(t)

		began := time.Now()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/disks?project=demo",
			strings.NewReader(`{"name":"d","description":"","size":1073741824,"disk_backend":{"type":"distributed","disk_source":{"type":"blank","block_size":512}}}`))
		req.Header.Set("Authorization", "Bearer "+DefaultToken)

		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)

		if took := time.Since(began); w.Code != 201 || took != 3*time.Hour {
			t.Errorf("%d after %s", w.Code, took)
		}
	})
}

// Tokens expire by the rack's clock.
func TestTokensExpireByTheClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := NewStepClock(now)
	r := newRig(t, func(c *Config) {
		c.Clock = clock
		c.Tokens = []Token{{Value: DefaultToken, Expires: now.Add(time.Hour)}}
	})

	must(r.client.CurrentUserView(t.Context()))(t)
	clock.Step(time.Hour + time.Second)

	_, err := r.client.CurrentUserView(t.Context())
	wantError(t, err, 401, "Unauthorized", "")
}

// What is uploaded can be compared in each mode that keeps anything.
func TestContentModes(t *testing.T) {
	data := append(noise(2*chunkSize), make([]byte, chunkSize)...)
	data = append(data, noise(4096)...)

	var kept []ChunkDigest

	for _, mode := range []ContentMode{ContentKept, ContentHashed, ContentNone} {
		r := newRig(t, func(c *Config) { c.Content = mode })
		snap := r.upload("u", gib, data)
		image := must(r.createImage(demo, "img", snap.Id))(t)

		_, whole := r.ImageDigest(image.Id, int64(len(data)))
		chunks, err := r.ImageChunks(image.Id)

		switch mode {
		case ContentKept:
			kept = chunks

			if err != nil || whole != nil || len(chunks) != 3 || chunks[2].Offset != 3*chunkSize {
				t.Errorf("%s: %v, %v, %v", mode, chunks, err, whole)
			}
		case ContentHashed:
			if err != nil || whole == nil || len(chunks) != 3 || chunks[0] != kept[0] || chunks[1] != kept[1] || chunks[2] != kept[2] {
				t.Errorf("%s: %v, %v, %v", mode, chunks, err, whole)
			}
		case ContentNone:
			if err == nil || whole == nil {
				t.Errorf("%s: %v, %v, %v", mode, chunks, err, whole)
			}
		}
	}

	if s, err := New(Config{Content: "some"}); err == nil {
		s.Close()
		t.Error("an unknown mode was taken")
	}
}

// Content is shared until it is written to, and what is written to one disk
// shows in no other.
func TestContentIsCopiedOnWrite(t *testing.T) {
	first := noise(chunkSize)
	a := newContent(gib, nil, ContentKept)
	a.write(0, first)

	b := newContent(gib, a.freeze(), ContentKept)
	b.write(512, make([]byte, 512))
	a.write(chunkSize, first)

	was, now := make([]byte, chunkSize), make([]byte, chunkSize)
	must(a.ReadAt(was, 0))(t)
	must(b.ReadAt(now, 0))(t)

	if !bytes.Equal(was, first) || bytes.Equal(now, first) || !bytes.Equal(now[1024:], first[1024:]) || !bytes.Equal(now[512:1024], make([]byte, 512)) {
		t.Error("a write went through to where it does not belong")
	}

	if must(b.ReadAt(now, chunkSize))(t); !bytes.Equal(now, zeros[:]) {
		t.Error("a later write shows in a copy")
	}

	b.write(0, zeros[:])

	if must(b.ReadAt(now, 0))(t); !bytes.Equal(now, zeros[:]) {
		t.Error("zeros over another layer's bytes are not read back")
	}
}

func TestDigestsOverTheControlEndpoint(t *testing.T) {
	r := newRig(t)
	snap := r.upload("u", gib, noise(4096))
	image := must(r.createImage(demo, "img", snap.Id))(t)
	want := must(r.ImageDigest(image.Id, 4096))(t)

	for path, part := range map[string]string{
		"/simulator/images/" + image.Id + "/digest?length=4096": want,
		"/simulator/images/" + image.Id + "/digest?chunks":      `"chunks":[{"offset":0,"sha256":"`,
		"/simulator/disks/" + snap.DiskId + "/digest":           `"size":1073741824`,
		"/simulator/disks/" + image.Id + "/digest":              "not found",
		"/simulator/ships/" + image.Id + "/digest":              "disks and images",
		"/simulator/images/" + image.Id + "/digest?length=0":    "length must be",
	} {
		if _, body := r.control("GET", path, ""); !strings.Contains(body, part) {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// The log tells who called what, how it ended and what fault it met, and can
// be asked for a part of it.
func TestCallLogCanBeAsked(t *testing.T) {
	r := newRig(t)
	id := r.fault(Fault{Operation: "disk_create", Count: 1, Action: ActionError, Status: 503})
	_, _ = r.createDisk("d", gib, blank(0))
	d := r.disk("d", gib, blank(0))
	must(r.client.DiskView(t.Context(), oxide.DiskViewParams{Disk: oxide.NameOrId(d.Id)}))(t)

	calls := r.Calls()
	if c := calls[0]; c.Fault != id || c.FaultName != "error" || c.Status != 503 || calls[1].Fault != 0 || calls[1].Duration == 0 {
		t.Errorf("%+v", calls)
	}

	for query, want := range map[string]int{
		"": 3, "operation=disk_create": 2, "operation=disk_create&status=201": 1, "fault=1": 1, "fault_name=error": 1,
		"method=GET": 1, "path=" + d.Id: 1, "after=1": 2, "limit=1": 1, "token=provider": 3, "user_agent=oxide.go/": 3, "status=404": 0,
	} {
		status, body := r.control("GET", "/simulator/calls?"+query, "")
		if got := strings.Count(body, `"seq"`); status != 200 || got != want {
			t.Errorf("%s: %d, %d calls, want %d", query, status, got, want)
		}
	}

	for _, bad := range []string{"operaton=x", "limit=x", "status=ok", "limit=1&limit=2"} {
		if status, body := r.control("GET", "/simulator/calls?"+bad, ""); status != 400 {
			t.Errorf("%s: %d %s", bad, status, body)
		}
	}
}

// Invariant: every time that the rack tells is its own clock's, whatever the
// system's says.
func TestAllTimesAreTheRacksClock(t *testing.T) {
	made := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	clock := NewStepClock(made)
	r := newRig(t, func(c *Config) {
		c.Clock, c.Latencies = clock, &Latencies{}
		c.Tokens = []Token{{Value: DefaultToken, FleetViewer: true, Groups: []string{"staff"}, Expires: made.Add(time.Hour)}}
	})
	ctx := t.Context()

	changed := made.Add(time.Minute)
	clock.Step(time.Minute)

	up := r.disk("up", gib, importing())
	for _, step := range []string{"bulk-write-start", "bulk-write-stop"} {
		if status, e, _ := r.raw(http.MethodPost, "/v1/disks/"+up.Id+"/"+step, ""); status != http.StatusNoContent {
			t.Fatalf("%s: %d %s", step, status, e.Message)
		}
	}

	must(0, r.client.DiskFinalizeImport(ctx, oxide.DiskFinalizeImportParams{
		Disk: oxide.NameOrId(up.Id), Body: &oxide.FinalizeDisk{SnapshotName: "snap"},
	}))(t)

	snap := must(r.client.SnapshotView(ctx, oxide.SnapshotViewParams{Snapshot: "snap", Project: demo}))(t)
	img := must(r.client.ImageCreate(ctx, oxide.ImageCreateParams{Project: demo, Body: &oxide.ImageCreate{
		Name: "img", Description: "d", Os: "o", Version: "v", Source: oxide.ImageSource{Value: &oxide.ImageSourceSnapshot{Id: snap.Id}},
	}}))(t)
	must(r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Image: oxide.NameOrId(img.Id)}))(t)

	for path, body := range map[string]string{
		"/v1/me/ssh-keys":                       `{"name":"k","description":"","public_key":"ssh-ed25519 AAAA"}`,
		"/v1/projects":                          `{"name":"other","description":""}`,
		"/v1/floating-ips?project=demo":         `{"name":"f","description":""}`,
		"/v1/anti-affinity-groups?project=demo": `{"name":"g","description":"","policy":"allow","failure_domain":"sled"}`,
		"/v1/instances?project=demo": `{"name":"i","description":"","hostname":"i","ncpus":1,"memory":1073741824,"start":false,
			"disks":[{"type":"create","name":"data","description":"","size":1073741824,"disk_backend":{"type":"local"}}]}`,
	} {
		if status, e, _ := r.raw(http.MethodPost, path, body); status != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, status, e.Message)
		}
	}

	rules := `{"rules":[{"name":"r","description":"","status":"enabled","action":"allow","priority":1,"direction":"inbound","targets":[],"filters":{}}]}`
	if status, e, _ := r.raw(http.MethodPut, "/v1/vpc-firewall-rules?project=demo&vpc=default", rules); status != http.StatusOK {
		t.Fatalf("firewall: %d %s", status, e.Message)
	}

	times := 0

	var look func(path, key string, v any)
	look = func(path, key string, v any) {
		switch x := v.(type) {
		case map[string]any:
			for k, y := range x {
				look(path, k, y)
			}
		case []any:
			for _, y := range x {
				look(path, key, y)
			}
		case string:
			if !strings.HasPrefix(key, "time") {
				return
			}

			times++

			if at, err := time.Parse(time.RFC3339, x); err != nil || !at.Equal(made) && !at.Equal(changed) && !at.Equal(made.Add(time.Hour)) {
				t.Errorf("%s: %s is %s", path, key, x)
			}
		}
	}

	paths := []string{
		"/v1/me", "/v1/me/ssh-keys", "/v1/me/groups", "/v1/me/access-tokens", "/v1/users", "/v1/groups", "/v1/projects",
		"/v1/ip-pools", "/v1/images", "/simulator/calls",
	}
	for _, list := range []string{"disks", "snapshots", "instances", "vpcs", "floating-ips", "anti-affinity-groups"} {
		paths = append(paths, "/v1/"+list+"?project=demo")
	}

	for _, list := range []string{"vpc-subnets", "vpc-routers", "vpc-firewall-rules", "internet-gateways"} {
		paths = append(paths, "/v1/"+list+"?project=demo&vpc=default")
	}

	paths = append(paths, "/v1/vpc-router-routes?project=demo&vpc=default&router=system",
		"/v1/network-interfaces?project=demo&instance=i", "/v1/instances/i/disks?project=demo")

	for _, path := range paths {
		before := times
		look(path, "", r.read(path))

		if times == before {
			t.Errorf("%s tells no time", path)
		}
	}
}

// read is an answer.
func (r *rig) read(path string) (out any) {
	r.t.Helper()

	req := must(http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, nil))(r.t)
	req.Header.Set("Authorization", "Bearer "+DefaultToken)

	resp := must(r.http.Do(req))(r.t)
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s", path, resp.Status)
	}

	must(0, json.NewDecoder(resp.Body).Decode(&out))(r.t)

	return out
}
