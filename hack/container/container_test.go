package container_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const daemon = "/omni-infra-provider-oxide"

// build makes the archive of the image. Where buildah is missing a developer's
// test is skipped, and one of the checks for a change fails.
func build(t *testing.T) string {
	t.Helper()

	archive := filepath.Join(t.TempDir(), "image.tar")

	out, err := exec.CommandContext(t.Context(), "./build", archive, "amd64", "v1.2.3", "0123abc").CombinedOutput()

	var exit *exec.ExitError

	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 3 && os.Getenv("CI") == "":
		t.Skip(string(out))
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}

	return archive
}

type image struct {
	Config struct {
		User         string
		Env          []string
		Entrypoint   []string
		Cmd          []string
		Healthcheck  struct{ Test []string }
		ExposedPorts map[string]struct{}
		Labels       map[string]string
	} `json:"config"`
	Architecture, OS string
}

// unpack answers the image's configuration, and its root file system in dir.
func unpack(t *testing.T, archive, dir string) (image, map[string]*tar.Header) {
	t.Helper()

	var manifest []struct {
		Config string
		Layers []string
	}

	if err := json.Unmarshal(member(t, archive, "manifest.json"), &manifest); err != nil || len(manifest) != 1 {
		t.Fatal(err, manifest)
	}

	var i image
	if err := json.Unmarshal(member(t, archive, manifest[0].Config), &i); err != nil {
		t.Fatal(err)
	}

	files := map[string]*tar.Header{}

	for _, layer := range manifest[0].Layers {
		r := tar.NewReader(strings.NewReader(string(member(t, archive, layer))))

		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}

			if err != nil {
				t.Fatal(err)
			}

			to := filepath.Join(dir, h.Name)

			if h.FileInfo().IsDir() {
				if err := os.MkdirAll(to, 0o755); err != nil {
					t.Fatal(err)
				}

				continue
			}

			files["/"+strings.TrimPrefix(h.Name, "/")] = h

			content, err := io.ReadAll(r)
			if err == nil {
				err = os.WriteFile(to, content, fs.FileMode(h.Mode))
			}

			if err != nil {
				t.Fatal(err)
			}
		}
	}

	return i, files
}

func member(t *testing.T, archive, name string) []byte {
	t.Helper()

	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	r := tar.NewReader(file)

	for {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("looking for %s: %v", name, err)
		}

		if h.Name == name {
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}

			return content
		}
	}
}

// Invariant: the image holds the daemon and the certificates and nothing else,
// runs without privileges and writes nothing.
func TestTheImageIsTheDaemonAlone(t *testing.T) {
	t.Parallel()

	root := t.TempDir()
	i, files := unpack(t, build(t), root)

	names := []string{}
	for name := range files {
		names = append(names, name)
	}

	slices.Sort(names)

	if want := []string{"/etc/ssl/certs/ca-certificates.crt", daemon}; !slices.Equal(names, want) {
		t.Errorf("the image holds %v", names)
	}

	for name, h := range files {
		if h.Mode&0o222 != 0 || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s has mode %o and is %d's", name, h.Mode, h.Uid)
		}
	}

	if i.Config.User != "65532:65532" || !slices.Equal(i.Config.Entrypoint, []string{daemon}) || len(i.Config.Cmd) != 0 ||
		!slices.Contains(i.Config.Env, "HEALTH_ADDRESS=:8095") || i.Architecture != "amd64" || i.OS != "linux" ||
		!slices.Equal(i.Config.Healthcheck.Test, []string{"CMD", daemon, "healthcheck"}) ||
		i.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
		t.Errorf("%+v", i)
	}

	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("only root can run what is in the image")
		}

		t.Skip("only root can run what is in the image")
	}

	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"version"}, 0, "v1.2.3"},
		{[]string{"healthcheck"}, 1, "does not answer"},
		{nil, 2, "OMNI_ENDPOINT"},
	} {
		cmd := exec.CommandContext(t.Context(), daemon, c.args...)
		cmd.Dir, cmd.Env = "/", []string{"HEALTH_ADDRESS=127.0.0.1:1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		// The file is looked for before the root is changed.
		cmd.Path, cmd.Err = daemon, nil

		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%v: exit code %d, %v\n%s", c.args, code, err, out)
		}
	}
}

var (
	stage    = regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)(?: AS (\S+))?$`)
	copyFrom = regexp.MustCompile(`(?m)^COPY --from=(\S+) `)
	setting  = regexp.MustCompile(`internal/version\.(\w+)=`)
)

// Invariant: the stage that compiles, which needs a base image, makes what the
// other one takes: stages that exist, the same settings as the Makefile's, the Go
// of go.mod, and the same certificates.
func TestTheCompilingStageIsTheSame(t *testing.T) {
	t.Parallel()

	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}

		return string(text)
	}

	text := read("Dockerfile")

	var names []string

	stages := stage.FindAllStringSubmatch(text, -1)
	for _, s := range stages {
		if s[1] != "scratch" && !slices.Contains(names, s[1]) && !strings.HasPrefix(s[1], "golang:") {
			t.Errorf("%s is based on no stage before it", s[0])
		}

		names = append(names, s[2])
	}

	if last := stages[len(stages)-1]; last[1] != "runtime" {
		t.Errorf("the image is made from %s", last[1])
	}

	for _, c := range copyFrom.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, c[1]) {
			t.Errorf("%s: there is no such stage", c[0])
		}
	}

	settings := func(s string) (all []string) {
		for _, m := range setting.FindAllStringSubmatch(s, -1) {
			all = append(all, m[1])
		}

		return all
	}

	for _, name := range []string{"Makefile", "hack/container/build"} {
		if want, have := settings(read(name)), settings(text); !slices.Equal(want, have) || len(want) == 0 {
			t.Errorf("%s sets %v, the Dockerfile %v", name, want, have)
		}
	}

	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read("go.mod"))
	if version == nil || !strings.Contains(text, "golang:"+version[1]+" ") {
		t.Errorf("the Dockerfile does not use Go %v", version)
	}

	for _, line := range []string{"ca-certificates.crt /etc/ssl/certs/ca-certificates.crt", "/omni-infra-provider-oxide /omni-infra-provider-oxide"} {
		if n := strings.Count(text, line); n != 2 {
			t.Errorf("%d stages copy %s", n, line)
		}
	}
}
