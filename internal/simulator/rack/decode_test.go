package rack

import (
	"net/url"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// What the rack's deserializer refuses is 400 without an error code, and
// nothing has happened; what it lets pass passes here too.
func TestBodiesAreReadStrictly(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Latencies = &Latencies{} })

	disk := func(fields ...string) string {
		return `{"name":"d","description":"","size":1073741824,` +
			`"disk_backend":{"type":"distributed","disk_source":{"type":"blank","block_size":512}}` + strings.Join(fields, "") + `}`
	}
	with := func(old, replaced string) string { return strings.Replace(disk(), old, replaced, 1) }

	for _, tt := range []struct {
		what, body string
		part       string // "": accepted
	}{
		{"plain", disk(), ""},
		{"unknown key", disk(`,"colour":"red"`), ""},
		{"unknown key twice", disk(`,"colour":"red","colour":1`), ""},
		{"spaces around", "  " + disk() + "\n", ""},
		{"escaped surrogate pair", with(`"description":""`, `"description":"\ud83d\ude00"`), ""},
		{"duplicate key", disk(`,"name":"e"`), "duplicate field `name`"},
		{"duplicate key further in", with(`"block_size":512`, `"block_size":512,"block_size":512`), "duplicate field `block_size`"},
		{"duplicate tag", with(`"type":"blank"`, `"type":"blank","type":"blank"`), "duplicate field `type`"},
		{"key in capitals", with(`"name"`, `"Name"`), "missing field `name`"},
		{"missing key", with(`"description":"",`, ``), "missing field `description`"},
		{"null for a required key", with(`"name":"d"`, `"name":null`), "invalid type: null"},
		{"number as a string", with(`1073741824`, `"1073741824"`), "size: invalid"},
		{"fraction", with(`1073741824`, `1073741824.0`), "size: invalid"},
		{"exponent", with(`1073741824`, `1e10`), "size: invalid"},
		{"negative", with(`1073741824`, `-1`), "size: invalid"},
		{"beyond a byte count", with(`1073741824`, `9223372036854775808`), "size: invalid"},
		{"string as a number", with(`"name":"d"`, `"name":7`), "name: invalid type: number"},
		{"wrong enum", with(`"blank"`, `"empty"`), "unknown variant `empty`"},
		{"wrong block size", with(`512`, `1024`), "invalid block size: 1024"},
		{"name in capitals", with(`"d"`, `"D"`), "lowercase"},
		{"object as a string", with(`{"type":"blank","block_size":512}`, `"blank"`), "expected struct"},
		{"name like an ID", with(`"d"`, `"abcdef0123456789abcdef0123456789"`), "UUID"},
		{"name with a hyphen at its end", with(`"d"`, `"d-"`), "end with"},
		{"name with an underscore", with(`"d"`, `"d_"`), "invalid character"},
		{"name with a digit at its head", with(`"d"`, `"0d"`), "lowercase"},
		{"null for a union", with(`{"type":"blank","block_size":512}`, `null`), "disk_source: invalid type: null"},
		{"block size in words", with(`512`, `"512"`), "block_size: invalid"},
		{"trailing text", disk() + "x", "expected value"},
		{"two objects", disk() + disk(), "expected value"},
		{"array", "[" + disk() + "]", "invalid type: sequence"},
		{"nothing", "", "EOF while parsing"},
		{"null", "null", "invalid type: null"},
		{"no UTF-8", with(`"description":""`, "\"description\":\"\xff\""), "unicode"},
		{"lone surrogate", with(`"description":""`, `"description":"\ud83d"`), "surrogate"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			status, e, _ := r.raw("POST", "/v1/disks?project=demo", tt.body)
			if tt.part == "" {
				if status != 201 {
					t.Fatalf("%d %+v", status, e)
				}

				status, e, _ = r.raw("DELETE", "/v1/disks/d?project=demo", "")
			} else if !strings.Contains(e.Message, "unable to parse JSON body: ") || !strings.Contains(e.Message, tt.part) {
				t.Errorf("%d %+v", status, e)
			}

			if want := map[bool]int{true: 204, false: 400}[tt.part == ""]; status != want || e.ErrorCode != "" {
				t.Errorf("%d %+v", status, e)
			}

			if n := len(r.Summary().Disks); n != 0 {
				t.Errorf("%d kinds of disks are left", n)
			}
		})
	}
}

func TestQueriesAreReadStrictly(t *testing.T) {
	r := newRig(t)

	for query, part := range map[string]string{
		"project=demo":              "",
		"project=demo&colour=red":   "",
		"project=demo&project=demo": "duplicate field `project`",
		"project=":                  "at least one character",
		"project=Demo":              "lowercase",
		"project=demo&limit=-1":     "nonzero u32",
		"project=demo&sort_by=":     "unknown variant",
		"project=demo&x=%zz":        "query string",
		"":                          "missing field `project`",
	} {
		status, e, _ := r.raw("GET", "/v1/disks?"+query, "")
		if (part == "") != (status == 200) || !strings.Contains(e.Message, part) || e.ErrorCode != "" {
			t.Errorf("%s: %d %+v", query, status, e)
		}
	}

	status, e, _ := r.raw("POST", "/v1/projects", `{"name":"p","description":""}`, "Content-Type", "text/plain")
	if status != 400 || e.ErrorCode != "" || !strings.Contains(e.Message, "expected content type") {
		t.Errorf("%d %+v", status, e)
	}

	first, err := r.client.ProjectList(t.Context(), oxide.ProjectListParams{SortBy: oxide.NameOrIdSortModeIdAscending})
	token := must(first, err)(t).NextPage

	for query, status := range map[string]int{
		"": 200, "&sort_by=id_ascending": 200, "&limit=7": 200, "&sort_by=name_ascending": 400,
	} {
		if got, e, _ := r.raw("GET", "/v1/projects?page_token="+url.QueryEscape(token)+query, ""); got != status {
			t.Errorf("a later page with %q: %d %+v", query, got, e)
		}
	}
}
