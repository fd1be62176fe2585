package rack

import (
	"fmt"
	"slices"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func (r *rig) createVPC(name, prefix string) (*oxide.Vpc, error) {
	return r.client.VpcCreate(r.t.Context(), oxide.VpcCreateParams{Project: demo, Body: &oxide.VpcCreate{
		Name: oxide.Name(name), DnsName: oxide.Name(name), Description: "a VPC", Ipv6Prefix: oxide.Ipv6Net(prefix),
	}})
}

func (r *rig) createSubnet(vpc, name, block string) (*oxide.VpcSubnet, error) {
	return r.client.VpcSubnetCreate(r.t.Context(), oxide.VpcSubnetCreateParams{
		Project: demo, Vpc: oxide.NameOrId(vpc),
		Body: &oxide.VpcSubnetCreate{Name: oxide.Name(name), Ipv4Block: oxide.Ipv4Net(block)},
	})
}

// A VPC comes with a router, a gateway, a subnet and firewall rules, and goes
// with all of them but its subnets.
func TestVPCComesWithAllItNeeds(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	made := must(r.createVPC("own", "fd11:2233:4455::/48"))(t)

	for _, name := range []string{"default", "own"} {
		vpc := oxide.NameOrId(name)
		v := must(r.client.VpcView(ctx, oxide.VpcViewParams{Project: demo, Vpc: vpc}))(t)

		router := must(r.client.VpcRouterView(ctx, oxide.VpcRouterViewParams{Project: demo, Vpc: vpc, Router: "system"}))(t)
		if router.Id != v.SystemRouterId || router.Kind != oxide.VpcRouterKindSystem {
			t.Errorf("%s: system router is %+v", name, router)
		}

		subnets := must(r.client.VpcSubnetListAllPages(ctx, oxide.VpcSubnetListParams{Project: demo, Vpc: vpc}))(t)
		if len(subnets) != 1 || subnets[0].Name != "default" || subnets[0].Ipv4Block != "172.30.0.0/22" {
			t.Errorf("%s: subnets are %+v", name, subnets)
		}

		gateways := must(r.client.InternetGatewayListAllPages(ctx, oxide.InternetGatewayListParams{Project: demo, Vpc: vpc}))(t)
		if len(gateways) != 1 || gateways[0].Name != "default" || gateways[0].VpcId != v.Id {
			t.Errorf("%s: gateways are %+v", name, gateways)
		}

		rules := must(r.client.VpcFirewallRulesView(ctx, oxide.VpcFirewallRulesViewParams{Project: demo, Vpc: vpc}))(t).Rules
		names := make([]string, 0, len(rules))

		for _, f := range rules {
			names = append(names, string(f.Name))

			if target, is := f.Targets[0].AsVpc(); !is || string(target.Value) != name || f.Action != oxide.VpcFirewallRuleActionAllow {
				t.Errorf("%s: rule is %+v", name, f)
			}
		}

		if fmt.Sprint(names) != "[allow-icmp allow-internal-inbound allow-ssh]" {
			t.Errorf("%s: rules are %v", name, names)
		}
	}

	id := oxide.NameOrId(made.Id)
	wantError(t, r.client.VpcDelete(ctx, oxide.VpcDeleteParams{Vpc: id}), 400, "InvalidRequest", "Subnets exist")
	must(0, r.client.VpcSubnetDelete(ctx, oxide.VpcSubnetDeleteParams{Vpc: id, Subnet: "default"}))(t)
	must(0, r.client.VpcDelete(ctx, oxide.VpcDeleteParams{Vpc: id}))(t)

	_, err := r.client.VpcRouterView(ctx, oxide.VpcRouterViewParams{Router: oxide.NameOrId(made.SystemRouterId)})
	wantError(t, err, 404, "ObjectNotFound", "vpc-router with id")

	for prefix, part := range map[string]string{
		"fd00::/47": "48 bits", "fd00:0:0:1::/64": "48 bits", "2001:db8::/48": "unique local", "fd00::1/48": "48 bits",
	} {
		_, err := r.createVPC("bad", prefix)
		wantError(t, err, 400, "InvalidRequest", part)
	}

	_, err = r.createVPC("default", "")
	wantError(t, err, 400, "ObjectAlreadyExists", `vpc "default"`)
}

func (r *rig) routeNames(vpc string) []string {
	r.t.Helper()

	var names []string

	for _, x := range must(r.client.VpcRouterRouteListAllPages(r.t.Context(), oxide.VpcRouterRouteListParams{
		Project: demo, Vpc: oxide.NameOrId(vpc), Router: "system",
	}))(r.t) {
		names = append(names, string(x.Name)+":"+string(x.Kind))
	}

	return names
}

// The system router knows the way out, and each subnet by its present name.
func TestRoutesFollowSubnets(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	n := must(r.createSubnet("default", "more", "10.0.0.0/24"))(t)

	want := []string{"default:vpc_subnet", "default-v4:default", "default-v6:default", "more:vpc_subnet"}
	if got := r.routeNames("default"); !slices.Equal(got, want) {
		t.Errorf("routes are %v", got)
	}

	renamed := must(r.client.VpcSubnetUpdate(ctx, oxide.VpcSubnetUpdateParams{
		Subnet: oxide.NameOrId(n.Id), Body: &oxide.VpcSubnetUpdate{Name: "pods"},
	}))(t)
	if renamed.Name != "pods" || renamed.Description != n.Description || renamed.Id != n.Id {
		t.Errorf("renamed subnet is %+v", renamed)
	}

	route := must(r.client.VpcRouterRouteView(ctx, oxide.VpcRouterRouteViewParams{Project: demo, Vpc: "default", Router: "system", Route: "pods"}))(t)
	if to, is := route.Target.AsSubnet(); !is || to.Value != "pods" {
		t.Errorf("route is %+v", route)
	}

	must(r.client.VpcRouterRouteView(ctx, oxide.VpcRouterRouteViewParams{Route: oxide.NameOrId(route.Id)}))(t)

	_, err := r.client.VpcRouterRouteView(ctx, oxide.VpcRouterRouteViewParams{Route: "pods"})
	wantError(t, err, 400, "InvalidRequest", "router should be specified")

	_, err = r.client.VpcSubnetUpdate(ctx, oxide.VpcSubnetUpdateParams{Subnet: oxide.NameOrId(n.Id), Body: &oxide.VpcSubnetUpdate{Name: "default"}})
	wantError(t, err, 400, "ObjectAlreadyExists", `vpc-subnet "default"`)

	_, err = r.client.VpcSubnetUpdate(ctx, oxide.VpcSubnetUpdateParams{Subnet: oxide.NameOrId(n.Id), Body: &oxide.VpcSubnetUpdate{CustomRouter: "own"}})
	wantError(t, err, 404, "ObjectNotFound", "vpc-router")

	must(0, r.client.VpcSubnetDelete(ctx, oxide.VpcSubnetDeleteParams{Subnet: oxide.NameOrId(n.Id)}))(t)

	if got := r.routeNames("default"); !slices.Equal(got, want[:3]) {
		t.Errorf("after the delete routes are %v", got)
	}
}

func TestUpdatesKeepWhatTheyDoNotName(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()

	v := must(r.client.VpcUpdate(ctx, oxide.VpcUpdateParams{Project: demo, Vpc: "default", Body: &oxide.VpcUpdate{DnsName: "inside"}}))(t)
	if v.Name != "default" || v.DnsName != "inside" || v.Description != "Default VPC" {
		t.Errorf("VPC is %+v", v)
	}

	p := must(r.client.ProjectUpdate(ctx, oxide.ProjectUpdateParams{Project: demo, Body: &oxide.ProjectUpdate{Name: "shop"}}))(t)
	if p.Name != "shop" || p.Description != "made at start" {
		t.Errorf("project is %+v", p)
	}

	_, err := r.client.ProjectView(ctx, oxide.ProjectViewParams{Project: demo})
	wantError(t, err, 404, "ObjectNotFound", `project with name "demo"`)
	must(r.client.VpcView(ctx, oxide.VpcViewParams{Project: "shop", Vpc: "default"}))(t)

	_, err = r.client.ProjectUpdate(ctx, oxide.ProjectUpdateParams{Project: "shop", Body: &oxide.ProjectUpdate{Description: text(513)}})
	wantError(t, err, 500, "Internal", "")

	p = must(r.client.ProjectUpdate(ctx, oxide.ProjectUpdateParams{Project: "shop", Body: &oxide.ProjectUpdate{Description: text(512)}}))(t)
	if p.Name != "shop" || p.Description != text(512) {
		t.Errorf("project is %+v", p)
	}
}

// A selector is an ID alone, or a name with what it is unique in.
func TestSelectorsOfNetworks(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	v := must(r.client.VpcView(ctx, oxide.VpcViewParams{Project: demo, Vpc: "default"}))(t)
	sub := must(r.client.VpcSubnetView(ctx, oxide.VpcSubnetViewParams{Vpc: oxide.NameOrId(v.Id), Subnet: "default"}))(t)

	for _, tt := range []struct {
		path, part string
		status     int
	}{
		{"/v1/vpcs/" + v.Id, "", 200},
		{"/v1/vpcs/" + v.Id + "?project=demo", "when providing vpc as an ID project should not be specified", 400},
		{"/v1/vpcs/default", "vpc should either be UUID or project should be specified", 400},
		{"/v1/vpc-subnets/" + sub.Id, "", 200},
		{"/v1/vpc-subnets/" + sub.Id + "?vpc=" + v.Id, "when providing subnet as an ID", 400},
		{"/v1/vpc-subnets/" + sub.Id + "?project=demo", "when providing subnet as an ID", 400},
		{"/v1/vpc-subnets/default", "subnet should either be UUID or VPC should be specified", 400},
		{"/v1/vpc-subnets/default?vpc=default", "vpc should either be UUID or project should be specified", 400},
		{"/v1/vpc-subnets/default?vpc=" + v.Id, "", 200},
		{"/v1/vpc-subnets?project=demo", "missing field `vpc`", 400},
		{"/v1/vpc-subnets?vpc=" + v.Id, "", 200},
		{"/v1/vpc-routers/system?vpc=" + v.Id, "", 200},
		{"/v1/vpc-router-routes?vpc=" + v.Id, "missing field `router`", 400},
		{"/v1/vpc-router-routes?router=" + v.SystemRouterId, "", 200},
		{"/v1/vpc-firewall-rules?vpc=" + v.Id, "", 200},
		{"/v1/vpc-firewall-rules", "missing field `vpc`", 400},
		{"/v1/internet-gateways/default?vpc=" + v.Id, "", 200},
		{"/v1/vpc-subnets/" + sub.Id + "/network-interfaces", "", 200},
	} {
		status, e, _ := r.raw("GET", tt.path, "")
		if status != tt.status || (tt.part == "") != (e.Message == "") || !contains(e.Message, tt.part) {
			t.Errorf("%s: %d %+v", tt.path, status, e)
		}
	}
}
