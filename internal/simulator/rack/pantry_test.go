package rack

import (
	"errors"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// importDisk is a disk that takes writes, and the pantry that holds it.
func (r *rig) importDisk(name string) (id, pantry string) {
	r.t.Helper()

	id = r.disk(name, gib, importing()).Id
	must(0, r.start(id))(r.t)

	r.mu.Lock()
	defer r.mu.Unlock()

	return id, r.disks.byID[id].pantry
}

// finish undoes an import.
func (r *rig) finish(id string) {
	r.t.Helper()
	must(0, r.stop(id))(r.t)
	must(0, r.finalize(id, ""))(r.t)
	must(0, r.client.DiskDelete(r.t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(id)}))(r.t)
}

// A pantry that has restarted knows none of its volumes: writes fail with the
// disk's ID as message, the other calls go on. New disks are fine.
func TestPantryForgets(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pantries = []string{"a"} })
	id, pantry := r.importDisk("d")
	must(0, r.write(id, 0, noise(512)))(t)

	r.fault(Fault{Event: EventPantryForgetting, Pantry: pantry})

	err := r.write(id, 0, noise(512))
	wantError(t, err, 400, "InvalidRequest", id)

	var h *oxide.HTTPError
	if errors.As(err, &h) && h.ErrorResponse.Message != id {
		t.Errorf("the message is %q", h.ErrorResponse.Message)
	}

	r.finish(id)

	id, _ = r.importDisk("e")
	must(0, r.write(id, 0, noise(512)))(t)
	r.fault(Fault{Event: EventPantryForgetting, Disk: "e"})
	wantError(t, r.write(id, 0, noise(512)), 400, "InvalidRequest", id)
	must(0, r.stop(id))(t)
	must(0, r.start(id))(t) // which asks no pantry
	wantError(t, r.write(id, 0, noise(512)), 400, "InvalidRequest", id)
	r.finish(id)

	if _, err := r.AddFault(Fault{Event: EventPantryForgetting, Pantry: "b"}); err == nil {
		t.Error("a pantry that is none forgot something")
	}
}

// A pantry that does not answer but is in DNS fails writes, and holds finalize
// until it answers; once it is out of DNS, finalize goes on without it.
func TestPantryUnreachable(t *testing.T) {
	for name, then := range map[string]func(r *rig, id string){
		"answers again":  func(r *rig, _ string) { r.RemoveFault(0) },
		"is out of DNS":  func(r *rig, id string) { r.fault(Fault{Condition: ConditionPantryGone, Disk: id}) },
		"is given up on": func(r *rig, _ string) { r.fault(Fault{Condition: ConditionPantryGone, Pantry: "a"}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Pantries = []string{"a"} })
			id, _ := r.importDisk("d")
			r.fault(Fault{Condition: ConditionPantryAway, Pantry: "a"})

			wantError(t, r.write(id, 0, noise(512)), 500, "Internal", "Internal Server Error")
			must(0, r.stop(id))(t)

			err := r.client.DiskFinalizeImport(soon(t), oxide.DiskFinalizeImportParams{Disk: oxide.NameOrId(id), Body: &oxide.FinalizeDisk{}})
			noAnswer(t, err)

			if st := r.diskState(id); st != "finalizing" {
				t.Errorf("it is %s", st)
			}

			wantError(t, r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(id)}), 400, "InvalidRequest", "finalizing")
			then(r, id)
			eventually(t, "the end of finalize", func() bool { return r.diskState(id) == "detached" })
		})
	}
}

// Without a pantry in DNS no disk is made for an import, and nothing stays of
// the try; one that does not answer holds the call.
func TestImportingDiskNeedsAPantry(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pantries = []string{"a"} })
	r.fault(Fault{Condition: ConditionPantryGone, Pantry: "a"})

	_, err := r.createDisk("d", gib, importing())
	wantError(t, err, 500, "Internal", "")

	if s := r.Summary(); len(s.Disks) != 0 || s.Provisioned.Storage != 0 {
		t.Errorf("left: %+v", s)
	}

	r.RemoveFault(0)
	r.fault(Fault{Condition: ConditionPantryAway, Pantry: "a"})

	_, err = r.client.DiskCreate(soon(t), oxide.DiskCreateParams{Project: demo, Body: &oxide.DiskCreate{Name: "d", Size: oxide.ByteCount(gib), DiskBackend: importing()}})
	noAnswer(t, err)

	d := must(r.client.DiskView(t.Context(), oxide.DiskViewParams{Project: demo, Disk: "d"}))(t)
	must(0, r.start(d.Id))(t)
	wantError(t, r.write(d.Id, 0, noise(512)), 500, "Internal", "") // no pantry has it
	r.RemoveFault(0)
	eventually(t, "writes", func() bool { return r.write(d.Id, 0, noise(512)) == nil })
}

// Of several pantries those that are in DNS are chosen, and each disk stays
// with its own.
func TestDisksArePinnedToPantries(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pantries, c.Latencies = []string{"a", "b", "c"}, &Latencies{} })
	r.fault(Fault{Condition: ConditionPantryGone, Pantry: "b"})

	on := map[string]string{}

	for n := range 24 {
		id, pantry := r.importDisk("d" + string(rune('a'+n)))
		on[pantry] = id
	}

	if len(on) != 2 || on["a"] == "" || on["c"] == "" {
		t.Fatalf("disks are on %v", on)
	}

	r.fault(Fault{Condition: ConditionPantryAway, Pantry: "a"})
	wantError(t, r.write(on["a"], 0, noise(512)), 500, "Internal", "")
	must(0, r.write(on["c"], 0, noise(512)))(t)
}
