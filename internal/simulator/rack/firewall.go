package rack

// firewallRule is a rule of a VPC, which is its scope.
type firewallRule struct {
	meta
	status, direction, action string
	priority                  int
	targets                   []tagged
	filters                   firewallFilters
}

type firewallFilters struct {
	Hosts     []tagged `json:"hosts"`
	Ports     []string `json:"ports"`
	Protocols []any    `json:"protocols"`
}

type firewallRuleView struct {
	identity
	VPCID     string          `json:"vpc_id"`
	Status    string          `json:"status"`
	Direction string          `json:"direction"`
	Targets   []tagged        `json:"targets"`
	Filters   firewallFilters `json:"filters"`
	Action    string          `json:"action"`
	Priority  int             `json:"priority"`
}

// taggedOrNull is like tagged, but its value is there also when it is null.
type taggedOrNull struct {
	Type  string `json:"type"`
	Value any    `json:"value"`
}

// defaultFirewall lets in what comes from within the VPC, SSH, and ICMP.
func defaultFirewall(v *vpc) []firewallRule {
	whole := []tagged{{"vpc", v.name}}
	rule := func(name, description string, filters firewallFilters) firewallRule {
		return firewallRule{
			meta: newMeta(v.rack, v.id, name, description), status: "enabled", direction: "inbound", action: "allow",
			priority: 65534, targets: whole, filters: filters,
		}
	}

	return []firewallRule{
		rule("allow-icmp", "ICMP from anywhere is let in", firewallFilters{Protocols: []any{taggedOrNull{"icmp", nil}}}),
		rule("allow-internal-inbound", "what comes from within the VPC is let in", firewallFilters{Hosts: whole}),
		rule("allow-ssh", "TCP port 22 is open to anywhere", firewallFilters{Ports: []string{"22"}, Protocols: []any{tagged{Type: "tcp"}}}),
	}
}

// firewallRules answers all rules of a VPC: they have no pages.
func (s *Server) firewallRules(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	v, err := c.queryVPC(RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return ok(v.viewFirewall()), nil
}

func (v *vpc) viewFirewall() any {
	out := make([]firewallRuleView, 0, len(v.firewall))
	for _, r := range v.firewall {
		out = append(out, firewallRuleView{
			r.identity(), r.scope, r.status, r.direction, r.targets, r.filters, r.action, r.priority,
		})
	}

	return map[string][]firewallRuleView{"rules": out}
}
