package rack

import (
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func TestDisksAreAttachedToWhatDoesNotRun(t *testing.T) {
	r := newRig(t, onlyVMs)
	i := r.instance("i")
	d := r.disk("extra", gib, blank(0))

	attach := func() error {
		_, err := r.client.InstanceDiskAttach(t.Context(), oxide.InstanceDiskAttachParams{
			Instance: oxide.NameOrId(i.Id), Body: &oxide.DiskPath{Disk: oxide.NameOrId(d.Id)},
		})

		return err
	}
	detach := func(id string) error {
		_, err := r.client.InstanceDiskDetach(t.Context(), oxide.InstanceDiskDetachParams{
			Instance: oxide.NameOrId(i.Id), Body: &oxide.DiskPath{Disk: oxide.NameOrId(id)},
		})

		return err
	}

	wantError(t, detach(d.Id), 400, "InvalidRequest", "not attached")
	must(0, attach())(t)
	must(0, attach())(t) // the same pair again

	if st := r.diskState(d.Id); st != string(oxide.DiskStateStateAttached) {
		t.Errorf("the disk is %s", st)
	}

	must(0, r.startInstance(i.Id))(t)
	wantError(t, detach(d.Id), 400, "InvalidRequest", "must be stopped")
}
