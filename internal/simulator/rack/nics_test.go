package rack

import (
	"fmt"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func (r *rig) addNIC(instance string, nic oxide.InstanceNetworkInterfaceCreate) (*oxide.InstanceNetworkInterface, error) {
	return r.client.InstanceNetworkInterfaceCreate(r.t.Context(), oxide.InstanceNetworkInterfaceCreateParams{
		Instance: oxide.NameOrId(instance), Body: &nic,
	})
}

func (r *rig) deleteNIC(id string) error {
	return r.client.InstanceNetworkInterfaceDelete(r.t.Context(), oxide.InstanceNetworkInterfaceDeleteParams{Interface: oxide.NameOrId(id)})
}

func (r *rig) updateNIC(id string, body oxide.InstanceNetworkInterfaceUpdate) (*oxide.InstanceNetworkInterface, error) {
	return r.client.InstanceNetworkInterfaceUpdate(r.t.Context(), oxide.InstanceNetworkInterfaceUpdateParams{
		Interface: oxide.NameOrId(id), Body: &body,
	})
}

func (r *rig) nics(instance string) []oxide.InstanceNetworkInterface {
	r.t.Helper()

	return must(r.client.InstanceNetworkInterfaceListAllPages(r.t.Context(), oxide.InstanceNetworkInterfaceListParams{
		Instance: oxide.NameOrId(instance),
	}))(r.t)
}

func networks(t *testing.T, all ...string) []oxide.IpNet {
	t.Helper()

	var out []oxide.IpNet

	for _, s := range all {
		out = append(out, must(oxide.NewIpNet(s))(t))
	}

	return out
}

// Interfaces can be added and taken away while the instance is stopped; the
// primary one is the last to go.
func TestNICsOfAStoppedInstance(t *testing.T) {
	r := newRig(t, onlyVMs)
	ctx := t.Context()
	i := r.instance("i", withNICs(nicIn("default", "")))
	first := r.nics(i.Id)[0]

	must(r.createSubnet("default", "second", "10.0.0.0/24"))(t)
	must(r.createVPC("other", ""))(t)

	second := must(r.addNIC(i.Id, nicIn("second", "10.0.0.77")))(t)
	if stack, is := second.IpStack.AsV4(); !is || stack.Value.Ip != "10.0.0.77" || second.Mac == "" || *second.Primary || second.InstanceId != i.Id {
		t.Errorf("NIC is %+v", second)
	}

	_, err := r.addNIC(i.Id, nicIn("second", ""))
	wantError(t, err, 400, "ObjectAlreadyExists", `instance-network-interface "nic-second"`)

	again := nicIn("second", "")
	again.Name = "again"
	_, err = r.addNIC(i.Id, again)
	wantError(t, err, 400, "InvalidRequest", "distinct VPC Subnet")

	other := nicIn("default", "")
	other.Name, other.VpcName = "other", "other"
	_, err = r.addNIC(i.Id, other)
	wantError(t, err, 400, "InvalidRequest", "same VPC")

	wantError(t, r.deleteNIC(first.Id), 400, "InvalidRequest", "primary interface may not be deleted")

	up := must(r.updateNIC(second.Id, oxide.InstanceNetworkInterfaceUpdate{
		Primary: oxide.NewPointer(true), TransitIps: networks(t, "10.244.0.0/16"),
	}))(t)
	if stack, _ := up.IpStack.AsV4(); !*up.Primary || fmt.Sprint(stack.Value.TransitIps) != "[10.244.0.0/16]" || up.Name != second.Name {
		t.Errorf("updated NIC is %+v", up)
	}

	// No transit networks given means none, and a primary NIC stays primary.
	up = must(r.updateNIC(second.Id, oxide.InstanceNetworkInterfaceUpdate{Primary: oxide.NewPointer(false), Name: "main"}))(t)
	if stack, _ := up.IpStack.AsV4(); !*up.Primary || len(stack.Value.TransitIps) != 0 || up.Name != "main" {
		t.Errorf("updated NIC is %+v", up)
	}

	for _, network := range []string{"10.244.0.1/16", "224.0.0.0/8", "127.0.0.0/8", "fd00::/64"} {
		_, err := r.updateNIC(second.Id, oxide.InstanceNetworkInterfaceUpdate{TransitIps: networks(t, network)})
		wantError(t, err, 400, "InvalidRequest", "transit IP block")
	}

	inSubnet := must(r.client.VpcSubnetListNetworkInterfacesAllPages(ctx, oxide.VpcSubnetListNetworkInterfacesParams{
		Project: demo, Vpc: "default", Subnet: "second",
	}))(t)
	if len(inSubnet) != 1 || inSubnet[0].Id != second.Id {
		t.Errorf("NICs of the subnet are %+v", inSubnet)
	}

	must(0, r.deleteNIC(first.Id))(t)
	must(0, r.deleteNIC(second.Id))(t)
	wantError(t, r.deleteNIC(second.Id), 404, "ObjectNotFound", "instance-network-interface with id")
	must(r.addNIC(i.Id, other))(t) // with none left, the VPC is free to choose

	if n := r.nics(i.Id)[0]; !*n.Primary {
		t.Errorf("the only NIC is %+v", n)
	}
}

func TestNICsOfARunningInstanceStay(t *testing.T) {
	r := newRig(t)
	i := r.instance("i", withNICs(nicIn("default", "")))
	must(r.createSubnet("default", "second", "10.0.0.0/24"))(t)
	must(0, r.startInstance(i.Id))(t)

	_, err := r.addNIC(i.Id, nicIn("second", ""))
	wantError(t, err, 400, "InvalidRequest", "must be stopped")

	id := r.nics(i.Id)[0].Id
	_, err = r.updateNIC(id, oxide.InstanceNetworkInterfaceUpdate{Name: "x"})
	wantError(t, err, 400, "InvalidRequest", "must be stopped")
	wantError(t, r.deleteNIC(id), 400, "InvalidRequest", "must be stopped or failed")
}

func TestSelectorsOfNICs(t *testing.T) {
	r := newRig(t)
	i := r.instance("i")
	id := r.nics(i.Id)[0].Id

	for query, part := range map[string]string{
		id: "", "net0?instance=" + i.Id: "", "net0?instance=i&project=demo": "",
		id + "?instance=" + i.Id:             "when providing network interface as an ID",
		id + "?project=demo":                 "when providing network interface as an ID",
		"net0":                               "instance should be specified",
		"net0?instance=i":                    "instance should either be UUID or project should be specified",
		"none?instance=" + i.Id:              `instance-network-interface with name "none"`,
		"net0?project=demo&instance=" + i.Id: "when providing instance as an ID",
	} {
		status, e, _ := r.raw("GET", "/v1/network-interfaces/"+query, "")
		if (status == 200) != (part == "") || !contains(e.Message, part) {
			t.Errorf("%s: %d %+v", query, status, e)
		}
	}
}
