// Package kubernetes holds the manifests against the types of Kubernetes and what
// its restricted pods may be. It is a module of its own, so that Kubernetes is no
// part of the daemon.
package kubernetes

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// site is what an overlay makes.
type site struct {
	namespace  corev1.Namespace
	config     corev1.ConfigMap
	secret     corev1.Secret
	deployment appsv1.Deployment
	budget     policyv1.PodDisruptionBudget
	network    networkingv1.NetworkPolicy
}

// build makes the example with a key and a token, as a copy of it would have.
func build(t *testing.T) site {
	t.Helper()

	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}

	overlay := filepath.Join(dir, "overlays", "example")
	if err := os.Mkdir(filepath.Join(overlay, "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"omni-key", "oxide-token"} {
		if err := os.WriteFile(filepath.Join(overlay, "secrets", name), []byte("the "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		t.Fatal(err)
	}

	var s site

	into := map[string]any{
		"Namespace": &s.namespace, "ConfigMap": &s.config, "Secret": &s.secret, "Deployment": &s.deployment,
		"PodDisruptionBudget": &s.budget, "NetworkPolicy": &s.network,
	}

	for _, r := range made.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}

		object, ok := into[r.GetKind()]
		if !ok {
			t.Fatalf("nobody asked for a second or an unknown %s", r.GetKind())
		}

		delete(into, r.GetKind())

		// A field that Kubernetes does not know is a mistake.
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			t.Errorf("%s %s: %v", r.GetKind(), r.GetName(), err)
		}
	}

	for kind := range into {
		t.Errorf("there is no %s", kind)
	}

	return s
}

func pod(t *testing.T, s site) (corev1.PodSpec, corev1.Container) {
	t.Helper()

	spec := s.deployment.Spec.Template.Spec
	if len(spec.Containers) != 1 || len(spec.InitContainers) != 0 {
		t.Fatalf("%d containers", len(spec.Containers))
	}

	return spec, spec.Containers[0]
}

// Invariant: the pods are what the restricted pod security standard admits, and
// write nothing.
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()

	s := build(t)
	spec, c := pod(t, s)

	if s.namespace.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Error("the namespace admits anything")
	}

	p, security := spec.SecurityContext, c.SecurityContext

	for what, holds := range map[string]bool{
		"runAsNonRoot":             p != nil && p.RunAsNonRoot != nil && *p.RunAsNonRoot,
		"runAsUser":                p != nil && p.RunAsUser != nil && *p.RunAsUser == 65532,
		"seccompProfile":           p != nil && p.SeccompProfile != nil && p.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"allowPrivilegeEscalation": security != nil && security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation,
		"readOnlyRootFilesystem":   security != nil && security.ReadOnlyRootFilesystem != nil && *security.ReadOnlyRootFilesystem,
		"capabilities": security != nil && security.Capabilities != nil && len(security.Capabilities.Add) == 0 &&
			slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"no privileges":      security != nil && security.Privileged == nil,
		"no host namespaces": !spec.HostNetwork && !spec.HostPID && !spec.HostIPC,
		"no service account": spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken,
		"no host ports":      !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }),
		"secrets only":       len(spec.Volumes) == 1 && spec.Volumes[0].Secret != nil,
		"a memory limit":     !c.Resources.Limits.Memory().IsZero() && !c.Resources.Requests.Cpu().IsZero(),
	} {
		if !holds {
			t.Errorf("not so: %s", what)
		}
	}
}

// Invariant: one replica can always be taken away, and a rolling update hands the
// work over before the old pod goes.
func TestTwoReplicasAndOneMayGo(t *testing.T) {
	t.Parallel()

	s := build(t)
	spec, c := pod(t, s)
	update := s.deployment.Spec.Strategy.RollingUpdate

	if *s.deployment.Spec.Replicas != 2 || update.MaxUnavailable.IntValue() != 0 || s.budget.Spec.MinAvailable.IntValue() != 1 {
		t.Errorf("%d replicas, %s unavailable, budget %s", *s.deployment.Spec.Replicas, update.MaxUnavailable, s.budget.Spec.MinAvailable)
	}

	if *spec.TerminationGracePeriodSeconds <= 25 {
		t.Errorf("the daemon is killed after %d s", *spec.TerminationGracePeriodSeconds)
	}

	if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("%+v %+v", c.LivenessProbe, c.ReadinessProbe)
	}

	pods := labels.Set(s.deployment.Spec.Template.Labels)

	for what, selector := range map[string]map[string]string{
		"deployment": s.deployment.Spec.Selector.MatchLabels, "budget": s.budget.Spec.Selector.MatchLabels,
		"network policy": s.network.Spec.PodSelector.MatchLabels, "spread": spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		// Two silos in one namespace are two sites.
		if selector["app.kubernetes.io/instance"] != "example" || !labels.SelectorFromSet(selector).Matches(pods) {
			t.Errorf("the %s selects %v, the pods have %v", what, selector, pods)
		}
	}
}

// Invariant: each setting is one that the daemon reads, all that it must have are
// there, and secrets are files that exist.
func TestSettingsAreTheDaemons(t *testing.T) {
	t.Parallel()

	s := build(t)
	spec, c := pod(t, s)

	options, err := os.ReadFile("../../internal/docs/options.md")
	if err != nil {
		t.Fatal(err)
	}

	settings := map[string]string{}
	for name, value := range s.config.Data {
		settings[name] = value
	}

	for _, e := range c.Env {
		settings[e.Name] = e.Value
	}

	for name := range settings {
		if !strings.Contains(string(options), "`"+name+"`") {
			t.Errorf("the daemon reads no %s", name)
		}
	}

	for _, name := range []string{"OMNI_ENDPOINT", "OXIDE_HOST", "OMNI_SERVICE_ACCOUNT_KEY_FILE", "OXIDE_TOKEN_FILE"} {
		if settings[name] == "" {
			t.Errorf("%s is not set", name)
		}
	}

	if s.config.Name != c.EnvFrom[0].ConfigMapRef.Name || s.secret.Name != spec.Volumes[0].Secret.SecretName {
		t.Errorf("the pods use %s and %s, there are %s and %s", c.EnvFrom[0].ConfigMapRef.Name, spec.Volumes[0].Secret.SecretName, s.config.Name, s.secret.Name)
	}

	// A changed setting rolls the pods; a changed secret is read again by them.
	if hash := regexp.MustCompile(`-example-[a-z0-9]{10}$`); !hash.MatchString(s.config.Name) || hash.MatchString(s.secret.Name) {
		t.Errorf("names %s and %s", s.config.Name, s.secret.Name)
	}

	for _, name := range []string{"OMNI_SERVICE_ACCOUNT_KEY_FILE", "OXIDE_TOKEN_FILE"} {
		dir, file := filepath.Split(settings[name])
		if _, ok := s.secret.Data[file]; !ok || filepath.Clean(dir) != c.VolumeMounts[0].MountPath {
			t.Errorf("%s names %s, which is not mounted", name, settings[name])
		}
	}

	if _, port, _ := strings.Cut(settings["HEALTH_ADDRESS"], ":"); port != s.network.Spec.Ingress[0].Ports[0].Port.String() ||
		port != "8095" || c.Ports[0].ContainerPort != 8095 {
		t.Errorf("health is at port %s", port)
	}
}
