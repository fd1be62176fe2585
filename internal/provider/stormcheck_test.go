package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// The ways in which the factory can fail.
const (
	factoryAnswers500 = iota
	factoryAnswers404
	factoryBreaksOff
	factoryStalls
	factoryFaults
)

// download sends an image, unless the factory fails just now.
func (s *storm) download(w http.ResponseWriter, r *http.Request) {
	body := compressed()

	if time.Now().UnixNano() < s.factoryUntil.Load() {
		switch s.factoryFault.Load() {
		case factoryAnswers500:
			http.Error(w, "<html>busy</html>", http.StatusInternalServerError)

			return
		case factoryAnswers404:
			http.NotFound(w, r)

			return
		case factoryBreaksOff:
			_, _ = w.Write(body[:len(body)/2])

			panic(http.ErrAbortHandler)
		case factoryStalls:
			_, _ = w.Write(body[:len(body)/2])
			_ = http.NewResponseController(w).Flush()

			<-r.Context().Done()

			return
		}
	}

	_, _ = w.Write(body)
}

// atCall holds a call of the daemon against the rules at the moment it is made.
func (s *storm) atCall(seq int, op string) {
	if op != "instance_stop" && op != "instance_delete" {
		return
	}

	c, ok := s.sim.Call(seq)
	if !ok || c.Token != daemonToken {
		return
	}

	id, _, _ := strings.Cut(strings.TrimPrefix(c.Path, "/v1/instances/"), "/")
	id, _, _ = strings.Cut(id, "?")

	instance, ok := s.sim.Inspect(id)
	if !ok {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for request := range s.wanted {
		if naming.Instance(request) == instance.Name {
			s.t.Errorf("%s of %s, which is wanted", op, instance.Name)
		}
	}
}

// seen is what the project holds.
type seen struct {
	instances []oxide.Instance
	disks     []oxide.Disk
	snapshots []oxide.Snapshot
	images    []oxide.Image
}

// look is what is there, unless the rack is away.
func (s *storm) look() (*seen, error) {
	var (
		all seen
		err error
		ctx = s.t.Context()
	)

	if all.instances, err = s.rack.ListInstances(ctx, s.project.Id); err != nil {
		return nil, err
	}

	if all.disks, err = s.rack.ListDisks(ctx, s.project.Id); err != nil {
		return nil, err
	}

	if all.snapshots, err = s.rack.ListSnapshots(ctx, s.project.Id); err != nil {
		return nil, err
	}

	all.images, err = s.rack.ListImages(ctx, s.project.Id)

	return &all, err
}

// check holds what is there against what must be true at any time.
func (s *storm) check() {
	s.t.Helper()

	// Before the look: what was let go by then must not be there.
	s.letGo()

	all, err := s.look()
	if err != nil {
		return
	}

	one := map[string]string{}

	for _, i := range all.instances {
		if s.foreign[i.Id] != "" {
			continue
		}

		mark := s.marked(string(i.Name), i.Description)
		if one[mark.Key] != "" {
			s.t.Errorf("the request of %s has the instances %s and %s", i.Name, one[mark.Key], i.Id)
		}

		one[mark.Key] = i.Id

		if s.let[mark.Key] {
			s.t.Fatalf("instance %s is there and its request was let go", i.Name)
		}
	}

	for _, d := range all.disks {
		if s.foreign[d.Id] != "" {
			continue
		}

		mark := s.marked(string(d.Name), d.Description)
		if mark.Kind != naming.KindScratch && s.let[mark.Key] {
			s.t.Fatalf("disk %s is there and its request was let go", d.Name)
		}
	}
}

func (s *storm) marked(name, description string) naming.Mark {
	s.t.Helper()

	mark, ok := naming.Parse(description)
	if !ok || mark.Owner != s.owner || mark.Provider != testID {
		s.t.Errorf("%s has come up without the daemon's mark: %q", name, description)
	}

	return mark
}

// letGo notes which requests nobody holds any more, and ends them as Omni does.
func (s *storm) letGo() {
	s.t.Helper()

	all, err := safe.StateListAll[*infra.MachineRequest](s.t.Context(), s.admin)
	s.ok(err)

	for r := range all.All() {
		if r.Metadata().Phase() != resource.PhaseTearingDown || !r.Metadata().Finalizers().Empty() {
			continue
		}

		s.let[naming.RequestKey(r.Metadata().ID())] = true
		_ = s.admin.Destroy(s.t.Context(), r.Metadata())
	}
}

// makeForeign makes objects of others that look nearly as the daemon's.
func (s *storm) makeForeign() map[string]string {
	s.t.Helper()

	ctx, key := s.t.Context(), naming.RequestKey(stormRequest(0))
	mark := naming.Mark{Owner: s.owner, Provider: testID, Kind: naming.KindBoot, Key: key, Run: "0123abcd"}
	other := naming.Mark{Owner: naming.NewOwner(), Provider: testID, Kind: naming.KindBoot, Key: key, Run: "0123abcd"}
	blank := oxide.DiskBackend{Value: oxide.DiskBackendDistributed{DiskSource: oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: 512}}}}

	for name, description := range map[string]string{
		"boot-foreign-a": mark.String() + " and more", "boot-foreign-b": other.String(), "boot-foreign-c": "A disk.",
	} {
		_, err := s.rack.CreateDisk(ctx, s.project.Id, oxide.DiskCreate{Name: oxide.Name(name), Description: description, Size: gib, DiskBackend: blank})
		s.ok(err)
	}

	all, err := s.look()
	s.ok(err)

	return described(all)
}

func described(all *seen) map[string]string {
	out := map[string]string{}

	note := func(id string, object any) {
		raw, err := json.Marshal(object)
		out[id] = fmt.Sprint(string(raw), err)
	}

	for _, o := range all.instances {
		note(o.Id, o)
	}

	for _, o := range all.disks {
		note(o.Id, o)
	}

	for _, o := range all.images {
		note(o.Id, o)
	}

	return out
}

func (s *storm) checkForeign() {
	s.t.Helper()

	all, err := s.look()
	s.ok(err)

	now := described(all)

	for id, was := range s.foreign {
		if now[id] != was {
			s.t.Errorf("something foreign was touched:\n%s\n%s", was, now[id])
		}
	}
}

// calm ends all that goes wrong.
func (s *storm) calm() {
	s.t.Helper()

	s.sim.RemoveFault(0)
	s.factoryUntil.Store(0)
	s.rename()

	if !s.away.IsZero() {
		s.away = time.Now()
	}

	for _, r := range s.replicas {
		if !r.back.IsZero() {
			r.back = time.Now()
		}
	}

	s.pass(time.Second)
	s.tend()
}

// resting waits for what must come, while all that must be true is looked after.
func (s *storm) resting(what string, holds func(all *seen) string) {
	s.t.Helper()

	var why, last string

	for began := time.Now(); ; s.pass(5 * time.Second) {
		s.check()

		all, err := s.look()
		s.ok(err)

		if why = holds(all); why == "" {
			s.t.Logf("%s after %s; last of all: %s", what, time.Since(began).Round(time.Second), last)

			return
		}

		last = why

		if time.Since(began) > restWithin {
			s.t.Fatalf("waited %s until %s: %s", restWithin, what, why)
		}
	}
}

// restWithin is how long it may take until all is well after a storm: pauses
// between tries have become long, and the janitor waits for its grace.
const restWithin = 2 * time.Hour

// settle waits until every wanted request has its machine, and nothing else is
// there.
func (s *storm) settle() {
	s.t.Helper()

	s.resting("every wanted request has its machine, and nothing else is there", func(all *seen) string {
		keys := map[string]string{}

		for id := range s.wanted {
			keys[naming.RequestKey(id)] = id

			if stage := s.status(id).GetStage(); stage != stageProvisioned {
				return fmt.Sprintf("%s is %s: %s", id, stage, s.status(id).GetStatus()+s.status(id).GetError())
			}
		}

		return s.surplus(all, keys)
	})

	s.checkForeign()
}

// surplus is something of ours that nobody wants, empty if there is nothing.
func (s *storm) surplus(all *seen, keys map[string]string) string {
	for _, i := range all.instances {
		if mark, _ := naming.Parse(i.Description); s.foreign[i.Id] == "" && keys[mark.Key] == "" {
			return fmt.Sprintf("instance %s (%s) is there", i.Name, i.RunState)
		}
	}

	for _, d := range all.disks {
		if mark, _ := naming.Parse(d.Description); s.foreign[d.Id] == "" && keys[mark.Key] == "" {
			return fmt.Sprintf("disk %s (%s) is there: %s", d.Name, d.State.State(), d.Description)
		}
	}

	if len(all.snapshots) > 0 {
		return fmt.Sprintf("snapshot %s is there", all.snapshots[0].Name)
	}

	return ""
}

// clear has everything removed.
func (s *storm) clear() {
	s.t.Helper()

	for id := range s.wanted {
		s.remove(id)
	}

	s.mu.Lock()
	clear(s.wanted)
	s.mu.Unlock()

	s.resting("nothing is left", func(all *seen) string {
		if text := s.surplus(all, nil); text != "" {
			return text
		}

		return s.inOmni()
	})

	s.checkForeign()
}

// inOmni is something that is left in Omni, empty if there is nothing.
func (s *storm) inOmni() string {
	ctx := s.t.Context()

	requests, err := safe.StateListAll[*infra.MachineRequest](ctx, s.admin)
	s.ok(err)

	states, err := safe.StateListAll[*Instance](ctx, s.admin)
	s.ok(err)

	statuses, err := safe.StateListAll[*infra.MachineRequestStatus](ctx, s.admin)
	s.ok(err)

	patches, err := safe.StateListAll[*infra.ConfigPatchRequest](ctx, s.admin)
	s.ok(err)

	runs, err := safe.StateListAll[*Run](ctx, s.admin)
	s.ok(err)

	left := map[string]int{
		"requests": requests.Len(), "states": states.Len(), "config patches": patches.Len(),
		// The living may each have one.
		"records of import runs": max(runs.Len()-replicas, 0),
	}

	for st := range statuses.All() {
		if s.vanished[st.Metadata().ID()] {
			return "the status of " + st.Metadata().ID() + ", which was removed by force, is left"
		}

		return "the status of " + st.Metadata().ID() + " is left"
	}

	for what, n := range left {
		if n > 0 {
			return fmt.Sprintf("%d %s are left", n, what)
		}
	}

	return ""
}
