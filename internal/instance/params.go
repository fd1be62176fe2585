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
		Description:       m.mark(plan.GetRequestId(), naming.KindInstance).Describe("Talos machine " + plan.GetRequestId() + " of Omni."),
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
	}

	for _, id := range plan.GetAntiAffinityGroupIds() {
		i.AntiAffinityGroups = append(i.AntiAffinityGroups, oxide.NameOrId(id))
	}

	for _, d := range plan.GetDisks() {
		i.Disks = append(i.Disks, m.dataDisk(plan.GetRequestId(), d))
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
		Description: m.mark(plan.GetRequestId(), naming.KindBoot).Describe("Boot disk of machine " + plan.GetRequestId() + "."),
		Size:        oxide.ByteCount(plan.GetBootDisk().GetSizeBytes()),
		DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: oxide.DiskSourceImage{ImageId: spec.GetImage().GetId()}},
		}},
	}}
}

func (m *Machines) dataDisk(requestID string, d *specs.DiskPlan) oxide.InstanceDiskAttachment {
	backend := oxide.DiskBackend{Value: oxide.DiskBackendLocal{}}

	if d.GetType() != "local" {
		backend = oxide.DiskBackend{Value: oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: oxide.BlockSize(d.GetBlockSize())}},
		}}
	}

	return oxide.InstanceDiskAttachment{Value: oxide.InstanceDiskAttachmentCreate{
		Name:        oxide.Name(d.GetName()),
		Description: m.mark(requestID, naming.KindData).Describe("Data disk of machine " + requestID + "."),
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
			Description: m.mark(plan.GetRequestId(), naming.KindNIC).Describe("Network interface of machine " + plan.GetRequestId() + "."),
			VpcName:     oxide.Name(n.GetVpcName()),
			SubnetName:  oxide.Name(n.GetSubnetName()),
			IpConfig:    ipStack(n.GetIpConfig()),
		})
	}

	return oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentCreate{Params: params}}
}

// ipStack asks for automatic private addresses of the given versions.
func ipStack(config string) oxide.PrivateIpStackCreate {
	v4 := oxide.PrivateIpv4StackCreate{Ip: oxide.Ipv4Assignment{Value: oxide.Ipv4AssignmentAuto{}}}
	v6 := oxide.PrivateIpv6StackCreate{Ip: oxide.Ipv6Assignment{Value: oxide.Ipv6AssignmentAuto{}}}

	switch config {
	case "v6":
		return oxide.PrivateIpStackCreate{Value: oxide.PrivateIpStackCreateV6{Value: v6}}
	case "dual_stack":
		return oxide.PrivateIpStackCreate{Value: oxide.PrivateIpStackCreateDualStack{
			Value: oxide.PrivateIpStackCreateDualStackValue{V4: v4, V6: v6},
		}}
	default:
		return oxide.PrivateIpStackCreate{Value: oxide.PrivateIpStackCreateV4{Value: v4}}
	}
}
