package rack

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func asItIs(i *oxide.Instance) *oxide.InstanceUpdate {
	u := &oxide.InstanceUpdate{Ncpus: i.Ncpus, Memory: i.Memory, EnableJumboFrames: i.EnableJumboFrames}

	if i.BootDiskId != "" {
		u.BootDisk = oxide.NewPointer(oxide.NameOrId(i.BootDiskId))
	}

	if i.AutoRestartPolicy != "" {
		u.AutoRestartPolicy = &i.AutoRestartPolicy
	}

	if i.CpuPlatform != "" {
		u.CpuPlatform = &i.CpuPlatform
	}

	return u
}

func (r *rig) update(i *oxide.Instance, change func(*oxide.InstanceUpdate)) (*oxide.Instance, error) {
	u := asItIs(i)
	change(u)

	return r.client.InstanceUpdate(r.t.Context(), oxide.InstanceUpdateParams{Instance: oxide.NameOrId(i.Id), Body: u})
}

// An update replaces all that can be changed; size, platform and boot disk only
// of what does not run.
func TestInstanceUpdate(t *testing.T) {
	r := newRig(t, onlyVMs)
	i := r.instance("i", func(b *oxide.InstanceCreate) {
		b.BootDisk, b.Disks = newDiskNamed("boot", gib), []oxide.InstanceDiskAttachment{newDiskNamed("data", gib)}
		b.CpuPlatform, b.AutoRestartPolicy = oxide.InstanceCpuPlatformAmdMilan, oxide.InstanceAutoRestartPolicyNever
	})
	free := r.disk("free", gib, blank(0))
	name := func(n string) *oxide.NameOrId { return oxide.NewPointer(oxide.NameOrId(n)) }

	changes := map[string]func(*oxide.InstanceUpdate){
		"cpus":      func(u *oxide.InstanceUpdate) { u.Ncpus = 3 },
		"memory":    func(u *oxide.InstanceUpdate) { u.Memory = oxide.ByteCount(8 * gib) },
		"platform":  func(u *oxide.InstanceUpdate) { u.CpuPlatform = nil },
		"boot disk": func(u *oxide.InstanceUpdate) { u.BootDisk = name("data") },
		"none":      func(u *oxide.InstanceUpdate) { u.BootDisk = nil },
	}

	must(0, r.startInstance(i.Id))(t)

	for what, change := range changes {
		if _, err := r.update(i, change); err == nil {
			t.Errorf("%s of a running instance was changed", what)
		} else {
			wantError(t, err, 409, "Conflict", "must be stopped")
		}
	}

	// What stays as it is may be said, and the policy may change at any time.
	up := must(r.update(i, func(u *oxide.InstanceUpdate) { u.AutoRestartPolicy = nil }))(t)
	if up.AutoRestartPolicy != "" || !*up.AutoRestartEnabled || up.Ncpus != i.Ncpus || up.BootDiskId != i.BootDiskId {
		t.Errorf("instance is %+v", up)
	}

	must(0, r.stopInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateStopped)

	for _, what := range []string{"cpus", "memory", "platform", "boot disk"} {
		i = must(r.update(i, changes[what]))(t)
	}

	data := must(r.client.DiskView(t.Context(), oxide.DiskViewParams{Project: demo, Disk: "data"}))(t)
	if i.Ncpus != 3 || i.Memory != oxide.ByteCount(8*gib) || i.CpuPlatform != "" || i.BootDiskId != data.Id {
		t.Errorf("instance is %+v", i)
	}

	detach := func(id string) error {
		_, err := r.client.InstanceDiskDetach(t.Context(), oxide.InstanceDiskDetachParams{
			Instance: oxide.NameOrId(i.Id), Body: &oxide.DiskPath{Disk: oxide.NameOrId(id)},
		})

		return err
	}

	wantError(t, detach(data.Id), 409, "Conflict", "boot disk")

	_, err := r.update(i, func(u *oxide.InstanceUpdate) { u.BootDisk = name(free.Id) })
	wantError(t, err, 409, "Conflict", "boot disk must be attached")

	_, err = r.update(i, func(u *oxide.InstanceUpdate) { u.BootDisk = name("nothing") })
	wantError(t, err, 404, "ObjectNotFound", `disk with name "nothing"`)

	i = must(r.update(i, changes["none"]))(t)
	must(0, detach(data.Id))(t)

	for what, change := range map[string]func(*oxide.InstanceUpdate){
		"vCPUs":              func(u *oxide.InstanceUpdate) { u.Ncpus = 255 },
		"at least":           func(u *oxide.InstanceUpdate) { u.Memory = 1 },
		"divisible":          func(u *oxide.InstanceUpdate) { u.Memory = oxide.ByteCount(gib + 1) },
		"less than or equal": func(u *oxide.InstanceUpdate) { u.Memory = oxide.ByteCount(1537 * gib) },
	} {
		_, err := r.update(i, change)
		wantError(t, err, 400, "InvalidValue", what)
	}

	_, err = r.update(i, func(u *oxide.InstanceUpdate) { u.EnableJumboFrames = oxide.NewPointer(true) })
	wantError(t, err, 400, "InvalidRequest", "jumbo")
}

// Keys that may be null have to be there all the same.
func TestInstanceUpdateIsInFull(t *testing.T) {
	r := newRig(t)
	i := r.instance("i")
	whole := map[string]any{
		"ncpus": 2, "memory": 4 * gib, "boot_disk": nil, "auto_restart_policy": nil, "cpu_platform": nil,
		"enable_jumbo_frames": false,
	}

	for key := range whole {
		part := maps.Clone(whole)
		delete(part, key)

		status, e, _ := r.raw("PUT", "/v1/instances/"+i.Id, string(must(json.Marshal(part))(t)))
		if status != 400 || e.ErrorCode != "" || !contains(e.Message, "missing field `"+key+"`") {
			t.Errorf("without %s: %d %+v", key, status, e)
		}
	}

	if status, e, _ := r.raw("PUT", "/v1/instances/"+i.Id, string(must(json.Marshal(whole))(t))); status != 200 {
		t.Errorf("in full: %d %+v", status, e)
	}
}

// The fleet's opt-in lets instances have jumbo frames.
func TestJumboFramesOptIn(t *testing.T) {
	r := newRig(t, func(c *Config) { c.JumboFrames = true })
	i := r.instance("i", func(b *oxide.InstanceCreate) { b.EnableJumboFrames = oxide.NewPointer(true) })

	if !*i.EnableJumboFrames {
		t.Errorf("instance is %+v", i)
	}

	up := must(r.update(i, func(u *oxide.InstanceUpdate) { u.EnableJumboFrames = oxide.NewPointer(false) }))(t)
	if *up.EnableJumboFrames {
		t.Errorf("instance is %+v", up)
	}
}

// A failed instance that may be restarted after all is.
func TestPolicyOfAFailedInstance(t *testing.T) {
	r := newRig(t)
	i := r.instance("i", func(b *oxide.InstanceCreate) { b.AutoRestartPolicy = oxide.InstanceAutoRestartPolicyNever })
	must(0, r.startInstance(i.Id))(t)
	must(0, r.Crash(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateFailed)

	must(r.update(i, func(u *oxide.InstanceUpdate) {
		u.AutoRestartPolicy = oxide.NewPointer(oxide.InstanceAutoRestartPolicyBestEffort)
	}))(t)
	r.reaches(i.Id, oxide.InstanceStateRunning)
}
