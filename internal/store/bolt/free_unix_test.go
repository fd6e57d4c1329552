//go:build unix

package bolt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"thread/internal/faults"
)

// TestFreeSlowly: a file without a name is made small. One that has a name keeps its bytes,
// and so does one in whose place no other is for certain, or that cannot be written to.
func TestFreeSlowly(t *testing.T) {
	for _, c := range []struct {
		names    int
		synced   bool
		readOnly bool
		wantSize int64
	}{{0, true, false, 5}, {1, true, false, 3*freedAtOnce + 5}, {0, false, false, 3*freedAtOnce + 5}, {0, true, true, 3*freedAtOnce + 5}} {
		path := filepath.Join(t.TempDir(), "file")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const size = 3*freedAtOnce + 5
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if c.readOnly {
			if f, err = os.Open(path); err != nil {
				t.Fatal(err)
			}
			defer f.Close()
		}
		if c.names == 1 {
			err = os.Link(path, path+".kept")
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		if !c.synced {
			dir = filepath.Join(dir, "missing")
		}
		freeSlowly(f, dir)
		if info, err := f.Stat(); err != nil || info.Size() != c.wantSize {
			t.Errorf("%+v: %d bytes (%v)", c, info.Size(), err)
		}
	}
}

// TestFreedAPartAtATime: each part that is given back is synced before the next one is.
func TestFreedAPartAtATime(t *testing.T) {
	dir := faults.Dir(t)
	path := filepath.Join(dir, "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(3*freedAtOnce+5), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	var calls faults.Fault
	calls.Run(t, dir, func() { freeSlowly(f, dir) })
	var got []string
	for _, c := range calls.Calls {
		if c.Name == "ftruncate" || c.Name == "fsync" {
			got = append(got, c.Name)
		}
	}
	if want := []string{"fsync", "ftruncate", "fsync", "ftruncate", "fsync", "ftruncate", "fsync"}; !slices.Equal(got, want) { // the first one is the directory's
		t.Errorf("%q, want %q", got, want)
	}
}
