package rack

import (
	"net/http"
	"slices"
	"strings"
)

// The names under which calls are counted that are none of the simulator's:
// it does not have the operation, or nobody has that method there.
const (
	opNotServed   = "not_served"
	opWrongMethod = "wrong_method"
)

type route struct {
	op, pattern string
	work        operation
}

func apiRoutes() []route {
	return slices.Concat(siloRoutes(), vpcRoutes(), addressRoutes(), groupRoutes(), storageRoutes(), instanceRoutes())
}

func siloRoutes() []route {
	return []route{
		{opPing, "GET /v1/ping", func(s *Server, c *call) (answer, error) { return s.ping(c) }},
		{"current_user_view", "GET /v1/me", (*Server).me},
		{"current_user_ssh_key_list", "GET /v1/me/ssh-keys", (*Server).sshKeyList},
		{"current_user_ssh_key_create", "POST /v1/me/ssh-keys", (*Server).sshKeyCreate},
		{"current_user_ssh_key_view", "GET /v1/me/ssh-keys/{ssh_key}", (*Server).sshKeyView},
		{"current_user_ssh_key_delete", "DELETE /v1/me/ssh-keys/{ssh_key}", (*Server).sshKeyDelete},
		{"current_user_groups", "GET /v1/me/groups", (*Server).myGroups},
		{"current_user_access_token_list", "GET /v1/me/access-tokens", (*Server).tokenList},
		{"current_user_access_token_delete", "DELETE /v1/me/access-tokens/{token_id}", (*Server).tokenDelete},
		{"policy_view", "GET /v1/policy", (*Server).siloPolicy},
		{"user_list", "GET /v1/users", (*Server).userList},
		{"user_view", "GET /v1/users/{user_id}", (*Server).userView},
		{"group_list", "GET /v1/groups", (*Server).groupsOfSilo},
		{"group_view", "GET /v1/groups/{group_id}", (*Server).siloGroupView},
		{"silo_quotas_view", "GET /v1/system/silos/{silo}/quotas", (*Server).quotas},
		{"silo_utilization_view", "GET /v1/system/utilization/silos/{silo}", (*Server).siloUtilization},
		{"utilization_view", "GET /v1/utilization", (*Server).utilization},

		{"project_list", "GET /v1/projects", (*Server).projectList},
		{"project_create", "POST /v1/projects", (*Server).projectCreate},
		{"project_view", "GET /v1/projects/{project}", (*Server).projectView},
		{"project_policy_view", "GET /v1/projects/{project}/policy", (*Server).projectPolicy},
		{"project_update", "PUT /v1/projects/{project}", (*Server).projectUpdate},
		{"project_delete", "DELETE /v1/projects/{project}", (*Server).projectDelete},
	}
}

func vpcRoutes() []route {
	return []route{
		{"vpc_list", "GET /v1/vpcs", listing(allVPCs, viewVPC)},
		{"vpc_create", "POST /v1/vpcs", (*Server).vpcCreate},
		{"vpc_view", "GET /v1/vpcs/{vpc}", viewing(allVPCs, "vpc", viewVPC)},
		{"vpc_update", "PUT /v1/vpcs/{vpc}", (*Server).vpcUpdate},
		{"vpc_delete", "DELETE /v1/vpcs/{vpc}", (*Server).vpcDelete},
		{"vpc_subnet_list", "GET /v1/vpc-subnets", listingInVPC(allSubnets, viewSubnet)},
		{"vpc_subnet_create", "POST /v1/vpc-subnets", (*Server).subnetCreate},
		{"vpc_subnet_view", "GET /v1/vpc-subnets/{subnet}", viewingInVPC(allSubnets, "subnet", viewSubnet)},
		{"vpc_subnet_update", "PUT /v1/vpc-subnets/{subnet}", (*Server).subnetUpdate},
		{"vpc_subnet_delete", "DELETE /v1/vpc-subnets/{subnet}", (*Server).subnetDelete},
		{"vpc_subnet_list_network_interfaces", "GET /v1/vpc-subnets/{subnet}/network-interfaces", (*Server).subnetNICs},
		{"vpc_router_list", "GET /v1/vpc-routers", listingInVPC(allRouters, viewRouter)},
		{"vpc_router_view", "GET /v1/vpc-routers/{router}", viewingInVPC(allRouters, "router", viewRouter)},
		{"vpc_router_route_list", "GET /v1/vpc-router-routes", (*Server).routeList},
		{"vpc_router_route_view", "GET /v1/vpc-router-routes/{route}", (*Server).routeView},
		{"vpc_firewall_rules_view", "GET /v1/vpc-firewall-rules", (*Server).firewallRules},
		{"vpc_firewall_rules_update", "PUT /v1/vpc-firewall-rules", (*Server).firewallUpdate},
		{"internet_gateway_list", "GET /v1/internet-gateways", listingInVPC(allGateways, viewGateway)},
		{"internet_gateway_view", "GET /v1/internet-gateways/{gateway}", viewingInVPC(allGateways, "gateway", viewGateway)},
	}
}

func addressRoutes() []route {
	return []route{
		{"ip_pool_list", "GET /v1/ip-pools", (*Server).ipPoolList},
		{"ip_pool_view", "GET /v1/ip-pools/{pool}", (*Server).ipPoolView},
		{"system_ip_pool_utilization_view", "GET /v1/system/ip-pools/{pool}/utilization", (*Server).poolUtilization},
		{"floating_ip_list", "GET /v1/floating-ips", listing(allFloating, viewFloating)},
		{"floating_ip_create", "POST /v1/floating-ips", (*Server).floatingCreate},
		{"floating_ip_view", "GET " + floatingPath, viewing(allFloating, "floating_ip", viewFloating)},
		{"floating_ip_update", "PUT " + floatingPath, updating(allFloating, "floating_ip", RoleLimitedCollaborator, viewFloating)},
		{"floating_ip_delete", "DELETE " + floatingPath, (*Server).floatingDelete},
		{"floating_ip_attach", "POST " + floatingPath + "/attach", (*Server).floatingAttach},
		{"floating_ip_detach", "POST " + floatingPath + "/detach", (*Server).floatingDetach},
		{"instance_network_interface_list", "GET /v1/network-interfaces", (*Server).nicList},
		{"instance_network_interface_create", "POST /v1/network-interfaces", (*Server).nicCreate},
		{"instance_network_interface_view", "GET /v1/network-interfaces/{interface}", (*Server).nicView},
		{"instance_network_interface_update", "PUT /v1/network-interfaces/{interface}", (*Server).nicUpdate},
		{"instance_network_interface_delete", "DELETE /v1/network-interfaces/{interface}", (*Server).nicDelete},
	}
}

func groupRoutes() []route {
	return []route{
		{"anti_affinity_group_list", "GET /v1/anti-affinity-groups", listing(allGroups, viewGroup)},
		{"anti_affinity_group_create", "POST /v1/anti-affinity-groups", (*Server).groupCreate},
		{"anti_affinity_group_view", "GET " + groupPath, viewing(allGroups, "anti_affinity_group", viewGroup)},
		{"anti_affinity_group_update", "PUT " + groupPath, updating(allGroups, "anti_affinity_group", RoleLimitedCollaborator, viewGroup)},
		{"anti_affinity_group_delete", "DELETE " + groupPath, (*Server).groupDelete},
		{"anti_affinity_group_member_list", "GET " + groupPath + "/members", (*Server).groupMembers},
		{"anti_affinity_group_member_instance_view", "GET " + memberPath, (*Server).memberView},
		{"anti_affinity_group_member_instance_add", "POST " + memberPath, (*Server).memberAdd},
		{"anti_affinity_group_member_instance_delete", "DELETE " + memberPath, (*Server).memberRemove},
	}
}

func storageRoutes() []route {
	return []route{
		{"disk_list", "GET /v1/disks", listing(allDisks, viewDisk)},
		{"disk_create", "POST /v1/disks", (*Server).diskCreate},
		{"disk_view", "GET /v1/disks/{disk}", viewing(allDisks, "disk", viewDisk)},
		{"disk_delete", "DELETE /v1/disks/{disk}", (*Server).diskDelete},
		{"disk_bulk_write_import_start", "POST /v1/disks/{disk}/bulk-write-start", (*Server).bulkWriteStart},
		{opBulkWrite, "POST /v1/disks/{disk}/bulk-write", (*Server).bulkWrite},
		{"disk_bulk_write_import_stop", "POST /v1/disks/{disk}/bulk-write-stop", (*Server).bulkWriteStop},
		{"disk_finalize_import", "POST /v1/disks/{disk}/finalize", (*Server).finalizeImport},

		{"snapshot_list", "GET /v1/snapshots", listing(allSnapshots, viewSnapshot)},
		{"snapshot_create", "POST /v1/snapshots", (*Server).snapshotCreate},
		{"snapshot_view", "GET /v1/snapshots/{snapshot}", viewing(allSnapshots, "snapshot", viewSnapshot)},
		{"snapshot_delete", "DELETE /v1/snapshots/{snapshot}", (*Server).snapshotDelete},

		{"image_list", "GET /v1/images", (*Server).imageList},
		{"image_create", "POST /v1/images", (*Server).imageCreate},
		{"image_view", "GET /v1/images/{image}", (*Server).imageView},
		{"image_delete", "DELETE /v1/images/{image}", (*Server).imageDelete},
		{"image_promote", "POST /v1/images/{image}/promote", (*Server).imagePromote},
		{"image_demote", "POST /v1/images/{image}/demote", (*Server).imageDemote},
	}
}

func instanceRoutes() []route {
	return []route{
		{"instance_list", "GET /v1/instances", (*Server).instanceList},
		{"instance_create", "POST /v1/instances", (*Server).instanceCreate},
		{"instance_view", "GET /v1/instances/{instance}", (*Server).instanceView},
		{"instance_update", "PUT /v1/instances/{instance}", (*Server).instanceUpdate},
		{"instance_delete", "DELETE /v1/instances/{instance}", (*Server).instanceDelete},
		{"instance_start", "POST /v1/instances/{instance}/start", (*Server).instanceStart},
		{"instance_stop", "POST /v1/instances/{instance}/stop", (*Server).instanceStop},
		{"instance_reboot", "POST /v1/instances/{instance}/reboot", (*Server).instanceReboot},
		{"instance_disk_list", "GET /v1/instances/{instance}/disks", (*Server).instanceDiskList},
		{"instance_disk_attach", "POST /v1/instances/{instance}/disks/attach", (*Server).instanceDiskAttach},
		{"instance_disk_detach", "POST /v1/instances/{instance}/disks/detach", (*Server).instanceDiskDetach},
		{"instance_external_ip_list", "GET /v1/instances/{instance}/external-ips", (*Server).instanceIPList},
		{"instance_ephemeral_ip_attach", "POST " + ephemeralPath, (*Server).ephemeralAttach},
		{"instance_ephemeral_ip_detach", "DELETE " + ephemeralPath, (*Server).ephemeralDetach},
		{"instance_ssh_public_key_list", "GET /v1/instances/{instance}/ssh-public-keys", (*Server).instanceKeyList},
		{"instance_anti_affinity_group_list", "GET /v1/instances/{instance}/anti-affinity-groups", (*Server).instanceGroupList},
		{"instance_multicast_group_list", "GET /v1/instances/{instance}/multicast-groups", (*Server).instanceMulticast},
		{"instance_external_subnet_list", "GET /v1/instances/{instance}/external-subnets", (*Server).instanceExternalSubnets},
	}
}

const (
	groupPath  = "/v1/anti-affinity-groups/{anti_affinity_group}"
	memberPath = groupPath + "/members/instance/{instance}"

	floatingPath  = "/v1/floating-ips/{floating_ip}"
	ephemeralPath = "/v1/instances/{instance}/external-ips/ephemeral"
)

// unserved are operations of the API that the simulator does not have, on paths
// of which it has others.
func unserved() []string {
	return []string{
		"POST /v1/internet-gateways", "DELETE /v1/internet-gateways/{gateway}",
		"POST /v1/vpc-routers", "PUT /v1/vpc-routers/{router}", "DELETE /v1/vpc-routers/{router}",
		"POST /v1/vpc-router-routes", "PUT /v1/vpc-router-routes/{route}", "DELETE /v1/vpc-router-routes/{route}",
		"PUT /v1/system/silos/{silo}/quotas", "PUT /v1/policy", "PUT /v1/projects/{project}/policy",
	}
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{} // by path

	for _, r := range apiRoutes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		methods[path] = append(methods[path], method)
		mux.HandleFunc(r.pattern, s.serve(r.op, r.work))
	}

	for _, pattern := range unserved() {
		method, path, _ := strings.Cut(pattern, " ")
		methods[path] = append(methods[path], method)
		mux.HandleFunc(pattern, s.serve(opNotServed, (*Server).notServed))
	}

	for path, allowed := range methods {
		wrong := s.serve(opWrongMethod, wrongMethod(allowed))
		mux.HandleFunc(path, wrong)
		mux.HandleFunc("HEAD "+path, wrong) // a GET does not stand for it
	}

	mux.HandleFunc("/", s.serve(opNotServed, (*Server).notServed))
	s.control(mux)

	return mux
}

func (s *Server) notServed(c *call) (answer, error) {
	return answer{}, notServed(c.r.Method, c.r.URL.Path)
}

func wrongMethod(allowed []string) operation {
	slices.Sort(allowed)

	return func(*Server, *call) (answer, error) {
		return answer{}, &apiError{status: http.StatusMethodNotAllowed, message: "Method Not Allowed", allow: allowed}
	}
}
