package omni_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/controller/generic"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/auth"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	"github.com/siderolabs/omni/client/pkg/omni/resources/system"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// record is a resource of no type that Omni knows.
type (
	record     = typed.Resource[recordSpec, recordExtension]
	recordSpec = protobuf.ResourceSpec[specs.MachineRequestStatusSpec, *specs.MachineRequestStatusSpec]

	recordExtension struct{}
)

func (recordExtension) ResourceDefinition() meta.ResourceDefinitionSpec {
	return meta.ResourceDefinitionSpec{Type: infra.ResourceType("Lease", "oxide"), DefaultNamespace: infra.ResourceNamespace("oxide")}
}

func newRecord(ns, typ, id string) *record {
	return typed.NewResource[recordSpec, recordExtension](resource.NewMetadata(ns, typ, id, resource.VersionUndefined),
		protobuf.NewResourceSpec(&specs.MachineRequestStatusSpec{}))
}

func newRequest(id, provider string) *infrares.MachineRequest {
	request := infrares.NewMachineRequest(id)
	request.TypedSpec().Value.TalosVersion = "v1.13.5"
	request.Metadata().Labels().Set(omni.LabelInfraProviderID, provider)

	return request
}

// What a provider may read: its own in the shared namespaces, and what it needs
// of the account. Everything else is refused.
func TestProviderReads(t *testing.T) {
	server := newServer(t)
	st := providerState(t, server, "oxide")
	admin := server.AdminState()

	check(t, admin.Create(t.Context(), newRequest("ours", "oxide")))
	check(t, admin.Create(t.Context(), newRequest("theirs", "other")))

	for _, test := range []struct {
		kind  generic.ResourceWithRD
		code  codes.Code
		count int
	}{
		{omni.NewMachine(""), codes.OK, 0},
		{siderolink.NewAPIConfig(), codes.OK, 1},
		{siderolink.NewConnectionParams(""), codes.OK, 1}, //nolint:staticcheck // older SDKs read it
		{omni.NewFeaturesConfig(""), codes.OK, 1},
		{system.NewSysVersion(""), codes.OK, 1},
		{omni.NewTalosVersion(""), codes.OK, 6},
		{infrares.NewMachineRequest(""), codes.OK, 1},
		{infrares.NewMachineRequestStatus(""), codes.OK, 0},
		{infrares.NewMachineRegistration(""), codes.OK, 0},
		{infrares.NewConfigPatchRequest(""), codes.OK, 0},
		{infrares.NewProviderStatus(""), codes.OK, 0},
		{infrares.NewProviderHealthStatus(""), codes.OK, 0},
		{siderolink.NewProviderJoinConfig(""), codes.OK, 1},
		{omni.NewMachineStatus(""), codes.PermissionDenied, 0},
		{omni.NewCluster(""), codes.PermissionDenied, 0},
		{siderolink.NewLink("", nil), codes.PermissionDenied, 0},
		{omni.NewMachineClass(""), codes.PermissionDenied, 0},
		{omni.NewMachineSet(""), codes.PermissionDenied, 0},
		{omni.NewMachineRequestSet(""), codes.PermissionDenied, 0},
		{omni.NewConfigPatch(""), codes.PermissionDenied, 0},
		{omni.NewClusterMachineStatus(""), codes.PermissionDenied, 0},
		{auth.NewPublicKey(""), codes.PermissionDenied, 0},
		{auth.NewUser(""), codes.PermissionDenied, 0},
	} {
		got, err := st.List(t.Context(), test.kind.Metadata())

		if status.Code(err) != test.code {
			t.Errorf("list of %s: %v, want %s", test.kind.Metadata().Type(), err, test.code)
		} else if err == nil && len(got.Items) != test.count {
			t.Errorf("list of %s: %d, want %d", test.kind.Metadata().Type(), len(got.Items), test.count)
		}
	}

	definitions, err := st.List(t.Context(), resource.NewMetadata(meta.NamespaceName, meta.ResourceDefinitionType, "", resource.VersionUndefined))
	check(t, err)

	joinConfigs := false
	for _, definition := range definitions.Items {
		joinConfigs = joinConfigs || definition.Metadata().ID() == strings.ToLower(siderolink.ProviderJoinConfigType)
	}

	if !joinConfigs {
		t.Error("ProviderJoinConfigs are not defined, so the SDK would use old join tokens")
	}

	if _, err := st.Get(t.Context(), infrares.NewMachineRequest("theirs").Metadata()); !state.IsNotFoundError(err) {
		t.Errorf("another provider's request: %v, want not found", err)
	}
}

// What a provider may write, and how a refusal reads.
func TestProviderWrites(t *testing.T) {
	server := newServer(t)
	st := providerState(t, server, "oxide")
	admin := server.AdminState()

	check(t, admin.Create(t.Context(), newRequest("ours", "oxide")))
	check(t, admin.Create(t.Context(), newRequest("theirs", "other")))

	theirs := infrares.NewMachineRequestStatus("theirs")
	theirs.Metadata().Labels().Set(omni.LabelInfraProviderID, "other")
	check(t, admin.Create(t.Context(), theirs))

	ours := infrares.NewMachineRequest("ours").Metadata()

	for _, test := range []struct {
		name  string
		write func(context.Context) error
		text  string
	}{
		{"finalizer on an own request", func(ctx context.Context) error { return st.AddFinalizer(ctx, ours, "oxide.Mine") }, ""},
		{"its removal", func(ctx context.Context) error { return st.RemoveFinalizer(ctx, ours, "oxide.Mine") }, ""},
		{"spec of a request", func(ctx context.Context) error {
			return updateRequest(ctx, st, func(r *infrares.MachineRequest) { r.TypedSpec().Value.ProviderData = "a: b" })
		}, `infra providers are not allowed to update "MachineRequests.omni.sidero.dev" resources other than setting finalizers`},
		{"label of a request", func(ctx context.Context) error {
			return updateRequest(ctx, st, func(r *infrares.MachineRequest) { r.Metadata().Labels().Set("a", "b") })
		}, "other than setting finalizers"},
		{"annotation of a request", func(ctx context.Context) error {
			return updateRequest(ctx, st, func(r *infrares.MachineRequest) { r.Metadata().Annotations().Set("a", "b") })
		}, "other than setting finalizers"},
		{"teardown of a request", func(ctx context.Context) error {
			_, err := st.Teardown(ctx, ours)

			return err
		}, "other than setting finalizers"},
		{"create of a request", func(ctx context.Context) error { return st.Create(ctx, newRequest("new", "oxide")) },
			"infra providers are not allowed to create"},
		{"destroy of a request", func(ctx context.Context) error { return st.Destroy(ctx, ours) }, "infra providers are not allowed to destroy"},
		{"own status", func(ctx context.Context) error { return st.Create(ctx, infrares.NewMachineRequestStatus("ours")) }, ""},
		{"another's status", func(ctx context.Context) error { return st.Destroy(ctx, theirs.Metadata()) }, "not found"},
		{"patch request", func(ctx context.Context) error { return st.Create(ctx, infrares.NewConfigPatchRequest("p")) }, ""},
		{"own provider status", func(ctx context.Context) error { return st.Create(ctx, infrares.NewProviderStatus("oxide")) }, ""},
		{"another's provider status", func(ctx context.Context) error { return st.Create(ctx, infrares.NewProviderStatus("gone")) },
			`resource ID must match the infra provider ID "oxide"`},
		{"own health", func(ctx context.Context) error { return st.Create(ctx, infrares.NewProviderHealthStatus("oxide")) }, ""},
		{"own namespace", func(ctx context.Context) error {
			return st.Create(ctx, newRecord("infra-provider:oxide", "Lease.oxide.infraprovider.sidero.dev", "holder"))
		}, ""},
		{"own namespace, foreign type", func(ctx context.Context) error {
			return st.Create(ctx, newRecord("infra-provider:oxide", "Lease.other.infraprovider.sidero.dev", "holder"))
		}, `must have a type suffix ".oxide.infraprovider.sidero.dev"`},
		{"foreign namespace", func(ctx context.Context) error {
			return st.Create(ctx, newRecord("infra-provider:other", "Lease.oxide.infraprovider.sidero.dev", "holder"))
		}, "namespace not allowed"},
		{"machine class", func(ctx context.Context) error { return st.Create(ctx, omni.NewMachineClass("c")) }, "insufficient role"},
		{"machine", func(ctx context.Context) error { return st.Create(ctx, omni.NewMachine("m")) }, "only read access is permitted"},
	} {
		err := test.write(t.Context())

		switch {
		case test.text == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.text != "" && (err == nil || !strings.Contains(err.Error(), test.text)):
			t.Errorf("%s: %v, want %q", test.name, err, test.text)
		}
	}

	own, err := safe.StateGetByID[*infrares.MachineRequestStatus](t.Context(), st, "ours")
	check(t, err)

	if got, _ := own.Metadata().Labels().Get(omni.LabelInfraProviderID); got != "oxide" {
		t.Errorf("the label was not forced on a new status: %q", got)
	}
}

func updateRequest(ctx context.Context, st state.State, change func(*infrares.MachineRequest)) error {
	request, err := safe.StateGetByID[*infrares.MachineRequest](ctx, st, "ours")
	if err != nil {
		return err
	}

	change(request)

	return st.Update(ctx, request)
}

// A request's spec is immutable to administrators too.
func TestRequestSpecIsImmutable(t *testing.T) {
	server := newServer(t)
	admin := adminState(t, server)

	check(t, admin.Create(t.Context(), newRequest("ours", "oxide")))

	err := updateRequest(t.Context(), admin, func(r *infrares.MachineRequest) { r.TypedSpec().Value.ProviderData = "a: b" })
	if err == nil || !strings.Contains(err.Error(), "machine request spec is immutable") {
		t.Errorf("changing a spec: %v", err)
	}

	bad := newRequest("bad", "oxide")
	bad.TypedSpec().Value.TalosVersion = "latest"

	if err := admin.Create(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "invalid talos version format") {
		t.Errorf("a request for Talos latest: %v", err)
	}
}

// A3: a denied write reads as an owner conflict, and its code is lost; a lost
// race is a conflict that is neither an owner's nor a phase's.
func TestDeniedPermissionLooksLikeAConflict(t *testing.T) {
	server := newServer(t)
	st := providerState(t, server, "oxide")

	err := st.Create(t.Context(), newRecord("infra-provider:other", "Lease.oxide.infraprovider.sidero.dev", "holder"))
	if !state.IsConflictError(err) || !state.IsOwnerConflictError(err) || status.Code(err) != codes.Unknown {
		t.Errorf("denied create: %v (conflict %v, owner %v, code %s)", err, state.IsConflictError(err), state.IsOwnerConflictError(err), status.Code(err))
	}

	lease := newRecord("infra-provider:oxide", "Lease.oxide.infraprovider.sidero.dev", "holder")
	check(t, st.Create(t.Context(), lease))

	stale := lease.DeepCopy()
	lease.TypedSpec().Value.Status = "renewed"
	check(t, st.Update(t.Context(), lease))

	err = st.Update(t.Context(), stale)
	if !state.IsConflictError(err) || state.IsOwnerConflictError(err) || state.IsPhaseConflictError(err) {
		t.Errorf("lost race: %v", err)
	}
}

// A5: versions start at 1 again after a delete, so an update of the deleted
// resource hits the one made after it.
func TestVersionsRestartAfterDelete(t *testing.T) {
	server := newServer(t)
	st := providerState(t, server, "oxide")

	first := newRecord("infra-provider:oxide", "Lease.oxide.infraprovider.sidero.dev", "holder")
	check(t, st.Create(t.Context(), first))
	check(t, st.Destroy(t.Context(), first.Metadata()))
	check(t, st.Create(t.Context(), newRecord("infra-provider:oxide", "Lease.oxide.infraprovider.sidero.dev", "holder")))

	first.TypedSpec().Value.Status = "the dead one writes"
	if err := st.Update(t.Context(), first); err != nil {
		t.Errorf("an update with version 1 of the deleted one: %v, want it to succeed", err)
	}
}

// Resources of types that Omni does not know are kept as they are, and watched.
func TestUnknownTypesAreKept(t *testing.T) {
	server := newServer(t)
	st := providerState(t, server, "oxide")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	events := make(chan state.Event)
	lease := newRecord("infra-provider:oxide", "Lease.oxide.infraprovider.sidero.dev", "holder")
	lease.TypedSpec().Value.Status = "text"

	check(t, st.WatchKind(ctx, lease.Metadata(), events, state.WithBootstrapContents(true)))
	check(t, st.Create(ctx, lease))

	for _, want := range []state.EventType{state.Bootstrapped, state.Created} {
		select {
		case event := <-events:
			if event.Type != want {
				t.Errorf("event %s, want %s", event.Type, want)
			}
		case <-time.After(patience):
			t.Fatal("no event")
		}
	}

	got, err := st.Get(ctx, lease.Metadata())
	check(t, err)

	if _, ok := got.(*protobuf.Resource); !ok {
		t.Errorf("got %T, want it undecoded", got)
	}
}
