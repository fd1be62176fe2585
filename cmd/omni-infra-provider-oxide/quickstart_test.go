package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

const quickstart = "../../internal/docs/quickstart.md"

// follower follows the page as a reader with a shell does.
type follower struct {
	*place

	dir     string
	exports []string
	env     map[string]string
	// theirs are the commands of other programs, done through the simulators.
	theirs map[string]func()
	page   strings.Builder
}

// Invariant: who follows the quickstart sees what it prints, from nothing to five
// machines and back. OIPO_UPDATE=1 writes the outputs into the page.
func TestTheQuickstartIsTrue(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(quickstart)
	if err != nil {
		t.Fatal(err)
	}

	f := &follower{place: newPlace(t, site.Config{}), dir: t.TempDir()}
	f.env = f.place.env("oxide")
	key := f.env["OMNI_SERVICE_ACCOUNT_KEY"]

	for _, given := range []string{"OMNI_ENDPOINT", "OMNI_SERVICE_ACCOUNT_KEY", "PROVIDER_ID", "OXIDE_HOST", "OXIDE_TOKEN"} {
		delete(f.env, given)
	}

	const token = "oxide-token-quickstart"

	f.theirs = map[string]func(){
		// The simulated silo has this project from the beginning.
		`oxide project create --name talos --description "Talos machines"`: func() {},
		"oxide auth login --host https://silo.sys.rack.example.com": func() {
			f.Rack.SetToken(rack.Token{
				Value: token, User: "provider", SiloRole: rack.RoleViewer,
				ProjectRoles: map[string]rack.Role{"talos": rack.RoleLimitedCollaborator},
			})
		},
		"editor oxide.token":                                  func() { f.write("oxide.token", token) },
		"omnictl infraprovider create oxide":                  func() {},
		"editor omni.key":                                     func() { f.write("omni.key", key) },
		"omnictl apply -f class.yaml":                         f.apply,
		"omnictl cluster template sync --file cluster.yaml":   f.sync,
		"omnictl cluster template delete --file cluster.yaml": f.delete,
	}

	f.follow(string(text))

	if len(f.theirs) > 0 {
		t.Errorf("the page does not say %v", f.theirs)
	}

	if os.Getenv("OIPO_UPDATE") != "" {
		if err := os.WriteFile(quickstart, []byte(f.page.String()), 0o600); err != nil {
			t.Fatal(err)
		}

		return
	}

	if got, want := lasting(f.page.String()), lasting(string(text)); got != want {
		t.Errorf("the page lies; followed, it is\n%s", got)
	}
}

var (
	pageBlocks = regexp.MustCompile("(?s)```console\n(.*?)```\n")
	pageFiles  = regexp.MustCompile("(?s)`([a-z.]+)`:\n\n```yaml\n(.*?)```\n")
)

// follow writes the page's files, then does its blocks and writes the page anew with
// what they print.
func (f *follower) follow(text string) {
	for _, file := range pageFiles.FindAllStringSubmatch(text, -1) {
		f.write(file[1], file[2])
	}

	end := 0

	for _, at := range pageBlocks.FindAllStringSubmatchIndex(text, -1) {
		f.page.WriteString(text[end:at[2]])

		for line := range strings.Lines(text[at[2]:at[3]]) {
			if command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ "); ok {
				f.page.WriteString(line + f.do(command))
			}
		}

		end = at[3]
	}

	f.page.WriteString(text[end:])
}

func (f *follower) write(name, text string) {
	f.t.Helper()

	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *follower) read(name string) []byte {
	f.t.Helper()

	text, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.t.Fatal(err)
	}

	return text
}

// do does one line of the page and answers what it prints.
func (f *follower) do(command string) string {
	f.t.Helper()

	if theirs, ok := f.theirs[command]; ok {
		theirs()
		delete(f.theirs, command)

		return ""
	}

	for name := range strings.FieldsSeq("oxide omnictl editor") {
		if strings.HasPrefix(command, name+" ") {
			f.t.Fatalf("the page says %q, which is not followed", command)
		}
	}

	addresses := strings.NewReplacer("https://example.omni.siderolabs.io", f.Omni.Endpoint(), "https://silo.sys.rack.example.com", f.RackURL)
	script := "cd " + f.dir + "\n" + strings.Join(f.exports, "\n") + "\n" + addresses.Replace(command)

	if strings.HasPrefix(command, "export ") {
		f.exports = append(f.exports, addresses.Replace(command))
	}

	path := "PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH")

	if background, ok := strings.CutSuffix(script, " &"); ok {
		startBy(f.t, f.env, "bash", "-c", "export "+path+"\n"+strings.Replace(background, "\nomni-", "\nexec omni-", 1))
		f.waitRegistered("oxide")

		return ""
	}

	cmd := exec.CommandContext(f.t.Context(), "bash", "-c", script)
	cmd.Env = []string{path, "HOME=" + f.dir}

	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", command, err, out)
	}

	return f.asOnThePage(string(out))
}

// asOnThePage is an output with the page's addresses, and without spaces at the end
// of lines.
func (f *follower) asOnThePage(out string) string {
	host := func(address string) string { return strings.SplitN(address, "://", 2)[1] }
	name, _ := os.Hostname()

	out = strings.NewReplacer(
		host(f.Omni.Endpoint()), "example.omni.siderolabs.io", host(f.RackURL), "silo.sys.rack.example.com",
		host(f.Factory.URL()), "factory.talos.dev", " "+name+" holds the lease", " provider-1 holds the lease",
	).Replace(out)

	return regexp.MustCompile(` +\n`).ReplaceAllString(out, "\n")
}

func (f *follower) apply() {
	if err := f.Operator.Apply(f.t.Context(), f.read("class.yaml")); err != nil {
		f.t.Fatal(err)
	}
}

// sync has Omni know what omnictl makes of a template: a cluster and two machine
// sets.
func (f *follower) sync() {
	ctx := f.t.Context()
	decoder := yaml.NewDecoder(strings.NewReader(string(f.read("cluster.yaml"))))

	var cluster, version string

	for {
		var document struct {
			Kind, Name   string
			Talos        struct{ Version string }
			MachineClass struct {
				Name string
				Size uint32
			} `yaml:"machineClass"`
		}

		if err := decoder.Decode(&document); err != nil {
			break
		}

		set := map[string]string{"ControlPlane": "control-planes", "Workers": "workers"}[document.Kind]
		if document.Kind == "Cluster" {
			cluster, version = document.Name, strings.TrimPrefix(document.Talos.Version, "v")

			continue
		}

		if err := f.Operator.Scale(ctx, cluster, cluster+"-"+set, document.MachineClass.Name, version, document.MachineClass.Size); err != nil {
			f.t.Fatal(err)
		}
	}

	// Omni has a machine a moment before the daemon has seen that it runs.
	f.eventually("the machines to join and to be provisioned", func() bool { return joinedAll(f.requests(), 5) })
}

func joinedAll(requests []operator.Request, n int) bool {
	for _, r := range requests {
		if !r.Joined || r.Stage != "PROVISIONED" {
			return false
		}
	}

	return len(requests) == n
}

func (f *follower) delete() {
	for _, set := range []string{"first-control-planes", "first-workers"} {
		if err := f.teardown(f.t.Context(), omni.NewMachineSet(set).Metadata()); err != nil {
			f.t.Fatal(err)
		}
	}

	f.waitNothingLeft()
}

func (f *follower) teardown(ctx context.Context, set resource.Pointer) error {
	_, err := f.Operator.State().Teardown(ctx, set)

	return err
}

// lasting is a page without what differs between runs.
func lasting(text string) string {
	for _, r := range []struct{ from, to string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`, "UUID"},
		{`-[bcdfghjklmnpqrstvwxz2456789]{6}\b`, "-ID"},
		{`\b\d+(\.\d+)?(ms|s|m|h|d)\b`, "TIME"},
		{`\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\dZ?)?`, "DATE"},
		{`\b[0-9a-f]{8,64}\b`, "HEX"},
		{`[a-z2-7]{26}`, "OWNER"},
		{`in \d+ days`, "in N days"},
		{` +`, " "},
	} {
		text = regexp.MustCompile(r.from).ReplaceAllString(text, r.to)
	}

	return text
}
