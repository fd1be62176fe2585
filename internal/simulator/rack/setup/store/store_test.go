package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Both stores answer what was saved last, and tell nothing from empty.
func TestAStoreAnswersWhatWasSavedLast(t *testing.T) {
	d, err := Open(filepath.Join(t.TempDir(), "new", "rack"))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { d.Close() })

	for name, s := range map[string]Store{"directory": d, "memory": &Memory{}} {
		if v, ok, err := s.Load("plan"); v != nil || ok || err != nil {
			t.Errorf("%s: %q, %v, %v before any was saved", name, v, ok, err)
		}

		for _, want := range []string{"one", "two", ""} {
			if err := s.Save("plan", []byte(want)); err != nil {
				t.Fatal(err)
			}

			if v, ok, err := s.Load("plan"); string(v) != want || !ok || err != nil {
				t.Errorf("%s: %q, %v, %v; want %q", name, v, ok, err, want)
			}
		}

		for _, bad := range []string{"", "../plan", "Plan", "a/b", ".hidden"} {
			if err := s.Save(bad, nil); err == nil {
				t.Errorf("%s saved %q", name, bad)
			}

			if _, _, err := s.Load(bad); err == nil {
				t.Errorf("%s loaded %q", name, bad)
			}
		}
	}
}

// A directory is one rack's, until that rack ends. What a dead process had not
// finished is removed and never read.
func TestADirectoryIsOneRacks(t *testing.T) {
	path := t.TempDir()

	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}

	if err := d.Save("plan", []byte("kept")); err != nil {
		t.Fatal(err)
	}

	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "another rack runs in it") {
		t.Errorf("a second rack: %v", err)
	}

	half := filepath.Join(path, unwritten+"plan-123")
	if err := os.WriteFile(half, []byte("ha"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	if d, err = Open(path); err != nil {
		t.Fatal(err)
	}

	defer d.Close()

	if v, ok, err := d.Load("plan"); string(v) != "kept" || !ok || err != nil {
		t.Errorf("%q, %v, %v", v, ok, err)
	}

	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("the unfinished file: %v", err)
	}
}

// A save that fails leaves the old value and no litter.
func TestASaveThatFailsLeavesTheOldValue(t *testing.T) {
	path := t.TempDir()

	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}

	defer d.Close()

	// A directory in the place of the file can not be renamed over.
	if err := os.Mkdir(filepath.Join(path, "plan.json"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := d.Save("plan", []byte("new")); err == nil {
		t.Fatal("it was saved")
	}

	if left, _ := filepath.Glob(filepath.Join(path, unwritten+"*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}

	if _, _, err := d.Load("plan"); err == nil {
		t.Error("a directory was read as a value")
	}
}
