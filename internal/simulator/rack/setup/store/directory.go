package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	suffix    = ".json"
	unwritten = ".unwritten-"
	lockName  = "lock"
)

// Directory is a store with a file for each value.
type Directory struct {
	path string
	lock *os.File
}

// Open makes the directory if need be and takes it for this process alone: two
// racks in one would each carry out the other's plan.
func Open(path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the rack's directory: %w", err)
	}

	lock, err := takeLock(filepath.Join(path, lockName))
	if err != nil {
		return nil, err
	}

	d := &Directory{path: path, lock: lock}
	if err := d.sweep(); err != nil {
		return nil, errors.Join(err, d.Close())
	}

	return d, nil
}

// sweep removes what a process left that died while it saved.
func (d *Directory) sweep() error {
	left, err := filepath.Glob(filepath.Join(d.path, unwritten+"*"))
	if err != nil {
		return fmt.Errorf("looking for unfinished files: %w", err)
	}

	for _, f := range left {
		if err := os.Remove(f); err != nil {
			return fmt.Errorf("removing an unfinished file: %w", err)
		}
	}

	return nil
}

// Close gives the directory back.
func (d *Directory) Close() error { return d.lock.Close() }

// Load is that of Store.
func (d *Directory) Load(name string) ([]byte, bool, error) {
	if err := checkName(name); err != nil {
		return nil, false, err
	}

	v, err := os.ReadFile(filepath.Join(d.path, name+suffix))

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading %s: %w", name, err)
	}

	return v, true, nil
}

// Where is the value's file.
func (d *Directory) Where(name string) string { return filepath.Join(d.path, name+suffix) }

// Save writes another file, syncs it, puts it in the place of the old one, and
// syncs the directory: before the last of these the old value is still there.
func (d *Directory) Save(name string, value []byte) (err error) {
	if err := checkName(name); err != nil {
		return err
	}

	f, err := os.CreateTemp(d.path, unwritten+strings.ReplaceAll(name, ".", "-")+"-")
	if err != nil {
		return fmt.Errorf("saving %s: %w", name, err)
	}

	if _, err = f.Write(value); err == nil {
		err = f.Sync()
	}

	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(d.path, name+suffix))
	}

	if err != nil {
		return errors.Join(fmt.Errorf("saving %s: %w", name, err), os.Remove(f.Name()))
	}

	return d.sync(name)
}

func (d *Directory) sync(name string) error {
	dir, err := os.Open(d.path)
	if err != nil {
		return fmt.Errorf("saving %s: %w", name, err)
	}

	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("saving %s: %w", name, err)
	}

	return nil
}
