package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/man"
)

// Invariant: docs lists each page and prints it, and names the known ones when
// asked for another.
func TestDocsArePrinted(t *testing.T) {
	t.Parallel()

	_, list, _ := command("docs")

	for _, topic := range docs.Topics() {
		if !strings.Contains(list, topic.Name+" ") || !strings.Contains(list, topic.Summary+"\n") {
			t.Errorf("%s is not listed", topic.Name)
		}

		want, err := docs.Page(topic.Name)
		if err != nil {
			t.Fatal(err)
		}

		if code, stdout, stderr := command("docs", topic.Name); code != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: %d, %q", topic.Name, code, stderr)
		}
	}

	code, stdout, stderr := command("docs", "nothing")
	if code != exitConfig || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, `"nothing"`) || !strings.Contains(stderr, "machine-class") {
		t.Errorf("an unknown topic: %d, %q, %q", code, stdout, stderr)
	}
}

// Invariant: pages that are made from the code are as new as it.
func TestGeneratedPagesAreThoseOfTheCode(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	if code, _, stderr := command("docs", "generate", dir); code != 0 {
		t.Fatalf("%d, %q", code, stderr)
	}

	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}

	for _, file := range files {
		fresh, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if old, err := docs.Page(strings.TrimSuffix(filepath.Base(file), ".md")); err != nil || old != string(fresh) {
			t.Errorf("%s is old, run make generate (%v)", filepath.Base(file), err)
		}
	}
}

// Invariant: each command has a manual page.
func TestEachCommandHasAManualPage(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	if code, _, stderr := command("docs", "man", dir); code != 0 {
		t.Fatalf("%d, %q", code, stderr)
	}

	for _, cmd := range man.Commands(newRootCommand()) {
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)

			continue
		}

		for _, section := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH DESCRIPTION\n"} {
			if !strings.Contains(string(page), section) {
				t.Errorf("%s has no %s", cmd.CommandPath(), section)
			}
		}
	}
}
