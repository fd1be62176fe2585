package provider

import (
	"maps"
	"slices"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// dataBlockSize is that of blank data disks, in bytes.
const dataBlockSize = 512

// shape fills in what needs no look at the rack.
func shape(plan *specs.Plan, class machineclass.Class) {
	plan.Cpus = uint32(class.CPUs)                             //nolint:gosec // checked: at most 254
	plan.MemoryBytes = uint64(class.Memory) * machineclass.GiB //nolint:gosec // checked: at most 1536
	plan.BootDisk = &specs.DiskPlan{
		Name: naming.Disk("boot", plan.GetRequestId()), Type: machineclass.DiskDistributed,
		SizeBytes: uint64(class.BootDiskSize) * machineclass.GiB, //nolint:gosec // checked: at most 1023
	}
	plan.AutoRestartPolicy = class.AutoRestartPolicy
	plan.OnStopped = class.OnStopped
	plan.CpuPlatform = class.CPUPlatform
	plan.EnableJumboFrames = class.EnableJumboFrames
	plan.Description = class.Description
	plan.PinHostname = class.HostnamePinned()
	plan.TrustedRoots = class.TrustedRoots()
	plan.Image.Extensions, plan.Image.KernelArgs = class.Extensions, class.KernelArgs

	if class.ImageScope != machineclass.ScopeAuto {
		plan.Image.Scope = class.ImageScope
	}

	labels := class.Labels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		plan.NodeLabels = append(plan.NodeLabels, key+"="+labels[key])
	}

	for _, d := range class.Disks {
		disk := &specs.DiskPlan{
			Name: naming.Disk(d.Name, plan.GetRequestId()), Type: d.Type,
			SizeBytes: uint64(d.Size) * machineclass.GiB, //nolint:gosec // checked: positive
		}

		if d.Type != machineclass.DiskLocal {
			disk.BlockSize = dataBlockSize
		}

		plan.Disks = append(plan.Disks, disk)
	}
}

// formatOf is the oldest format that says all that is in a plan: a version that
// does not know the rest must not carry it out, and may carry out all others.
func formatOf(plan *specs.Plan) uint32 {
	i := plan.GetImage()

	newer := plan.GetDescription() != "" || len(plan.GetExternalIps()) > 0 || plan.GetSetGroup() != nil || len(plan.GetNodeLabels()) > 0 ||
		plan.GetPinHostname() || plan.GetTrustedRoots() != "" || len(i.GetExtensions()) > 0 || len(i.GetKernelArgs()) > 0 || i.GetScope() != "" ||
		slices.ContainsFunc(plan.GetNics(), func(n *specs.NicPlan) bool {
			return len(n.GetTransitIps()) > 0 || n.GetIpv4() != "" || n.GetIpv6() != ""
		})

	if newer {
		return planFormat
	}

	return 1
}
