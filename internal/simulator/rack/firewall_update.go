package rack

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxFirewallRules = 1024
	maxRuleParts     = 256 // targets, hosts, ports or protocols of a rule
)

var portRange = regexp.MustCompile(`^[0-9]{1,5}(-[0-9]{1,5})?$`)

// firewallUpdate replaces all rules of a VPC: those that stay are named again,
// and are new objects.
func (s *Server) firewallUpdate(c *call) (answer, error) {
	o := parseBody(c.body)
	rules := o.firewallRules()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	v, err := c.queryVPC(RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	named := map[string]bool{}

	for n := range rules {
		if err := fitsColumn(rules[n].description, maxDescription); err != nil {
			return answer{}, err
		}

		if named[rules[n].name] {
			return answer{}, invalidValue("rules", "Rule names must be unique")
		}

		named[rules[n].name] = true
		rules[n].meta = newMeta(s, v.id, rules[n].name, rules[n].description)
	}

	slices.SortFunc(rules, func(a, b firewallRule) int { return strings.Compare(a.name, b.name) })
	v.firewall = rules

	return ok(v.viewFirewall()), nil
}

func (o *object) firewallRules() []firewallRule {
	all := o.atMost("rules", maxFirewallRules, o.list("rules"))
	out := make([]firewallRule, 0, len(all))

	for n, raw := range all {
		r := parseObject(fmt.Sprintf("rules[%d]", n), raw)
		out = append(out, r.firewallRule())
		o.adopt(r)
	}

	return out
}

func (o *object) firewallRule() firewallRule {
	r := firewallRule{
		meta:     meta{name: o.name("name"), description: o.text("description")},
		status:   o.oneOf("status", "disabled", "enabled"),
		action:   o.oneOf("action", "allow", "deny"),
		priority: int(o.number("priority", 1<<16-1)), direction: o.oneOf("direction", "inbound", "outbound"),
	}

	if _, has := o.required("targets"); has {
		r.targets = o.hosts("targets", o.list("targets"))
	}

	f := o.child("filters")

	if raw, has := f.value("hosts"); has {
		r.filters.Hosts = f.hosts("hosts", f.listOf("hosts", raw))
	}

	if raw, has := f.value("ports"); has {
		for _, p := range f.atMost("ports", maxRuleParts, f.listOf("ports", raw)) {
			r.filters.Ports = append(r.filters.Ports, f.ports(p))
		}
	}

	if raw, has := f.value("protocols"); has {
		for _, p := range f.atMost("protocols", maxRuleParts, f.listOf("protocols", raw)) {
			r.filters.Protocols = append(r.filters.Protocols, f.protocol(p))
		}
	}

	o.adopt(f)

	return r
}

// atMost refuses an array of more items.
func (o *object) atMost(key string, limit int, items []json.RawMessage) []json.RawMessage {
	if len(items) > limit {
		o.fail(key, "invalid length %d, expected at most %d items", len(items), limit)

		return nil
	}

	return items
}

// hosts reads what a rule is about: a name of a kind, an address or a network.
func (o *object) hosts(key string, items []json.RawMessage) []tagged {
	out := []tagged{}

	for n, raw := range o.atMost(key, maxRuleParts, items) {
		h := parseObject(fmt.Sprintf("%s[%d]", joinPath(o.path, key), n), raw)
		kind := h.oneOf("type", "vpc", "subnet", "instance", "ip", "ip_net")

		var (
			value string
			err   error
		)

		switch kind {
		case "ip":
			value = h.text("value")
			_, err = netip.ParseAddr(value)
		case "ip_net":
			value = h.text("value")
			_, err = netip.ParsePrefix(value)
		default:
			value = h.name("value")
		}

		if h.err == nil && err != nil {
			h.fail("value", "invalid value %q", value)
		}

		o.adopt(h)
		out = append(out, tagged{kind, value})
	}

	return out
}

func (o *object) ports(raw json.RawMessage) string {
	s := o.textOf("ports", raw)
	first, last, isRange := strings.Cut(s, "-")

	if !isRange {
		last = first
	}

	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)

	if o.err == nil && (!portRange.MatchString(s) || err1 != nil || err2 != nil || from > to) {
		o.fail("ports", "invalid port range %q", s)
	}

	return s
}

type icmpFilter struct {
	Type uint64  `json:"icmp_type"`
	Code *string `json:"code"`
}

// protocol reads one protocol; those of ICMP say which messages, or null.
func (o *object) protocol(raw json.RawMessage) any {
	p := parseObject(joinPath(o.path, "protocols"), raw)
	kind := p.oneOf("type", "tcp", "udp", "icmp", "icmp6")

	defer o.adopt(p)

	if kind != "icmp" && kind != "icmp6" {
		return tagged{Type: kind}
	}

	if _, has := p.required("value"); !has {
		return nil
	}

	if _, has := p.value("value"); !has {
		return taggedOrNull{kind, nil}
	}

	f := p.child("value")
	out := taggedOrNull{kind, icmpFilter{f.number("icmp_type", 1<<8-1), f.optionalText("code")}}
	p.adopt(f)

	return out
}
