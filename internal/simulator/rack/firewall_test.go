package rack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// An update replaces all rules by those it names.
func TestFirewallRulesAreReplaced(t *testing.T) {
	r := newRig(t)
	old := must(r.client.VpcFirewallRulesView(t.Context(), oxide.VpcFirewallRulesViewParams{Project: demo, Vpc: "default"}))(t).Rules

	var wanted []oxide.VpcFirewallRuleUpdate
	for _, f := range old[:2] {
		wanted = append(wanted, oxide.VpcFirewallRuleUpdate{
			Name: f.Name, Description: f.Description, Action: f.Action, Direction: f.Direction, Filters: f.Filters,
			Priority: f.Priority, Status: oxide.VpcFirewallRuleStatusDisabled, Targets: f.Targets,
		})
	}

	must(r.client.VpcFirewallRulesUpdate(t.Context(), oxide.VpcFirewallRulesUpdateParams{
		Project: demo, Vpc: "default", Body: &oxide.VpcFirewallRuleUpdateParams{Rules: wanted},
	}))(t)

	now := must(r.client.VpcFirewallRulesView(t.Context(), oxide.VpcFirewallRulesViewParams{Project: demo, Vpc: "default"}))(t).Rules
	if len(now) != 2 || now[0].Name != old[0].Name || now[0].Id == old[0].Id || now[0].Status != oxide.VpcFirewallRuleStatusDisabled || now[0].VpcId != old[0].VpcId {
		t.Errorf("rules are %+v", now)
	}
}

func TestFirewallRulesAreReadStrictly(t *testing.T) {
	r := newRig(t)

	const rule = `{"name":"r","description":"","status":"enabled","direction":"inbound","action":"allow","priority":7,` +
		`"targets":[{"type":"subnet","value":"default"}],"filters":{"hosts":[{"type":"ip_net","value":"10.0.0.0/8"},{"type":"ip","value":"fd00::1"}],` +
		`"ports":["22","6443-6444"],"protocols":[{"type":"tcp"},{"type":"icmp","value":null},{"type":"icmp6","value":{"icmp_type":3,"code":"1-2"}}]}}`

	many := func(n int) string {
		all := make([]string, 0, n)
		for k := range n {
			all = append(all, strings.Replace(rule, `"r"`, fmt.Sprintf(`"r%d"`, k), 1))
		}

		return strings.Join(all, ",")
	}
	ports := func(n int) string {
		return strings.Replace(rule, `"ports":["22"`, `"ports":["22"`+strings.Repeat(`,"22"`, n-2), 1)
	}

	for _, tt := range []struct {
		what, old, new, code, part string
	}{
		{"all kinds", "", "", "", ""},
		{"no filters", `"ports":["22","6443-6444"]`, `"ports":null`, "", ""},
		{"1024 rules", rule, many(1024), "", ""},
		{"1025 rules", rule, many(1025), "", "at most 1024"},
		{"256 ports", rule, ports(256), "", ""},
		{"257 ports", rule, ports(257), "", "at most 256"},
		{"priority 65535", `:7`, `:65535`, "", ""},
		{"priority 65536", `:7`, `:65536`, "", "priority: invalid"},
		{"names that repeat", rule, rule + "," + rule, "InvalidValue", "unique"},
		{"a range backwards", "6443-6444", "6444-6443", "", "invalid port range"},
		{"a port too high", "6443-6444", "65536", "", "invalid port range"},
		{"a protocol unknown", `"tcp"`, `"sctp"`, "", "unknown variant"},
		{"ICMP without a value", `"type":"icmp","value":null`, `"type":"icmp"`, "", "missing field `value`"},
		{"no targets", `"targets":[{"type":"subnet","value":"default"}],`, ``, "", "missing field `targets`"},
		{"a target in capitals", `"default"`, `"Default"`, "", "lowercase"},
		{"an address that is none", `fd00::1`, `fd00::x`, "", "invalid value"},
		{"a direction unknown", `inbound`, `across`, "", "unknown variant"},
	} {
		body := `{"rules":[` + strings.Replace(rule, tt.old, tt.new, 1) + `]}`

		status, e, _ := r.raw("PUT", "/v1/vpc-firewall-rules?project=demo&vpc=default", body)
		if (status == 200) != (tt.part == "") || e.ErrorCode != tt.code || !contains(e.Message, tt.part) || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %+v", tt.what, status, e)
		}
	}
}
