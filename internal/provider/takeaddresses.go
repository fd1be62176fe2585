package provider

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	// refusedFor is for how long nobody tries an address that the rack has refused
	// although it shows no holder.
	refusedFor = 2 * time.Minute
	// lookedFor is for how long a look at a machine's addresses holds while it
	// waits to be created.
	lookedFor = 30 * time.Second
	// exhaustedFor is how often it is looked whether an address was freed.
	exhaustedFor = 30 * time.Second
)

// share is an entry of a list: a floating address by its ID, or an address in a
// subnet.
type share struct{ subnet, is string }

// sharesOf are those that a plan has.
func sharesOf(plan *specs.Plan) []share {
	var all []share

	for _, n := range plan.GetNics() {
		for _, a := range []string{n.GetIpv4(), n.GetIpv6()} {
			if a != "" {
				all = append(all, share{n.GetSubnetId(), a})
			}
		}
	}

	for _, e := range plan.GetExternalIps() {
		if id := e.GetFloatingIpId(); id != "" {
			all = append(all, share{is: id})
		}
	}

	return all
}

// refusals remembers addresses that the rack has refused, and which machines'
// addresses were looked at. Losing it with the process costs calls only.
type refusals struct {
	mu      sync.Mutex
	until   map[share]time.Time
	lookeds map[string]looked
}

type looked struct {
	at time.Time
	// attempts is how many creates had been tried by then.
	attempts uint32
}

func (r *refusals) refuse(e share) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.until == nil {
		r.until = map[share]time.Time{}
	}

	r.until[e] = time.Now().Add(refusedFor)
}

func (r *refusals) refused(e share) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	until, is := r.until[e]
	if is && time.Now().After(until) {
		delete(r.until, e)
	}

	return time.Now().Before(until)
}

// fresh says whether a machine's addresses were looked at just now.
func (r *refusals) fresh(requestID string, attempts uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	l := r.lookeds[requestID]

	return l.attempts == attempts && time.Since(l.at) < lookedFor
}

func (r *refusals) look(requestID string, attempts uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.lookeds == nil {
		r.lookeds = map[string]looked{}
	}

	r.lookeds[requestID] = looked{time.Now(), attempts}
}

func (r *refusals) forget(requestID string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.lookeds, requestID)
}

// holders are the instances that have an entry in the rack.
type holders map[share]string

// lookAtAddresses reads from the rack who has which address of those that a plan
// and its class are about.
func (p *Provisioner) lookAtAddresses(ctx context.Context, plan *specs.Plan, class machineclass.Class) (holders, floatingIPs, error) {
	held := holders{}

	listed, err := p.listedAddresses(ctx, plan, class)
	if err != nil {
		return nil, nil, err
	}

	for _, f := range listed {
		if f.InstanceId != "" {
			held[share{is: f.Id}] = f.InstanceId
		}
	}

	for i, n := range plan.GetNics() {
		if len(class.NICs[i].Addresses) == 0 {
			continue
		}

		nics, err := p.Silo.ListSubnetNICs(ctx, n.GetSubnetId())
		if err != nil {
			return nil, nil, missing(err, "network_interfaces[%d].subnet_name: subnet %q is gone", i, n.GetSubnetName())
		}

		for j := range nics {
			for _, a := range addressesOf(nics[j]) {
				held[share{n.GetSubnetId(), a}] = nics[j].InstanceId
			}
		}
	}

	return held, listed, nil
}

// addressesOf are the private addresses of an interface.
func addressesOf(nic oxide.InstanceNetworkInterface) []string {
	var all []string

	if v, ok := nic.IpStack.AsV4(); ok {
		all = append(all, v.Value.Ip)
	}

	if v, ok := nic.IpStack.AsV6(); ok {
		all = append(all, v.Value.Ip)
	}

	if v, ok := nic.IpStack.AsDualStack(); ok {
		all = append(all, v.Value.V4.Ip, v.Value.V6.Ip)
	}

	for i := range all {
		if a, err := netip.ParseAddr(all[i]); err == nil {
			all[i] = a.String()
		}
	}

	return all
}

// addressTaker answers what takes an entry of each list in the class for the plan,
// and keeps those that it has as long as they are free: who has them in the rack is
// read here, before anybody waits for it.
func (p *Provisioner) addressTaker(ctx context.Context, plan *specs.Plan, class machineclass.Class) (func(others []*specs.Plan) error, error) {
	held, listed, err := p.lookAtAddresses(ctx, plan, class)
	if err != nil {
		return nil, err
	}

	return func(others []*specs.Plan) error {
		t := taking{plan: plan, held: held, refused: p.refusals.refused, planned: map[share]bool{}}

		for _, o := range others {
			for _, e := range sharesOf(o) {
				t.planned[e] = true
			}
		}

		return t.all(class, listed)
	}, nil
}

// taking is what decides which entry is taken.
type taking struct {
	plan    *specs.Plan
	held    holders
	planned map[share]bool // for other machines
	refused func(share) bool
}

func (t *taking) all(class machineclass.Class, listed floatingIPs) error {
	for i, n := range class.NICs {
		planned := t.plan.GetNics()[i]

		for _, version := range []struct {
			name  string
			plans *string
		}{{machineclass.IPv4, &planned.Ipv4}, {machineclass.IPv6, &planned.Ipv6}} {
			addresses := n.AddressesOf(version.name)
			if len(addresses) == 0 {
				continue
			}

			taken, err := t.one(share{planned.GetSubnetId(), *version.plans}, fixedShares(planned.GetSubnetId(), addresses))
			if err != nil {
				return exhausted(fmt.Sprintf("network_interfaces[%d].addresses", i), version.name+" addresses", err)
			}

			*version.plans = taken.is
		}
	}

	for i, e := range class.ExternalIPs {
		if !e.Listed() {
			continue
		}

		var entries []share
		for _, name := range e.FloatingIPs {
			if f := listed.named(name); f != nil {
				entries = append(entries, share{is: f.Id})
			}
		}

		planned := t.plan.GetExternalIps()[i]

		taken, err := t.one(share{is: planned.GetFloatingIpId()}, entries)
		if err != nil {
			return exhausted(fmt.Sprintf("external_ips[%d].floating_ips", i), "floating addresses", err)
		}

		f := listed.named(taken.is)
		planned.FloatingIpId, planned.Name, planned.IpVersion = f.Id, string(f.Name), versionOf(f.Ip)
	}

	return nil
}

func fixedShares(subnet string, addresses []netip.Addr) []share {
	all := make([]share, 0, len(addresses))
	for _, a := range addresses {
		all = append(all, share{subnet, a.String()})
	}

	return all
}

// noneFree is a list without a free entry.
type noneFree struct{ all, planned, held int }

// Error counts them.
func (n *noneFree) Error() string {
	return fmt.Sprintf("none of the %d is free: %d have other machines of this provider, %d somebody else", n.all, n.planned, n.held)
}

// exhausted is what a request says while its list has no free entry.
func exhausted(path, what string, err error) error {
	return &instance.Wait{Reason: fmt.Sprintf("%s (%s): %s", path, what, err), After: spread(exhaustedFor)}
}

// one takes the entry that the plan has, or the first free one.
func (t *taking) one(has share, entries []share) (share, error) {
	none := &noneFree{all: len(entries)}

	if slices.Contains(entries, has) && t.held[has] == "" && !t.refused(has) && !t.planned[has] {
		t.planned[has] = true

		return has, nil
	}

	for _, e := range entries {
		switch {
		case t.planned[e]:
			none.planned++
		case t.held[e] != "" || t.refused(e):
			none.held++
		default:
			// For the other lists of this machine too.
			t.planned[e] = true

			return e, nil
		}
	}

	return share{}, none
}

// keepAddresses makes sure, right before the instance is created, that the
// addresses which the plan has from lists are not somebody else's by now. Another
// one is put into the plan then, and stored before it is used.
func (p *Provisioner) keepAddresses(ctx context.Context, logger *zap.Logger, pctx Context) error {
	spec := pctx.State.TypedSpec().Value
	plan := spec.GetPlan()
	has := sharesOf(plan)
	attempt := spec.GetCreate()

	if len(has) == 0 || !p.Machines.CreateDue(spec) || p.refusals.fresh(plan.GetRequestId(), attempt.GetCount()) {
		return nil
	}

	class, err := p.classOf(ctx, plan)
	if err != nil {
		return err
	}

	held, listed, err := p.lookAtAddresses(ctx, plan, class)
	if err != nil {
		return err
	}

	lost, err := p.lostAddresses(ctx, spec, held, listed)
	if err != nil {
		return err
	}

	if len(lost) == 0 {
		p.refusals.look(plan.GetRequestId(), attempt.GetCount())

		return nil
	}

	// A call without an answer may still make the instance with what the plan has.
	if err := p.Machines.Settled(spec); err != nil {
		return err
	}

	next := proto.CloneOf(plan)

	take, err := p.addressTaker(ctx, next, class)
	if err != nil {
		return err
	}

	if err := p.allot(ctx, next, take); err != nil {
		return err
	}

	for _, e := range lost {
		logger.Info("an address of the list is somebody else's, taking another", zap.String("oxide.address", e.is), zap.String("oxide.instance.id", held[e]))
	}

	spec.Plan, spec.Create = next, nil

	return &instance.Wait{}
}

// lostAddresses are those of the plan that somebody else has in the rack, that are
// gone, or that the rack has just refused.
func (p *Provisioner) lostAddresses(ctx context.Context, spec *InstanceState, held holders, listed floatingIPs) ([]share, error) {
	var (
		lost    []share
		holder  string
		attempt = spec.GetCreate()
		plan    = spec.GetPlan()
	)

	for _, e := range sharesOf(plan) {
		switch {
		case held[e] != "":
			lost, holder = append(lost, e), held[e]
		case e.subnet == "" && listed.named(e.is) == nil:
			lost = append(lost, e)
		case attempt.GetFailed() && mentions(attempt.GetLastError(), nameOf(plan, e)):
			p.refusals.refuse(e)

			lost = append(lost, e)
		}
	}

	if holder == "" {
		return lost, nil
	}

	own, err := p.Silo.ViewInstanceByName(ctx, plan.GetProjectId(), plan.GetInstanceName())

	switch {
	case rack.ClassOf(err) == rack.ClassGone:
		return lost, nil
	case err != nil:
		return nil, err
	case own.Id == holder && p.Machines.Ours(own.Description, plan.GetRequestId()):
		// A lost call has made it; the next attempt adopts it.
		return nil, nil
	default:
		return lost, nil
	}
}

// nameOf is how the rack names an entry.
func nameOf(plan *specs.Plan, e share) string {
	for _, x := range plan.GetExternalIps() {
		if e.subnet == "" && x.GetFloatingIpId() == e.is {
			return x.GetName()
		}
	}

	return e.is
}

// mentions says whether a text has a name or an address in it as a whole word.
func mentions(text, name string) bool {
	words := strings.FieldsFunc(text, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		digit := r >= '0' && r <= '9'

		return !letter && !digit && r != '-' && r != '.' && r != ':'
	})

	return slices.ContainsFunc(words, func(w string) bool { return strings.Trim(w, ".:") == name })
}

// classOf is the class that a plan was made of. Only it knows the lists.
func (p *Provisioner) classOf(ctx context.Context, plan *specs.Plan) (machineclass.Class, error) {
	reading, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	request, err := safe.StateGetByID[*infra.MachineRequest](reading, p.State(), plan.GetRequestId())
	if err != nil {
		return machineclass.Class{}, &instance.Wait{Reason: "reading the machine request from Omni", After: 5 * time.Second, Cause: err}
	}

	class, err := machineclass.Parse(request.TypedSpec().Value.GetProviderData())
	if err != nil || requestHash(request.TypedSpec().Value) != plan.GetRequestHash() {
		return machineclass.Class{}, &instance.Mend{Reason: "the stored plan is that of another request: delete this request, Omni makes a new one", Cause: err}
	}

	return class, nil
}
