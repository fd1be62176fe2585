package rack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/conform"
)

func TestPreflightCallsOfAFreshRack(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()

	if p := must(r.client.Ping(ctx))(t); p.Status != oxide.PingStatusOk {
		t.Errorf("ping says %q", p.Status)
	}

	me := must(r.client.CurrentUserView(ctx))(t)
	if me.SiloName != "default-silo" || me.DisplayName != "provider" || *me.FleetViewer {
		t.Errorf("current user is %+v", me)
	}

	u := must(r.client.UtilizationView(ctx))(t)
	if u.Provisioned.Storage != 0 || u.Capacity.Storage == 0 {
		t.Errorf("utilization is %+v", u)
	}

	must(r.client.ProjectView(ctx, oxide.ProjectViewParams{Project: demo}))(t)

	vpc := must(r.client.VpcView(ctx, oxide.VpcViewParams{Project: demo, Vpc: "default"}))(t)
	sub := must(r.client.VpcSubnetView(ctx, oxide.VpcSubnetViewParams{Project: demo, Vpc: "default", Subnet: "default"}))(t)

	if sub.VpcId != vpc.Id || fmt.Sprint(sub.Ipv4Block) != "172.30.0.0/22" {
		t.Errorf("default subnet is %+v", sub)
	}

	pools := must(r.client.IpPoolListAllPages(ctx, oxide.IpPoolListParams{}))(t)
	if len(pools) != 1 || !*pools[0].IsDefault || pools[0].IpVersion != oxide.IpVersionV4 {
		t.Errorf("pools are %+v", pools)
	}
}

func TestVersionGate(t *testing.T) {
	r := newRig(t)

	for _, tt := range []struct {
		version string
		status  int
		message string
	}{
		{"", 200, ""},
		{APIVersion, 200, ""},
		{"2026060801.0.0", 400, "server does not support this API version: 2026060801.0.0"},
		{"2026060800", 400, "bad value"},
		{"x.y.z", 400, "bad value"},
	} {
		status, e, h := r.raw("GET", "/v1/ping", "", "Api-Version", tt.version, "Authorization", "")
		if status != tt.status || !strings.Contains(e.Message, tt.message) || e.ErrorCode != "" {
			t.Errorf("version %q: %d %+v", tt.version, status, e)
		}

		if e.RequestID != "" && e.RequestID != h.Get("X-Request-Id") {
			t.Errorf("version %q: request IDs differ", tt.version)
		}
	}
}

func TestCredentials(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Tokens = []Token{{Value: DefaultToken}, {Value: "old", Expires: time.Now().Add(-time.Second)}, {Value: "new", Expires: time.Now().Add(time.Hour)}}
	})

	for _, tt := range []struct {
		header string
		status int
		code   string
	}{
		{"", 401, "Unauthorized"},
		{"Bearer nobody", 401, "Unauthorized"},
		{"Bearer old", 401, "Unauthorized"},
		{"Bearer new", 200, ""},
		{"Basic abc", 400, ""},
		{"Bearer ", 400, ""},
	} {
		status, e, _ := r.raw("GET", "/v1/me", "", "Authorization", tt.header)
		if status != tt.status || e.ErrorCode != tt.code {
			t.Errorf("%q: %d %+v", tt.header, status, e)
		}
	}

	r.RevokeToken(DefaultToken)

	_, err := r.client.CurrentUserView(t.Context())
	wantError(t, err, 401, "Unauthorized", "credentials")
}

// Invariant: what a caller may not read it is told does not exist; what it may
// read but not do is forbidden.
func TestRoles(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Projects = []string{"demo", "other"}
		c.Tokens = []Token{
			{Value: DefaultToken, SiloRole: RoleCollaborator},
			{Value: "viewer", SiloRole: RoleViewer},
			{Value: "limited", SiloRole: RoleLimitedCollaborator},
			{Value: "project", SiloRole: SiloNone, ProjectRoles: map[string]Role{"demo": RoleLimitedCollaborator}},
			{Value: "nothing", SiloRole: SiloNone},
		}
	})
	ctx := t.Context()

	do := map[string]func(c *oxide.Client) error{
		"view": func(c *oxide.Client) error {
			_, err := c.ProjectView(ctx, oxide.ProjectViewParams{Project: demo})

			return err
		},
		"view other": func(c *oxide.Client) error {
			_, err := c.ProjectView(ctx, oxide.ProjectViewParams{Project: "other"})

			return err
		},
		"projects": func(c *oxide.Client) error {
			_, err := c.ProjectList(ctx, oxide.ProjectListParams{})

			return err
		},
		"silo images": func(c *oxide.Client) error {
			_, err := c.ImageList(ctx, oxide.ImageListParams{})

			return err
		},
		"vpc delete": func(c *oxide.Client) error {
			return c.VpcSubnetDelete(ctx, oxide.VpcSubnetDeleteParams{Project: "demo", Vpc: "default", Subnet: "default"})
		},
	}

	for _, tt := range []struct {
		token, what string
		status      int
	}{
		{"viewer", "view", 200}, {"limited", "view", 200}, {"project", "view", 200}, {"nothing", "view", 404},
		{"viewer", "view other", 200}, {"project", "view other", 404},
		{"viewer", "projects", 200}, {"project", "projects", 403}, {"nothing", "projects", 403},
		{"viewer", "silo images", 200}, {"project", "silo images", 403},
		{"viewer", "vpc delete", 403}, {"limited", "vpc delete", 403}, {"nothing", "vpc delete", 404}, {DefaultToken, "vpc delete", 200},
	} {
		t.Run(tt.token+" "+tt.what, func(t *testing.T) {
			err := do[tt.what](r.as(tt.token))

			switch tt.status {
			case 200:
				if err != nil {
					t.Error(short(err))
				}
			case 403:
				wantError(t, err, 403, "Forbidden", "")
			case 404:
				wantError(t, err, 404, "ObjectNotFound", "not found: project with name")
			}
		})
	}

	for token, status := range map[string]int{"viewer": 403, "limited": 200, "project": 200, "nothing": 404} {
		_, err := r.as(token).DiskCreate(ctx, oxide.DiskCreateParams{Project: demo, Body: &oxide.DiskCreate{
			Name: oxide.Name("disk-of-" + token), Size: oxide.ByteCount(gib), DiskBackend: blank(gib),
		}})

		switch status {
		case 200:
			must(0, err)(t)
		case 403:
			wantError(t, err, 403, "Forbidden", "")
		case 404:
			wantError(t, err, 404, "ObjectNotFound", "project")
		}
	}

	_, err := r.as("limited").ProjectCreate(ctx, oxide.ProjectCreateParams{Body: &oxide.ProjectCreate{Name: "mine"}})
	wantError(t, err, 403, "Forbidden", "")
}

func TestProjectsComeAndGo(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()

	p := must(r.client.ProjectCreate(ctx, oxide.ProjectCreateParams{Body: &oxide.ProjectCreate{Name: "new", Description: "d"}}))(t)

	_, err := r.client.ProjectCreate(ctx, oxide.ProjectCreateParams{Body: &oxide.ProjectCreate{Name: "new"}})
	wantError(t, err, 400, "ObjectAlreadyExists", `already exists: project "new"`)

	id := oxide.NameOrId(p.Id)

	err = r.client.ProjectDelete(ctx, oxide.ProjectDeleteParams{Project: id})
	wantError(t, err, 400, "InvalidRequest", "contains a vpc")

	err = r.client.VpcDelete(ctx, oxide.VpcDeleteParams{Project: id, Vpc: "default"})
	wantError(t, err, 400, "InvalidRequest", "Subnets")

	must(0, r.client.VpcSubnetDelete(ctx, oxide.VpcSubnetDeleteParams{Project: id, Vpc: "default", Subnet: "default"}))(t)
	must(0, r.client.VpcDelete(ctx, oxide.VpcDeleteParams{Project: id, Vpc: "default"}))(t)
	must(0, r.client.ProjectDelete(ctx, oxide.ProjectDeleteParams{Project: id}))(t)

	_, err = r.client.ProjectView(ctx, oxide.ProjectViewParams{Project: id})
	wantError(t, err, 404, "ObjectNotFound", `not found: project with id "`+p.Id+`"`)
}

func TestUnservedCallsSaySoAndAreCounted(t *testing.T) {
	r := newRig(t)

	status, e, _ := r.raw("GET", "/v1/system/hardware/sleds", "")
	if status != http.StatusNotImplemented || !strings.Contains(e.Message, "does not serve GET /v1/system/hardware/sleds") || e.RequestID == "" {
		t.Errorf("%d %+v", status, e)
	}

	if n := r.Summary().NotServed; n != 1 {
		t.Errorf("%d calls counted", n)
	}
}

// Invariant: an operation of the API that is not served says so, to whoever
// asks, and one that the API does not have is refused as a real rack does.
func TestEachOperationIsServedOrSaysThatItIsNot(t *testing.T) {
	path := os.Getenv(conform.DocumentVariable)
	if path == "" {
		t.Skip("no API document")
	}

	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}

	must(0, json.Unmarshal(must(os.ReadFile(path))(t), &document))(t)

	segment := regexp.MustCompile(`\{[^}]*\}`)
	served := map[string]bool{}
	known := map[string]bool{}

	for _, r := range apiRoutes() {
		pattern := segment.ReplaceAllString(r.pattern, "x")
		served[pattern] = true
		_, path, _ := strings.Cut(pattern, " ")
		known[path] = true
	}

	r := newRig(t)

	for path, operations := range document.Paths {
		path = segment.ReplaceAllString(path, "x")

		for _, method := range []string{"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} {
			_, has := operations[strings.ToLower(method)]
			if has && served[method+" "+path] {
				continue
			}

			want, message := http.StatusNotImplemented, "does not serve "+method+" "+path
			if !has && known[path] {
				want, message = http.StatusMethodNotAllowed, "Method Not Allowed"
			}

			status, e, h := r.raw(method, path, "a=b", "Authorization", "", "Content-Type", "application/x-www-form-urlencoded")
			if status != want || !strings.Contains(e.Message, message) || e.ErrorCode != "" || e.RequestID != h.Get("X-Request-Id") {
				t.Errorf("%s %s: %d %+v", method, path, status, e)
			}
		}
	}
}

// A wrong method is told which are right; HEAD is none of them.
func TestAWrongMethodIsRefused(t *testing.T) {
	r := newRig(t)

	for method, path := range map[string]string{"PATCH": "/v1/disks", "PUT": "/v1/disks?project=demo"} {
		status, e, h := r.raw(method, path, "")
		if status != http.StatusMethodNotAllowed || e.Message != "Method Not Allowed" || e.ErrorCode != "" || !slices.Equal(h.Values("Allow"), []string{"GET", "POST"}) {
			t.Errorf("%s %s: %d %+v, allowed %q", method, path, status, e, h.Values("Allow"))
		}
	}

	req := must(http.NewRequestWithContext(t.Context(), http.MethodHead, r.url+"/v1/ping", http.NoBody))(t)
	resp := must(r.http.Do(req))(t)
	must(0, resp.Body.Close())(t)

	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %s", resp.Status)
	}

	if s := r.Summary(); s.Calls["wrong_method"] != 3 || s.NotServed != 0 {
		t.Errorf("counted: %+v", s.Calls)
	}

	if status, e, _ := r.raw("PATCH", "/v1/disks", "", "Api-Version", "2099010100.0.0"); status != http.StatusBadRequest {
		t.Errorf("of a newer API: %d %+v", status, e)
	}
}

// A list goes on behind its marker whatever is added or removed meanwhile, and
// ends with an empty page.
func TestListsArePaged(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()

	for i := range 5 {
		r.disk(fmt.Sprintf("d%d", 2*i), gib, blank(gib))
	}

	for _, tt := range []struct {
		sort oxide.NameOrIdSortMode
		want string
	}{
		{"", "[d0 d2] [d4 d6] [d8]"},
		{oxide.NameOrIdSortModeNameDescending, "[d8 d6] [d4 d2] [d0]"},
	} {
		var pages []string

		p := oxide.DiskListParams{Project: demo, Limit: oxide.NewPointer(2), SortBy: tt.sort}

		for {
			page := must(r.client.DiskList(ctx, p))(t)
			if len(page.Items) == 0 {
				break
			}

			var names []string
			for _, d := range page.Items {
				names = append(names, string(d.Name))
			}

			pages = append(pages, fmt.Sprint(names))
			p.PageToken = page.NextPage
		}

		if got := strings.Join(pages, " "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.sort, got, tt.want)
		}
	}

	first := must(r.client.DiskList(ctx, oxide.DiskListParams{Project: demo, Limit: oxide.NewPointer(2)}))(t)
	r.disk("d1", gib, blank(gib))
	r.disk("d3", gib, blank(gib))

	next := must(r.client.DiskList(ctx, oxide.DiskListParams{Project: demo, Limit: oxide.NewPointer(2), PageToken: first.NextPage}))(t)
	if next.Items[0].Name != "d3" || next.Items[1].Name != "d4" {
		t.Errorf("after inserts the second page has %s and %s", next.Items[0].Name, next.Items[1].Name)
	}

	for query, status := range map[string]int{
		"project=demo&limit=0": 400, "project=demo&limit=x": 400, "project=demo&limit=1000000000": 200,
		"project=demo&sort_by=size": 400, "page_token=xx": 400, "": 400,
	} {
		got, e, _ := r.raw("GET", "/v1/disks?"+query, "")
		if got != status || e.ErrorCode != "" {
			t.Errorf("%s: %d %+v", query, got, e)
		}
	}
}

func TestDefaultPageIs100(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Latencies = &Latencies{} })

	for i := range 101 {
		r.disk(fmt.Sprintf("d%d", i), gib, blank(gib))
	}

	page := must(r.client.DiskList(t.Context(), oxide.DiskListParams{Project: demo}))(t)
	if len(page.Items) != 100 {
		t.Errorf("%d items", len(page.Items))
	}

	all := must(r.client.DiskListAllPages(t.Context(), oxide.DiskListParams{Project: demo, SortBy: oxide.NameOrIdSortModeIdAscending}))(t)
	if len(all) != 101 {
		t.Errorf("%d items in all", len(all))
	}
}
