package rack

import (
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func withPeople(c *Config) {
	c.Tokens = []Token{
		{Value: DefaultToken, User: "ada", Groups: []string{"ops", "dev"}},
		{Value: "soon", User: "ada", Expires: time.Now().Add(time.Hour)},
		{Value: "past", User: "ada", Expires: time.Now().Add(-time.Hour)},
		{Value: "other", User: "ben", SiloRole: SiloNone, Groups: []string{"dev"}},
		{Value: "fleet", User: "cid", FleetViewer: true},
	}
}

// A user sees its own tokens that are still good, and can end them.
func TestAccessTokens(t *testing.T) {
	r := newRig(t, withPeople)
	ctx := t.Context()
	own := must(r.client.CurrentUserAccessTokenListAllPages(ctx, oxide.CurrentUserAccessTokenListParams{}))(t)

	var expiring *oxide.DeviceAccessToken

	for n := range own {
		if own[n].TimeExpires != nil {
			expiring = &own[n]
		}
	}

	if len(own) != 2 || expiring == nil || time.Until(*expiring.TimeExpires) > time.Hour {
		t.Fatalf("tokens are %+v", own)
	}

	end := func(c *oxide.Client, id string) error {
		return c.CurrentUserAccessTokenDelete(ctx, oxide.CurrentUserAccessTokenDeleteParams{TokenId: id})
	}

	wantError(t, end(r.as("other"), expiring.Id), 404, "ObjectNotFound", "device-access-token with id")
	must(0, end(r.client, expiring.Id))(t)
	wantError(t, end(r.client, expiring.Id), 404, "ObjectNotFound", "device-access-token with id")

	_, err := r.as("soon").CurrentUserView(ctx)
	wantError(t, err, 401, "Unauthorized", "")

	rest := must(r.client.CurrentUserAccessTokenListAllPages(ctx, oxide.CurrentUserAccessTokenListParams{}))(t)
	if len(rest) != 1 {
		t.Fatalf("tokens are %+v", rest)
	}

	// A role changes without the token becoming another.
	r.SetToken(Token{Value: DefaultToken, User: "ada", SiloRole: RoleViewer})

	if again := must(r.client.CurrentUserAccessTokenListAllPages(ctx, oxide.CurrentUserAccessTokenListParams{}))(t); again[0].Id != rest[0].Id {
		t.Errorf("token is %+v, was %+v", again[0], rest[0])
	}

	must(0, end(r.client, rest[0].Id))(t) // the branch it sits on

	_, err = r.client.CurrentUserView(ctx)
	wantError(t, err, 401, "Unauthorized", "")
}

// A token that expires stops working at that time.
func TestTokensExpire(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Tokens = []Token{{Value: DefaultToken}, {Value: "brief", Expires: time.Now().Add(50 * time.Millisecond)}}
	})
	brief := r.as("brief")

	eventually(t, "401", func() bool {
		_, err := brief.CurrentUserView(t.Context())
		if err == nil {
			return false
		}

		wantError(t, err, 401, "Unauthorized", "")

		return true
	})
}

func TestUsersAndGroups(t *testing.T) {
	r := newRig(t, withPeople)
	ctx := t.Context()
	ben := r.as("other") // without any role

	users := must(ben.UserListAllPages(ctx, oxide.UserListParams{}))(t)
	if len(users) != 3 {
		t.Errorf("users are %+v", users)
	}

	mine := must(ben.CurrentUserGroupsAllPages(ctx, oxide.CurrentUserGroupsParams{}))(t)
	if len(mine) != 1 || mine[0].DisplayName != "dev" {
		t.Fatalf("ben's groups are %+v", mine)
	}

	if all := must(ben.GroupListAllPages(ctx, oxide.GroupListParams{}))(t); len(all) != 2 {
		t.Errorf("groups are %+v", all)
	}

	must(ben.GroupView(ctx, oxide.GroupViewParams{GroupId: mine[0].Id}))(t)

	members := must(ben.UserListAllPages(ctx, oxide.UserListParams{Group: mine[0].Id}))(t)
	if len(members) != 2 {
		t.Errorf("members are %+v", members)
	}

	me := must(ben.CurrentUserView(ctx))(t)
	if u := must(ben.UserView(ctx, oxide.UserViewParams{UserId: me.Id}))(t); u.DisplayName != "ben" || u.SiloId != me.SiloId {
		t.Errorf("ben is %+v", u)
	}

	_, err := ben.UserView(ctx, oxide.UserViewParams{UserId: mine[0].Id})
	wantError(t, err, 404, "ObjectNotFound", "silo-user with id")

	for query, part := range map[string]string{
		"users?sort_by=name_ascending": "sort_by", "users?group=dev": "UUID", "users/ben": "UUID", "me/access-tokens?sort_by=name_descending": "sort_by",
	} {
		if status, e, _ := r.raw("GET", "/v1/"+query, ""); status != 400 || e.ErrorCode != "" || !contains(e.Message, part) {
			t.Errorf("%s: %d %+v", query, status, e)
		}
	}
}

// The quota itself is the fleet's to see; what is used of it any user's.
func TestQuotasAreTheFleets(t *testing.T) {
	r := newRig(t, withPeople, func(c *Config) { c.Quota = Quota{CPUs: 8, Memory: 16 * gib, Storage: 100 * gib} })
	ctx := t.Context()
	fleet := r.as("fleet")

	if u := must(r.as("other").UtilizationView(ctx))(t); *u.Capacity.Cpus != 8 {
		t.Errorf("utilization is %+v", u)
	}

	_, err := r.client.SiloQuotasView(ctx, oxide.SiloQuotasViewParams{Silo: "default-silo"})
	wantError(t, err, 403, "Forbidden", "")

	_, err = r.client.SiloUtilizationView(ctx, oxide.SiloUtilizationViewParams{Silo: "default-silo"})
	wantError(t, err, 403, "Forbidden", "")

	q := must(fleet.SiloQuotasView(ctx, oxide.SiloQuotasViewParams{Silo: "default-silo"}))(t)
	if *q.Cpus != 8 || q.Memory != oxide.ByteCount(16*gib) || q.Storage != oxide.ByteCount(100*gib) {
		t.Errorf("quotas are %+v", q)
	}

	me := must(fleet.CurrentUserView(ctx))(t)
	if !*me.FleetViewer {
		t.Errorf("the fleet's viewer is %+v", me)
	}

	u := must(fleet.SiloUtilizationView(ctx, oxide.SiloUtilizationViewParams{Silo: oxide.NameOrId(me.SiloId)}))(t)
	if u.SiloName != "default-silo" || *u.Allocated.Cpus != 8 || *u.Provisioned.Cpus != 0 {
		t.Errorf("utilization is %+v", u)
	}

	_, err = fleet.SiloQuotasView(ctx, oxide.SiloQuotasViewParams{Silo: "elsewhere"})
	wantError(t, err, 404, "ObjectNotFound", `silo with name "elsewhere"`)
}
