package rack

import (
	"net/http"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// What other published clients do, and the rack has to serve.

// An ID in a body stands beside the project of the query: only selectors of
// path and query refuse the two together.
func TestHabitIDInABodyBesideTheProject(t *testing.T) {
	r := newRig(t)
	f := r.floatingIP("f")
	d := r.disk("d", gib, blank(0))
	g := r.group("g", oxide.AffinityPolicyAllow)

	i := r.instance("i", func(b *oxide.InstanceCreate) {
		b.ExternalIps = []oxide.ExternalIpCreate{{Value: &oxide.ExternalIpCreateFloating{FloatingIp: oxide.NameOrId(f.Id)}}}
		b.AntiAffinityGroups = []oxide.NameOrId{oxide.NameOrId(g.Id)}
	})
	must(r.client.SnapshotCreate(t.Context(), oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: "s", Disk: oxide.NameOrId(d.Id)}}))(t)
	must(r.client.InstanceDiskAttach(t.Context(), oxide.InstanceDiskAttachParams{Project: demo, Instance: "i", Body: &oxide.DiskPath{Disk: oxide.NameOrId(d.Id)}}))(t)

	if got := must(r.client.FloatingIpView(t.Context(), oxide.FloatingIpViewParams{FloatingIp: oxide.NameOrId(f.Id)}))(t); got.InstanceId != i.Id {
		t.Errorf("address is %+v", got)
	}
}

// Members, addresses and interfaces are changed by ID, without the project.
func TestHabitIDsWithoutAProject(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	i, g := r.instance("i"), r.group("g", oxide.AffinityPolicyAllow)
	id, group := oxide.NameOrId(i.Id), oxide.NameOrId(g.Id)

	must(r.client.AntiAffinityGroupMemberInstanceAdd(ctx, oxide.AntiAffinityGroupMemberInstanceAddParams{AntiAffinityGroup: group, Instance: id}))(t)
	must(0, r.client.AntiAffinityGroupMemberInstanceDelete(ctx, oxide.AntiAffinityGroupMemberInstanceDeleteParams{AntiAffinityGroup: group, Instance: id}))(t)
	must(r.client.InstanceEphemeralIpAttach(ctx, oxide.InstanceEphemeralIpAttachParams{Instance: id, Body: &oxide.EphemeralIpCreate{}}))(t)

	must(r.createSubnet("default", "second", "10.0.0.0/24"))(t)
	must(r.addNIC(i.Id, nicIn("second", "")))(t)

	for path, body := range map[string]string{
		"/v1/anti-affinity-groups/" + g.Id + "/members/instance/" + i.Id + "?project=demo": "",
		"/v1/instances/" + i.Id + "/external-ips/ephemeral?project=demo":                   "{}",
	} {
		if status, e, _ := r.raw("POST", path, body); status != 400 || e.ErrorCode != "InvalidRequest" || !contains(e.Message, "as an ID") {
			t.Errorf("%s: %d %+v", path, status, e)
		}
	}
}

// The keys of an instance are read at every refresh, by its ID.
func TestHabitKeysOfAnInstance(t *testing.T) {
	r := newRig(t)
	must(0, r.AddSSHKey("provider", "k", "ssh-ed25519 AAAA"))(t)
	i := r.instance("i", func(b *oxide.InstanceCreate) { b.SshPublicKeys = nil })

	for range 3 {
		keys := must(r.client.InstanceSshPublicKeyList(t.Context(), oxide.InstanceSshPublicKeyListParams{Instance: oxide.NameOrId(i.Id)}))(t)
		if len(keys.Items) != 1 || keys.Items[0].Name != "k" {
			t.Errorf("keys are %+v", keys.Items)
		}
	}
}

// Attaching answers 202, as does detaching a floating address; detaching an
// ephemeral one answers 204.
func TestHabitStatusesOfAddresses(t *testing.T) {
	r := newRig(t)
	i, f := r.instance("i"), r.floatingIP("f")
	onto := `{"kind":"instance","parent":"` + i.Id + `"}`

	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/floating-ips/" + f.Id + "/attach", onto, 202},
		{"POST", "/v1/floating-ips/" + f.Id + "/attach", onto, 202},
		{"POST", "/v1/floating-ips/" + f.Id + "/detach", "", 202},
		{"POST", "/v1/instances/" + i.Id + "/external-ips/ephemeral", "{}", 202},
		{"DELETE", "/v1/instances/" + i.Id + "/external-ips/ephemeral", "", 204},
		{"DELETE", "/v1/floating-ips/" + f.Id, "", 204},
	} {
		if status, e, _ := r.raw(tt.method, tt.path, tt.body); status != tt.status {
			t.Errorf("%s %s: %d %+v", tt.method, tt.path, status, e)
		}
	}
}

// A snapshot names its disk by ID, a late interface has a MAC address, and a
// disk has a path by its name.
func TestHabitFieldsThatAreRead(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Projects = []string{"demo", "fresh"} })
	d := r.disk("d", gib, blank(0))

	s := must(r.client.SnapshotCreate(t.Context(), oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: "s", Disk: "d"}}))(t)
	if s.DiskId != d.Id || d.DevicePath != "/mnt/d" {
		t.Errorf("snapshot is %+v, disk %+v", s, d)
	}

	i := r.instance("i", withNICs(nicIn("default", "")))
	must(r.createSubnet("default", "second", "10.0.0.0/24"))(t)

	late := must(r.addNIC(i.Id, nicIn("second", "")))(t)
	if first := r.nics(i.Id)[0]; len(late.Mac) != 17 || late.Mac == first.Mac {
		t.Errorf("interfaces are %+v and %+v", first, late)
	}

	router := must(r.client.VpcRouterView(t.Context(), oxide.VpcRouterViewParams{Project: "fresh", Vpc: "default", Router: "system"}))(t)
	if router.Kind != oxide.VpcRouterKindSystem {
		t.Errorf("router of a new project is %+v", router)
	}
}

// A list can be asked for backwards, and for more than there may be.
func TestHabitListsBackwardsAndLong(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"a", "c", "b"} {
		r.floatingIP(name)
	}

	page := must(r.client.FloatingIpList(t.Context(), oxide.FloatingIpListParams{
		Project: demo, SortBy: oxide.NameOrIdSortModeNameDescending, Limit: oxide.NewPointer(1_000_000_000),
	}))(t)
	if len(page.Items) != 3 || page.Items[0].Name != "c" || page.Items[2].Name != "a" {
		t.Errorf("addresses are %+v", page.Items)
	}
}

// A client of a newer version is refused on every call, known or not.
func TestHabitNewerClientIsRefusedEverywhere(t *testing.T) {
	r := newRig(t)

	for _, route := range append(apiRoutes(), route{pattern: "GET /v1/unheard-of"}) {
		method, path, _ := cutRoute(route.pattern)

		status, e, _ := r.raw(method, path, "{}", "Api-Version", "2026099900.0.0")
		if status != 400 || e.ErrorCode != "" || !contains(e.Message, "does not support this API version: 2026099900.0.0") {
			t.Errorf("%s: %d %+v", route.pattern, status, e)
		}
	}
}

func cutRoute(pattern string) (method, path string, ok bool) {
	return strings.Cut(strings.NewReplacer("{", "", "}", "").Replace(pattern), " ")
}

// Empty segments of a path count for nothing, with any method.
func TestEmptySegmentsArePassedOver(t *testing.T) {
	r := newRig(t)
	d := r.disk("d", gib, blank(0))

	for _, path := range []string{"//v1/disks/" + d.Id, "/v1//disks/" + d.Id + "/", "/v1/disks//d//?project=demo"} {
		if status, _, body, err := r.get(path); status != http.StatusOK || !strings.Contains(body, d.Id) {
			t.Errorf("%s: %d %s %v", path, status, body, err)
		}
	}

	if status, e, _ := r.raw(http.MethodDelete, "//v1/disks/"+d.Id+"/", ""); status != http.StatusNoContent {
		t.Errorf("delete: %d %s", status, e.Message)
	}

	if status, e, _ := r.raw(http.MethodDelete, "/v1/disks/", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("delete of nothing: %d %s", status, e.Message)
	}
}
