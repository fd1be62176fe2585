package rack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// projectCalls are the calls that a role on a project opens, with the least
// role, in an order in which each finds what it needs.
const projectCalls = `
project_view                             viewer       GET    /v1/projects/demo
project_policy_view                      viewer       GET    /v1/projects/demo/policy
project_update                           admin        PUT    /v1/projects/demo                                   {"description":"x"}

vpc_list                                 viewer       GET    /v1/vpcs?project=demo
vpc_create                               collaborator POST   /v1/vpcs?project=demo                               {"name":"v","description":"","dns_name":"v"}
vpc_view                                 viewer       GET    /v1/vpcs/v?project=demo
vpc_update                               collaborator PUT    /v1/vpcs/v?project=demo                             {"description":"x"}
vpc_subnet_list                          viewer       GET    /v1/vpc-subnets?project=demo&vpc=v
vpc_subnet_create                        collaborator POST   /v1/vpc-subnets?project=demo&vpc=v                  {"name":"n","description":"","ipv4_block":"10.0.0.0/24"}
vpc_subnet_view                          viewer       GET    /v1/vpc-subnets/n?project=demo&vpc=v
vpc_subnet_update                        collaborator PUT    /v1/vpc-subnets/n?project=demo&vpc=v                {"description":"x"}
vpc_subnet_list_network_interfaces       viewer       GET    /v1/vpc-subnets/n/network-interfaces?project=demo&vpc=v
vpc_router_list                          viewer       GET    /v1/vpc-routers?project=demo&vpc=v
vpc_router_view                          viewer       GET    /v1/vpc-routers/system?project=demo&vpc=v
vpc_router_route_list                    viewer       GET    /v1/vpc-router-routes?project=demo&vpc=v&router=system
vpc_router_route_view                    viewer       GET    /v1/vpc-router-routes/n?project=demo&vpc=v&router=system
vpc_firewall_rules_view                  viewer       GET    /v1/vpc-firewall-rules?project=demo&vpc=v
vpc_firewall_rules_update                collaborator PUT    /v1/vpc-firewall-rules?project=demo&vpc=v           {"rules":[]}
internet_gateway_list                    viewer       GET    /v1/internet-gateways?project=demo&vpc=v
internet_gateway_view                    viewer       GET    /v1/internet-gateways/default?project=demo&vpc=v

anti_affinity_group_list                 viewer       GET    /v1/anti-affinity-groups?project=demo
anti_affinity_group_create               limited      POST   /v1/anti-affinity-groups?project=demo               {"name":"g","description":"","policy":"allow","failure_domain":"sled"}
anti_affinity_group_view                 viewer       GET    /v1/anti-affinity-groups/g?project=demo
anti_affinity_group_update               limited      PUT    /v1/anti-affinity-groups/g?project=demo             {"description":"x"}
floating_ip_list                         viewer       GET    /v1/floating-ips?project=demo
floating_ip_create                       limited      POST   /v1/floating-ips?project=demo                       {"name":"f","description":""}
floating_ip_view                         viewer       GET    /v1/floating-ips/f?project=demo
floating_ip_update                       limited      PUT    /v1/floating-ips/f?project=demo                     {"description":"x"}

disk_list                                viewer       GET    /v1/disks?project=demo
disk_create                              limited      POST   /v1/disks?project=demo                              {"name":"d","description":"","size":1073741824,"disk_backend":{"type":"distributed","disk_source":{"type":"importing_blocks","block_size":512}}}
disk_view                                viewer       GET    /v1/disks/d?project=demo
disk_bulk_write_import_start             limited      POST   /v1/disks/d/bulk-write-start?project=demo
disk_bulk_write_import                   limited      POST   /v1/disks/d/bulk-write?project=demo                 {"offset":0,"base64_encoded_data":""}
disk_bulk_write_import_stop              limited      POST   /v1/disks/d/bulk-write-stop?project=demo
disk_finalize_import                     limited      POST   /v1/disks/d/finalize?project=demo                   {}
snapshot_list                            viewer       GET    /v1/snapshots?project=demo
snapshot_create                          limited      POST   /v1/snapshots?project=demo                          {"name":"s","description":"","disk":"d"}
snapshot_view                            viewer       GET    /v1/snapshots/s?project=demo
image_list                               viewer       GET    /v1/images?project=demo
image_create                             limited      POST   /v1/images?project=demo                             {"name":"m","description":"","os":"","version":"","source":{"type":"snapshot","id":"SNAPSHOT"}}
image_view                               viewer       GET    /v1/images/m?project=demo

instance_list                            viewer       GET    /v1/instances?project=demo
instance_create                          limited      POST   /v1/instances?project=demo                          {"name":"i","description":"","hostname":"i","ncpus":2,"memory":1073741824,"start":false}
instance_view                            viewer       GET    /v1/instances/i?project=demo
instance_update                          limited      PUT    /v1/instances/i?project=demo                        {"ncpus":4,"memory":1073741824,"boot_disk":null,"auto_restart_policy":null,"cpu_platform":null,"enable_jumbo_frames":false}
instance_disk_attach                     limited      POST   /v1/instances/i/disks/attach?project=demo           {"disk":"d"}
instance_disk_list                       viewer       GET    /v1/instances/i/disks?project=demo
instance_disk_detach                     limited      POST   /v1/instances/i/disks/detach?project=demo           {"disk":"d"}
instance_external_ip_list                viewer       GET    /v1/instances/i/external-ips?project=demo
instance_ephemeral_ip_attach             limited      POST   /v1/instances/i/external-ips/ephemeral?project=demo {}
instance_ephemeral_ip_detach             limited      DELETE /v1/instances/i/external-ips/ephemeral?project=demo
floating_ip_attach                       limited      POST   /v1/floating-ips/f/attach?project=demo              {"kind":"instance","parent":"i"}
floating_ip_detach                       limited      POST   /v1/floating-ips/f/detach?project=demo
instance_ssh_public_key_list             viewer       GET    /v1/instances/i/ssh-public-keys?project=demo
instance_multicast_group_list            viewer       GET    /v1/instances/i/multicast-groups?project=demo
instance_external_subnet_list            viewer       GET    /v1/instances/i/external-subnets?project=demo
anti_affinity_group_member_instance_add  limited      POST   /v1/anti-affinity-groups/g/members/instance/i?project=demo
anti_affinity_group_member_instance_view viewer       GET    /v1/anti-affinity-groups/g/members/instance/i?project=demo
anti_affinity_group_member_list          viewer       GET    /v1/anti-affinity-groups/g/members?project=demo
instance_anti_affinity_group_list        viewer       GET    /v1/instances/i/anti-affinity-groups?project=demo
anti_affinity_group_member_instance_delete limited    DELETE /v1/anti-affinity-groups/g/members/instance/i?project=demo
instance_network_interface_list          viewer       GET    /v1/network-interfaces?project=demo&instance=i
instance_network_interface_view          viewer       GET    /v1/network-interfaces/net0?project=demo&instance=i
instance_network_interface_update        limited      PUT    /v1/network-interfaces/net0?project=demo&instance=i {"description":"x"}
instance_network_interface_delete        limited      DELETE /v1/network-interfaces/net0?project=demo&instance=i
instance_network_interface_create        limited      POST   /v1/network-interfaces?project=demo&instance=i      {"name":"net0","description":"","vpc_name":"v","subnet_name":"n"}
instance_start                           limited      POST   /v1/instances/i/start?project=demo
instance_reboot                          limited      POST   /v1/instances/i/reboot?project=demo
instance_stop                            limited      POST   /v1/instances/i/stop?project=demo
instance_delete                          limited      DELETE /v1/instances/i?project=demo

image_delete                             limited      DELETE /v1/images/m?project=demo
snapshot_delete                          limited      DELETE /v1/snapshots/s?project=demo
disk_delete                              limited      DELETE /v1/disks/d?project=demo
floating_ip_delete                       limited      DELETE /v1/floating-ips/f?project=demo
anti_affinity_group_delete               limited      DELETE /v1/anti-affinity-groups/g?project=demo
vpc_subnet_delete                        collaborator DELETE /v1/vpc-subnets/n?project=demo&vpc=v
vpc_subnet_delete                        collaborator DELETE /v1/vpc-subnets/default?project=demo&vpc=v
vpc_delete                               collaborator DELETE /v1/vpcs/v?project=demo
vpc_subnet_delete                        collaborator DELETE /v1/vpc-subnets/default?project=demo&vpc=default
vpc_delete                               collaborator DELETE /v1/vpcs/default?project=demo
project_delete                           admin        DELETE /v1/projects/demo
`

// otherCalls need no role on a project, and are tested by themselves.
const otherCalls = `ping project_list project_create image_promote image_demote ip_pool_list ip_pool_view
	current_user_view current_user_groups current_user_access_token_list current_user_access_token_delete
	current_user_ssh_key_list current_user_ssh_key_create current_user_ssh_key_view current_user_ssh_key_delete
	policy_view user_list user_view group_list group_view utilization_view silo_quotas_view silo_utilization_view
	system_ip_pool_utilization_view`

// Invariant: a call below its least role is refused and changes nothing: as not
// found for who may not read the project, as forbidden for who may.
func TestLeastRoleOfEveryCall(t *testing.T) {
	names := []string{"viewer", "limited", "collaborator", "admin"}
	r := newRig(t, func(c *Config) {
		c.Latencies = &Latencies{}
		c.Tokens = []Token{{Value: DefaultToken}, {Value: "nothing", SiloRole: SiloNone}}

		for n, role := range []Role{RoleViewer, RoleLimitedCollaborator, RoleCollaborator, RoleAdmin} {
			c.Tokens = append(c.Tokens, Token{Value: names[n], User: names[n], SiloRole: RoleViewer, ProjectRoles: map[string]Role{"demo": role}})
		}
	})
	seen := strings.Fields(otherCalls)

	for line := range strings.SplitSeq(projectCalls, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}

		op, least, method, path, body := f[0], f[1], f[2], f[3], ""
		if len(f) > 4 {
			body = f[4]
		}

		if s, found := r.onlySnapshot(); found {
			body = strings.ReplaceAll(body, "SNAPSHOT", s)
		}

		seen = append(seen, op)

		// What the calls before have begun has come to its end.
		eventually(t, "rest", func() bool {
			in := r.Summary().Instances

			return in["starting"]+in["rebooting"]+in["stopping"] == 0
		})
		t.Run(op, func(t *testing.T) { r.leastRole(t, method, path, body, names, least) })
	}

	for _, route := range apiRoutes() {
		if !slices.Contains(seen, route.op) {
			t.Errorf("nothing says who may call %s", route.op)
		}
	}
}

func (r *rig) leastRole(t *testing.T, method, path, body string, names []string, least string) {
	t.Helper()

	before := fmt.Sprint(r.Summary().Disks, r.Summary().Instances, r.Summary().Snapshots)

	if status, e, _ := r.raw(method, path, body, "Authorization", "Bearer nothing"); status != 404 || e.ErrorCode != "ObjectNotFound" {
		t.Errorf("without a role: %d %+v", status, e)
	}

	n := slices.Index(names, least)
	for _, role := range names[:n] {
		if status, e, _ := r.raw(method, path, body, "Authorization", "Bearer "+role); status != 403 || e.ErrorCode != "Forbidden" {
			t.Errorf("as %s: %d %+v", role, status, e)
		}
	}

	if now := fmt.Sprint(r.Summary().Disks, r.Summary().Instances, r.Summary().Snapshots); now != before {
		t.Errorf("refused calls have changed %s to %s", before, now)
	}

	// An instance may still be on its way to the state that the call needs.
	eventually(t, "success as "+least, func() bool {
		status, e, _ := r.raw(method, path, body, "Authorization", "Bearer "+least)
		if status >= 400 && e.ErrorCode != "InvalidRequest" && e.ErrorCode != "ServiceNotAvailable" {
			t.Fatalf("as %s: %d %+v", least, status, e)
		}

		return status < 400
	})
}

func (r *rig) onlySnapshot() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for id := range r.snapshots.byID {
		return id, true
	}

	return "", false
}
