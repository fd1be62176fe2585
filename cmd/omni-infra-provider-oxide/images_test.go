package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lifetime"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

const testTalos = "1.13.5"

// bring runs one of the commands that bring an image.
func (p *place) bring(env map[string]string, schematic string, args ...string) (stdout, stderr string, code int) {
	return ask(p.t, env, "", append(append([]string{"images"}, args...),
		"--talos", "v"+testTalos, "--schematic", schematic, "--project", site.Project, "--log-level", "error")...)
}

// schematic registers one at the factory.
func (p *place) schematic(body string) string {
	p.t.Helper()

	id, err := p.Factory.Register([]byte(body))
	if err != nil {
		p.t.Fatal(err)
	}

	return id
}

// download keeps what the factory sends in a file.
func (p *place) download(schematic, name string) string {
	p.t.Helper()

	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet,
		p.Factory.URL()+"/image/"+schematic+"/v"+testTalos+"/nocloud-amd64."+name, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}

	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %v", resp.Status, err)
	}

	return p.file(name, body)
}

func (p *place) file(name string, content []byte) string {
	p.t.Helper()

	path := filepath.Join(p.t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		p.t.Fatal(err)
	}

	return path
}

// Invariant: an image that a person brings, from the factory or from a file, is
// the one that the daemon looks for: it is uploaded once, whoever comes first.
func TestAnImageThatAPersonBringsIsTheDaemons(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	start(t, env)
	p.waitRegistered("oxide")

	p.set("workers", "oxide", 1)
	p.waitJoined("workers", 1)

	images := p.inventory().SiloImages
	mark, ok := naming.Parse(images[0].Description)

	if len(images) != 1 || !ok {
		t.Fatalf("images %+v", images)
	}

	file := p.download(mark.Image.Schematic, "raw.zst")

	for _, args := range [][]string{{"ensure"}, {"import", file}} {
		out, errs, code := p.bring(env, mark.Image.Schematic, args...)
		if code != 0 || !strings.Contains(out, images[0].Id) || p.uploads() != 1 {
			t.Errorf("%v: code %d, %d uploads\n%s%s", args, code, p.uploads(), out, errs)
		}
	}

	// And the other way round, two at once, beside the daemon.
	second := p.schematic("customization:\n  extraKernelArgs: [second]\n")
	file = p.download(second, "raw.xz")

	var both sync.WaitGroup

	for _, args := range [][]string{{"ensure"}, {"import", file}} {
		both.Go(func() {
			if out, errs, code := p.bring(env, second, args...); code != 0 {
				t.Errorf("%v: code %d\n%s%s", args, code, out, errs)
			}
		})
	}

	both.Wait()

	if left := p.inventory(); len(left.SiloImages) != 2 || len(left.ProjectImages) != 0 {
		t.Errorf("%d images in the silo, %d in the project", len(left.SiloImages), len(left.ProjectImages))
	}

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()
}

// Invariant: nothing that is not whole gets an image's name, and what is wrong is
// said in one line with exit code 1; a wrong command line has exit code 2.
func TestAnImportThatCanNotBe(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	unknown := strings.Repeat("ab", 32)

	if _, errs, code := p.bring(env, unknown, "ensure"); code != 1 || !strings.Contains(errs, "start the daemon once") {
		t.Errorf("without an owner: code %d, %s", code, errs)
	}

	d := start(t, env)
	p.waitRegistered("oxide")

	if code := d.stop(); code != 0 {
		t.Fatal(code)
	}

	good := p.schematic("customization: {}\n")

	whole, err := os.ReadFile(p.download(good, "raw.zst"))
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		why       string
		args      []string
		schematic string
		code      int
		says      string
	}{
		{"unknown schematic", []string{"ensure"}, unknown, 1, "does not know schematic"},
		{"short schematic", []string{"ensure"}, unknown[:12], 2, "64 hexadecimal digits"},
		{"no file", []string{"import", "/nowhere"}, good, 1, "can not be imported"},
		{"no disk", []string{"import", p.file("a.raw", []byte(strings.Repeat("no disk\n", 1<<16)))}, good, 1, "can not be imported"},
		{"cut", []string{"import", p.file("b.zst", whole[:len(whole)-1000])}, good, 1, "can not be imported"},
		{"other project", []string{"ensure", "--project", "nowhere"}, good, 1, "--project"},
	} {
		args := c.args
		if c.why == "other project" {
			args = args[:1]
		}

		_, errs, code := ask(t, env, "", append(append([]string{"images"}, args...), "--talos", testTalos, "--schematic", c.schematic,
			"--project", map[bool]string{true: "nowhere", false: site.Project}[c.why == "other project"], "--log-level", "error")...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%s: code %d instead of %d: %s", c.why, code, c.code, errs)
		}
	}

	if left := p.inventory(); len(left.SiloImages)+len(left.ProjectImages) != 0 {
		t.Errorf("images %+v %+v", left.SiloImages, left.ProjectImages)
	}

	p.waitNothingLeft()
}

// Invariant: `images list` shows each upload as it goes on and what keeps each
// image; `images prune` removes what nothing keeps, when told to.
func TestImagesAreListedAndPruned(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{Factory: factory.Config{Rate: 512 << 10}})
	env := p.env("oxide")
	start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)

	p.eventually("the list to show the upload", func() bool {
		r := p.listImages(env)

		return len(r.Uploads) == 1 && r.Uploads[0].Phase == "uploading" && r.Uploads[0].Done > 0 && r.Uploads[0].Rate > 0 &&
			r.Uploads[0].Talos == testTalos && strings.Contains(r.Uploads[0].Waits, "%")
	})

	p.waitJoined("workers", 1)

	r := p.listImages(env)
	if len(r.Images) != 1 || len(r.Images[0].UsedBy) != 2 || r.Images[0].Kept != "in use" || r.Images[0].ID != p.inventory().SiloImages[0].Id {
		t.Errorf("images %+v", r.Images)
	}

	everything := []string{"images", "prune", "--unused-for", "0", "--image-keep-newest", "0", "--image-prune-silo", "on"}

	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"images", "list"}, 0, "request workers-"},
		{append(everything, "--yes"), 0, "0 of 0 removed"},
		{[]string{"images", "prune", "--unused-for", "-1s"}, 2, "--unused-for"},
		{[]string{"images", "list", "-o", "xml"}, 2, "--output"},
	} {
		if out, errs, code := ask(t, env, "", c.args...); code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%q: code %d\n%s%s", c.args, code, out, errs)
		}
	}

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()

	for _, c := range []struct {
		args []string
		says string
		left int
	}{
		{[]string{"images", "prune", "--yes"}, "images of the silo are kept", 1},
		{everything, "1 would be removed", 1},
		{append(everything, "--yes"), "1 of 1 removed", 0},
		{everything, "Nothing to remove", 0},
	} {
		p.eventually(c.says, func() bool {
			out, errs, code := ask(t, env, "", c.args...)
			if code != 0 {
				t.Fatalf("%q: code %d\n%s%s", c.args, code, out, errs)
			}

			return strings.Contains(out, c.says)
		})

		if got := p.inventory().Images(); got != c.left {
			t.Fatalf("%q: %d images", c.args, got)
		}
	}
}

func (p *place) listImages(env map[string]string) lifetime.Report {
	p.t.Helper()

	out, errs, code := ask(p.t, env, "", "images", "list", "--output", "json", "--log-level", "error")

	var r lifetime.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		p.t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
	}

	return r
}
