package rack

import (
	"context"
	"errors"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// moreCalls are those around an instance: what it has and what befalls it.
func (w *walker) moreCalls(ctx context.Context) map[string]func(string) error {
	r := w.r
	byName := w.byName(ctx)
	ref := func(n string) oxide.NameOrId { return oxide.NameOrId(n) }

	return map[string]func(string) error{
		"local disk": func(n string) error { _, err := r.createDisk("local-"+n, gib, local()); return err },
		"attach local": func(n string) error {
			_, err := r.client.InstanceDiskAttach(ctx, oxide.InstanceDiskAttachParams{Project: demo, Instance: ref(n), Body: &oxide.DiskPath{Disk: ref("local-" + n)}})

			return err
		},
		"delete local": func(n string) error {
			return r.client.DiskDelete(ctx, oxide.DiskDeleteParams{Project: demo, Disk: ref("local-" + n)})
		},
		"migrate":      byName(r.Migrate),
		"guest reboot": byName(r.GuestReboot),
		"attach": func(n string) error {
			_, err := r.client.InstanceDiskAttach(ctx, oxide.InstanceDiskAttachParams{Project: demo, Instance: ref(n), Body: &oxide.DiskPath{Disk: "b"}})

			return err
		},
		"detach": func(n string) error {
			_, err := r.client.InstanceDiskDetach(ctx, oxide.InstanceDiskDetachParams{Project: demo, Instance: ref(n), Body: &oxide.DiskPath{Disk: "b"}})

			return err
		},
		"update": func(n string) error {
			i, err := r.client.InstanceView(ctx, oxide.InstanceViewParams{Project: demo, Instance: ref(n)})
			if err != nil {
				return err
			}

			_, err = r.update(i, func(u *oxide.InstanceUpdate) { u.Ncpus, u.Memory = 5-i.Ncpus, oxide.ByteCount(6*gib)-i.Memory })

			return err
		},
		"snapshot": func(n string) error {
			_, err := r.client.SnapshotCreate(ctx, oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: "s", Disk: ref(n)}})

			return err
		},
		"image": func(n string) error {
			s, err := r.snapshotNamed("s")
			if err != nil {
				return err
			}

			_, err = r.createImage(demo, n, s.Id)

			return err
		},
		"promote": func(n string) error {
			_, err := r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Project: demo, Image: ref(n)})

			return err
		},
		"image delete": func(n string) error {
			return r.client.ImageDelete(ctx, oxide.ImageDeleteParams{Project: demo, Image: ref(n)})
		},
		"silo image delete": func(n string) error { return r.client.ImageDelete(ctx, oxide.ImageDeleteParams{Image: ref(n)}) },
		"address":           func(n string) error { _, err := r.createFloating(n, oxide.AddressAllocator{}); return err },
		"address attach": func(n string) error {
			_, err := r.client.FloatingIpAttach(ctx, oxide.FloatingIpAttachParams{
				Project: demo, FloatingIp: "a", Body: &oxide.FloatingIpAttach{Kind: oxide.FloatingIpParentKindInstance, Parent: ref(n)},
			})

			return transient(err)
		},
		"address detach": func(n string) error {
			_, err := r.client.FloatingIpDetach(ctx, oxide.FloatingIpDetachParams{Project: demo, FloatingIp: ref(n)})

			return transient(err)
		},
		"address delete": func(n string) error {
			return r.client.FloatingIpDelete(ctx, oxide.FloatingIpDeleteParams{Project: demo, FloatingIp: ref(n)})
		},
		"ephemeral": func(n string) error {
			_, err := r.client.InstanceEphemeralIpAttach(ctx, oxide.InstanceEphemeralIpAttachParams{Project: demo, Instance: ref(n), Body: &oxide.EphemeralIpCreate{}})

			return transient(err)
		},
		"ephemeral off": func(n string) error {
			return transient(r.client.InstanceEphemeralIpDetach(ctx, oxide.InstanceEphemeralIpDetachParams{Project: demo, Instance: ref(n)}))
		},
		"interface off": func(n string) error {
			return r.client.InstanceNetworkInterfaceDelete(ctx, oxide.InstanceNetworkInterfaceDeleteParams{Project: demo, Instance: ref(n), Interface: "net0"})
		},
		"interface on": func(n string) error {
			_, err := r.client.InstanceNetworkInterfaceCreate(ctx, oxide.InstanceNetworkInterfaceCreateParams{
				Project: demo, Instance: ref(n), Body: &oxide.InstanceNetworkInterfaceCreate{Name: "net0", VpcName: "default", SubnetName: "default"},
			})

			return err
		},
	}
}

// transient lets the 503 pass of an instance on its way to another state.
func transient(err error) error {
	if errors.Is(err, oxide.ErrServiceUnavailable) {
		return nil
	}

	return err
}
