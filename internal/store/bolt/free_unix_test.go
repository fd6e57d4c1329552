//go:build unix

package bolt

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFreeSlowly: a file without a name is made small. One that has a name keeps its bytes,
// and so does one in whose place no other is for certain.
func TestFreeSlowly(t *testing.T) {
	for _, c := range []struct {
		names    int
		synced   bool
		wantSize int64
	}{{0, true, 5}, {1, true, 3*freedAtOnce + 5}, {0, false, 3*freedAtOnce + 5}} {
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
