package instance

import (
	"encoding/base64"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// maxUserData is the rack's limit in bytes before base64.
const maxUserData = 32 << 10

// params turns a plan into the body of the create call.
func (m *Machines) params(spec *specs.InstanceSpec, userData string) oxide.InstanceCreate {
	plan := spec.GetPlan()
	start := false

	i := oxide.InstanceCreate{
		Name:              oxide.Name(plan.GetInstanceName()),
		Hostname:          oxide.Hostname(plan.GetInstanceName()),
		Description:       m.describe(plan, naming.KindInstance, "Talos machine "+plan.GetRequestId()+" of Omni."),
		Ncpus:             oxide.InstanceCpuCount(plan.GetCpus()), //nolint:gosec // planned: at most 254
		Memory:            oxide.ByteCount(plan.GetMemoryBytes()),
		AutoRestartPolicy: oxide.InstanceAutoRestartPolicy(plan.GetAutoRestartPolicy()),
		CpuPlatform:       oxide.InstanceCpuPlatform(plan.GetCpuPlatform()),
		UserData:          base64.StdEncoding.EncodeToString([]byte(userData)),
		// Without a list the rack injects every key of the token's user.
		SshPublicKeys: []oxide.NameOrId{},
		// A start inside the create hides why it failed.
		Start:             &start,
		BootDisk:          m.bootDisk(spec),
		NetworkInterfaces: m.nics(plan),
		ExternalIps:       externalIPs(spec),
	}

	for _, id := range plan.GetAntiAffinityGroupIds() {
		i.AntiAffinityGroups = append(i.AntiAffinityGroups, oxide.NameOrId(id))
	}

	if id := spec.GetSetGroupId(); id != "" {
		i.AntiAffinityGroups = append(i.AntiAffinityGroups, oxide.NameOrId(id))
	}

	for _, d := range plan.GetDisks() {
		i.Disks = append(i.Disks, m.dataDisk(plan, d))
	}

	if plan.GetEnableJumboFrames() {
		i.EnableJumboFrames = oxide.NewPointer(true)
	}

	return i
}

func (m *Machines) bootDisk(spec *specs.InstanceSpec) oxide.InstanceDiskAttachment {
	plan := spec.GetPlan()

	return oxide.InstanceDiskAttachment{Value: oxide.InstanceDiskAttachmentCreate{
		Name:        oxide.Name(plan.GetBootDisk().GetName()),
		Description: m.describe(plan, naming.KindBoot, "Boot disk of machine "+plan.GetRequestId()+"."),
		Size:        oxide.ByteCount(plan.GetBootDisk().GetSizeBytes()),
		DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: oxide.DiskSourceImage{ImageId: spec.GetImage().GetId()}},
		}},
	}}
}

func (m *Machines) dataDisk(plan *specs.Plan, d *specs.DiskPlan) oxide.InstanceDiskAttachment {
	backend := oxide.DiskBackend{Value: oxide.DiskBackendLocal{}}

	if d.GetType() != "local" {
		backend = oxide.DiskBackend{Value: oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: oxide.BlockSize(d.GetBlockSize())}},
		}}
	}

	return oxide.InstanceDiskAttachment{Value: oxide.InstanceDiskAttachmentCreate{
		Name:        oxide.Name(d.GetName()),
		Description: m.describe(plan, naming.KindData, "Data disk of machine "+plan.GetRequestId()+"."),
		Size:        oxide.ByteCount(d.GetSizeBytes()),
		DiskBackend: backend,
	}}
}

func (m *Machines) nics(plan *specs.Plan) oxide.InstanceNetworkInterfaceAttachment {
	if len(plan.GetNics()) == 0 {
		// An empty list of interfaces is refused.
		return oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentNone{}}
	}

	params := make([]oxide.InstanceNetworkInterfaceCreate, 0, len(plan.GetNics()))

	for _, n := range plan.GetNics() {
		params = append(params, oxide.InstanceNetworkInterfaceCreate{
			Name:        oxide.Name(n.GetName()),
			Description: m.describe(plan, naming.KindNIC, "Network interface of machine "+plan.GetRequestId()+"."),
			VpcName:     oxide.Name(n.GetVpcName()),
			SubnetName:  oxide.Name(n.GetSubnetName()),
			IpConfig:    ipStack(n),
		})
	}

	return oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentCreate{Params: params}}
}

// describe is the description of an object of a machine: whose it is, what the
// class says of it, and the mark.
func (m *Machines) describe(plan *specs.Plan, kind naming.Kind, sentence string) string {
	if d := plan.GetDescription(); d != "" {
		sentence += " " + d
	}

	return m.mark(plan.GetRequestId(), kind).Describe(sentence)
}
