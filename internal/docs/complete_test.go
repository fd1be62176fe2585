package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
)

var templates = regexp.MustCompile(`\{\{[^}]*\}\}`)

// all are the texts of all documents by file.
func all(t *testing.T) map[string]string {
	t.Helper()

	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}

	texts := map[string]string{"README.md": string(readme)}
	for _, name := range docs.Names() {
		texts[name+".md"] = page(t, name)
	}

	return texts
}

// Invariant: a flag that a document names beside an option's form is one: of the
// daemon, of one of its commands (as the page on commands has them), or of another
// program that is named on the same line.
func TestTheDocumentsNameNoFlagThatIsNotThere(t *testing.T) {
	t.Parallel()

	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Register(flags)

	known := map[string]bool{"help": true}
	flags.VisitAll(func(f *pflag.Flag) { known[f.Name] = true })

	flag := regexp.MustCompile(`--([a-z][a-z-]*[a-z])`)
	for _, m := range flag.FindAllStringSubmatch(page(t, "commands"), -1) {
		known[m[1]] = true
	}

	others := regexp.MustCompile("omnictl |docker run |systemctl |bin/simulator|oxide (auth|project)|kubectl |make demo|simulator (rack|omni|factory)|`--fault`|`--rack FILE`|`--data DIR`")

	for file, text := range all(t) {
		for line := range strings.Lines(text) {
			if others.MatchString(line) {
				continue
			}

			for _, m := range flag.FindAllStringSubmatch(line, -1) {
				if !known[m[1]] {
					t.Errorf("%s: there is no flag --%s: %s", file, m[1], line)
				}
			}
		}
	}

	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !strings.Contains(page(t, "options"), "`--"+f.Name+"`") {
			t.Errorf("options.md does not have --%s", f.Name)
		}
	})
}

// foreign are variables that are not the daemon's options: of the Go runtime, of
// proxies, of systemd, of tests, and constants of other programs.
var foreign = []string{
	"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "GOMEMLIMIT", "NOTIFY_SOCKET", "WATCHDOG_USEC",
}

// Invariant: a variable that a document names is an option's, or one of those that
// are foreign, or a test's that some code reads.
func TestTheDocumentsNameNoVariableThatIsNotThere(t *testing.T) {
	t.Parallel()

	options := page(t, "options")
	variable := regexp.MustCompile(`\b([A-Z][A-Z0-9]*(_[A-Z0-9]+)+)\b`)
	code := sources(t)

	for file, text := range all(t) {
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			name := m[1]

			switch {
			case slices.Contains(foreign, name), strings.Contains(options, "`"+name+"`"):
			case strings.HasPrefix(name, "OIPO_") && strings.Contains(code, name):
			default:
				t.Errorf("%s: there is no variable %s", file, name)
			}
		}
	}
}

// sources are all Go files, makefiles and scripts, one after the other.
func sources(t *testing.T) string {
	t.Helper()

	var b strings.Builder

	tree := os.DirFS("../..")

	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		if strings.HasSuffix(name, ".go") || name == "Makefile" || name == ".ci/run" {
			text, err := fs.ReadFile(tree, name)
			b.Write(text)

			return err
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return b.String()
}

// Invariant: each metric is on its page, and no document names another.
func TestTheDocumentsNameNoMetricThatIsNotThere(t *testing.T) {
	t.Parallel()

	known := map[string]bool{}
	metric := regexp.MustCompile(`\boipo_[a-z0-9_]+[a-z0-9]`)

	for _, name := range metric.FindAllString(metrics.Reference(), -1) {
		known[name] = true
	}

	if len(known) < 30 {
		t.Errorf("%d metrics", len(known))
	}

	for file, text := range all(t) {
		for _, name := range metric.FindAllString(text, -1) {
			if !known[name] {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
}

// Invariant: each alert that a document names is a rule, see also the page's own
// test.
func TestTheDocumentsNameNoAlertThatIsNotThere(t *testing.T) {
	t.Parallel()

	alert := regexp.MustCompile("`(OxideProvider[A-Z][A-Za-z]+)`")
	alerts := page(t, "alerts")

	for file, text := range all(t) {
		for _, m := range alert.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(alerts, m[0]) {
				t.Errorf("%s: there is no alert %s", file, m[1])
			}
		}
	}
}

// Invariant: the fields of a class are those of the page: each is there, and classes
// in documents have no other.
func TestClassesInDocumentsAreRight(t *testing.T) {
	t.Parallel()

	class := regexp.MustCompile(`(?s)providerdata: \|\n(.*?)\n?` + "```")
	n := 0

	for file, text := range all(t) {
		for _, m := range class.FindAllStringSubmatch(text, -1) {
			n++

			var data strings.Builder
			for line := range strings.Lines(m[1]) {
				data.WriteString(strings.TrimPrefix(line, "      "))
			}

			if _, err := machineclass.Parse(data.String()); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}

	if n < 2 {
		t.Errorf("%d classes", n)
	}
}

// Invariant: whatever people read of an error leads to an entry on what to do about
// it: each row of the page on errors, and each line of the log at warn or above.
func TestWhatPeopleReadLeadsToAnEntry(t *testing.T) {
	t.Parallel()

	ours, _, _ := strings.Cut(page(t, "troubleshooting"), "## Texts of Omni and Talos")
	before, rest, _ := strings.Cut(ours, "| Subject |")
	subjects, after, _ := strings.Cut(rest, "\n\n")
	first := regexp.MustCompile("(?m)^\\| `([^`]+)`")

	var entries []string
	for _, m := range first.FindAllStringSubmatch(before+after, -1) {
		entries = append(entries, m[1])
	}

	used := map[string]bool{}
	led := func(text string) bool {
		found := false

		for _, e := range entries {
			if strings.Contains(text, e) {
				used[e], found = true, true
			}
		}

		return found
	}

	for line := range strings.Lines(page(t, "errors")) {
		cells := strings.Split(line, " | ")
		if len(cells) != 7 || cells[1] == "Error" {
			continue
		}

		for _, cell := range cells[3:6] {
			if cell != "-" && !led(cell) {
				t.Errorf("nothing is said on %q (%s)", cell, cells[1])
			}
		}

		if subject, _, ok := strings.Cut(cells[4], ": "); ok && !strings.Contains(subjects, "\n| `"+subject+"` |") {
			t.Errorf("nothing is said on the subject %q", subject)
		}
	}

	texts, literals := literalsOfTheDaemon(t)
	if len(texts) < 15 {
		t.Errorf("%d texts at warn or above", len(texts))
	}

	// These two are followed by what health says.
	for _, text := range slices.DeleteFunc(texts, func(s string) bool { return s == "not ready: " || s == "needs a look: " }) {
		if !led(text) {
			t.Errorf("nothing is said on the log's %q", text)
		}
	}

	for _, e := range entries {
		if !used[e] && !slices.ContainsFunc(literals, func(s string) bool { return strings.Contains(s, e) }) {
			t.Errorf("nothing says %q any more", e)
		}
	}
}

// Invariant: each subject of health is explained.
func TestEachSubjectOfHealthIsExplained(t *testing.T) {
	t.Parallel()

	text := page(t, "troubleshooting")
	subject := regexp.MustCompile(`(?m)\b(?:Subject|Need)[A-Z]\w* *= "([a-z ]+)"`)
	found := subject.FindAllStringSubmatch(sources(t), -1)

	if len(found) < 8 {
		t.Errorf("%d subjects", len(found))
	}

	for _, m := range found {
		if !strings.Contains(text, "\n| `"+m[1]+"` |") {
			t.Errorf("nothing is said on the subject %q", m[1])
		}
	}
}

// literalsOfTheDaemon returns what the daemon logs at warn or above, and all its
// texts.
func literalsOfTheDaemon(t *testing.T) (logged, literals []string) {
	t.Helper()

	tree := os.DirFS("../..")

	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "internal/simulator" || name == "hack" || name == "cmd/simulator"):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}

		file, err := parser.ParseFile(token.NewFileSet(), path.Join("../..", name), nil, 0)
		if err != nil {
			return err
		}

		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					literals = append(literals, s)
				}
			case *ast.CallExpr:
				if s := loggedText(n); s != "" {
					logged = append(logged, s)
				}
			}

			return true
		})

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	return logged, literals
}

// loggedText is the text that a call logs at warn or above, as far as it is fixed.
func loggedText(call *ast.CallExpr) string {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || method.Sel.Name != "Warn" && method.Sel.Name != "Error" && method.Sel.Name != "DPanic" {
		return ""
	}

	text := call.Args[0]
	if sum, ok := text.(*ast.BinaryExpr); ok {
		text = sum.X
	}

	if l, ok := text.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)

		return s
	}

	return ""
}

// Invariant: the architecture's map has each directory of code, and no other.
func TestTheMapIsThatOfTheTree(t *testing.T) {
	t.Parallel()

	text := page(t, "architecture")
	mapped := map[string]bool{}

	for _, m := range regexp.MustCompile(`\]\((\.[^)]*)\)`).FindAllStringSubmatch(text, -1) {
		dir := path.Join("internal/docs", m[1])
		if d, err := os.Stat("../../" + dir); err != nil || !d.IsDir() {
			t.Errorf("there is no directory %s", dir)
		}

		mapped[dir] = true
	}

	for _, parent := range []string{"cmd", "internal", "hack", "api"} {
		children, err := os.ReadDir("../../" + parent)
		if err != nil {
			t.Fatal(err)
		}

		for _, c := range children {
			if dir := path.Join(parent, c.Name()); c.IsDir() && !mapped[dir] {
				t.Errorf("internal/docs/architecture.md has no line on %s", dir)
			}
		}
	}
}
