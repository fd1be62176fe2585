package omni

import (
	"context"
	"slices"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gate is the store as callers of the API see it: access rules, then
// validation, then faults.
type gate struct {
	store    state.State
	validate *validator
	faults   *faults

	// filters counts the goroutines that filter watches.
	filters sync.WaitGroup
}

var (
	_ state.CoreState  = (*gate)(nil)
	_ state.Teardowner = (*gate)(nil)
)

// scope is what a caller may do: under the providers' rules or not, and with
// one provider's label only if provider is set.
type scope struct {
	provider string
	rule     providerRule
	infra    bool
}

func (s scope) sees(res resource.Resource) bool {
	return s.provider == "" || label(res, omni.LabelInfraProviderID) == s.provider
}

var errNotYours = status.Error(codes.NotFound, "not found")

// enter decides whether the caller may do that with the type.
func (g *gate) enter(ctx context.Context, verb state.Verb, ns resource.Namespace, typ resource.Type) (scope, error) {
	who, err := caller(ctx)
	if err != nil {
		return scope{}, err
	}

	rule, governed := ruleFor(ns, typ)
	if !governed {
		return scope{}, checkType(who, verb, typ)
	}

	entered := scope{rule: rule, infra: true}

	if err := who.role.require(roleInfraProvider); err != nil {
		return scope{}, err
	}

	if who.role != roleInfraProvider {
		return entered, enterAsUser(who, verb, rule, typ)
	}

	_, registered, err := get[*infra.Provider](ctx, g.store, infra.NewProvider(who.provider).Metadata())
	if err != nil {
		return scope{}, err
	}

	if !registered {
		return scope{}, status.Errorf(codes.PermissionDenied, "infra provider with name %q is not registered in the system", who.provider)
	}

	labelled, err := providerScope(ns, typ, who.provider)
	if labelled {
		entered.provider = who.provider
	}

	return entered, err
}

// enterAsUser: users read what providers write, and change requests only. An
// administrator's key therefore can not act as a provider.
func enterAsUser(who identity, verb state.Verb, rule providerRule, typ resource.Type) error {
	switch {
	case !verb.Readonly() && typ != infra.ProviderType && typ != infra.MachineRequestType:
		return status.Errorf(codes.PermissionDenied, "users are not allowed to modify %q resources", typ)
	case !verb.Readonly() && who.role < roleOperator:
		return status.Errorf(codes.PermissionDenied, "only operators and admins are allowed to modify %q resources", typ)
	case rule.adminOnly && who.role != roleAdmin:
		return status.Errorf(codes.PermissionDenied, "only admins are allowed to read %q resources", typ)
	default:
		return nil
	}
}

// Get implements state.CoreState.
func (g *gate) Get(ctx context.Context, ptr resource.Pointer, opts ...state.GetOption) (resource.Resource, error) {
	entered, err := g.enter(ctx, state.Get, ptr.Namespace(), ptr.Type())
	if err != nil {
		return nil, err
	}

	res, err := g.store.Get(ctx, ptr, opts...)
	if err != nil {
		return nil, err
	}

	if !entered.sees(res) {
		return nil, errNotYours
	}

	return res, nil
}

// List implements state.CoreState.
func (g *gate) List(ctx context.Context, kind resource.Kind, opts ...state.ListOption) (resource.List, error) {
	entered, err := g.enter(ctx, state.List, kind.Namespace(), kind.Type())
	if err != nil {
		return resource.List{}, err
	}

	list, err := g.store.List(ctx, kind, opts...)
	if err != nil {
		return resource.List{}, err
	}

	list.Items = slices.DeleteFunc(list.Items, func(res resource.Resource) bool { return !entered.sees(res) })

	return list, nil
}

// Create implements state.CoreState.
func (g *gate) Create(ctx context.Context, res resource.Resource, opts ...state.CreateOption) error {
	md := res.Metadata()

	entered, err := g.enter(ctx, state.Create, md.Namespace(), md.Type())
	if err != nil {
		return err
	}

	if entered.provider != "" {
		if entered.rule.readOnly {
			return status.Errorf(codes.PermissionDenied, "infra providers are not allowed to create %q resources", md.Type())
		}

		if entered.rule.ownID && md.ID() != entered.provider {
			return status.Errorf(codes.InvalidArgument, "resource ID must match the infra provider ID %q", entered.provider)
		}

		md.Labels().Set(omni.LabelInfraProviderID, entered.provider)
	}

	if err := g.validate.create(ctx, res); err != nil {
		return err
	}

	return g.faults.around(verbCreate, md, func() error { return g.store.Create(ctx, res, opts...) })
}

// Update implements state.CoreState.
func (g *gate) Update(ctx context.Context, res resource.Resource, opts ...state.UpdateOption) error {
	md := res.Metadata()

	entered, err := g.enter(ctx, state.Update, md.Namespace(), md.Type())
	if err != nil {
		return err
	}

	old, err := g.store.Get(ctx, md)
	if err != nil {
		return err
	}

	if entered.provider != "" {
		if entered.rule.readOnly && !sameButFinalizers(old, res) {
			return status.Errorf(codes.PermissionDenied,
				"infra providers are not allowed to update %q resources other than setting finalizers", md.Type())
		}

		if !entered.sees(old) {
			return errNotYours
		}

		md.Labels().Set(omni.LabelInfraProviderID, entered.provider)
	}

	if err := g.validate.update(ctx, old, res); err != nil {
		return err
	}

	return g.faults.around(verbUpdate, md, func() error { return g.store.Update(ctx, res, opts...) })
}

// sameButFinalizers compares all that a provider may not change in a resource
// that it only reads.
func sameButFinalizers(a, b resource.Resource) bool {
	left, right := a.Metadata().Copy(), b.Metadata().Copy()

	for _, md := range []*resource.Metadata{&left, &right} {
		md.SetVersion(resource.VersionUndefined)
		md.Finalizers().Set(resource.Finalizers{})
	}

	if !left.Equal(right) {
		return false
	}

	spec, ok := a.Spec().(interface{ Equal(any) bool })

	return ok && spec.Equal(b.Spec())
}

// Destroy implements state.CoreState.
func (g *gate) Destroy(ctx context.Context, ptr resource.Pointer, opts ...state.DestroyOption) error {
	entered, err := g.enter(ctx, state.Destroy, ptr.Namespace(), ptr.Type())
	if err != nil {
		return err
	}

	res, err := g.store.Get(ctx, ptr)
	if err != nil {
		return err
	}

	if entered.provider != "" {
		if entered.rule.readOnly {
			return status.Errorf(codes.PermissionDenied, "infra providers are not allowed to destroy %q resources", ptr.Type())
		}

		if !entered.sees(res) {
			return errNotYours
		}
	}

	if err := g.validate.destroy(ctx, res); err != nil {
		return err
	}

	return g.faults.around(verbDestroy, res.Metadata(), func() error { return g.store.Destroy(ctx, ptr, opts...) })
}

// Teardown implements state.Teardowner. Under the providers' rules it is an
// update like any other; elsewhere it needs the right to destroy.
func (g *gate) Teardown(ctx context.Context, ptr resource.Pointer, opts ...state.TeardownOption) (bool, error) {
	if _, governed := ruleFor(ptr.Namespace(), ptr.Type()); governed {
		res, err := g.Get(ctx, ptr)
		if err != nil {
			return false, err
		}

		if err := g.validate.destroy(ctx, res); err != nil {
			return false, err
		}

		return state.WrapCore(coreOnly{g}).Teardown(ctx, ptr, opts...)
	}

	if _, err := g.enter(ctx, state.Destroy, ptr.Namespace(), ptr.Type()); err != nil {
		return false, err
	}

	res, err := g.store.Get(ctx, ptr)
	if err != nil {
		return false, err
	}

	if err := g.validate.destroy(ctx, res); err != nil {
		return false, err
	}

	var ready bool

	err = g.faults.around(verbTeardown, res.Metadata(), func() error {
		ready, err = g.store.Teardown(ctx, ptr, opts...)

		return err
	})

	return ready, err
}

// coreOnly hides all but the core of a state, so that WrapCore composes the
// rest of it.
type coreOnly struct{ state.CoreState }
