package target

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOutside(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a/events.db", "a thread")
	write(t, dir+"/a/run/x", "")
	write(t, dir+"/copy/events.db", "a mirror of that name")
	if err := os.Mkdir(dir+"/app", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/app/events.db", 0o700); err != nil { // no file
		t.Fatal(err)
	}
	if err := os.Symlink(dir+"/a/run", dir+"/link"); err != nil {
		t.Skip(err)
	}
	for path, want := range map[string]bool{
		"m.db": true, "copy/events.db": true, "app/m.db": true, "new/deep/m.db": true, "a": true, "a b\n/m.db": true,
		"a/events.db": false, "a/m.db": false, "a/run/x": false, "a/logs/y/z": false, "link/m.db": false, "link/new/m.db": false,
		"a/../a/m.db": false, "copy/m.db": false,
	} {
		if err := Outside(filepath.Join(dir, path)); (err == nil) != want || err != nil && !errors.Is(err, ErrInThread) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestRename(t *testing.T) {
	for name, rename := range map[string]func(string, string) error{"system": Rename, "by link": renameByLink} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir+"/from", "new")
			for what, make := range map[string]func(path string) error{
				"file":      func(path string) error { return os.WriteFile(path, []byte("old"), 0o600) },
				"empty":     func(path string) error { return os.WriteFile(path, nil, 0o400) },
				"directory": func(path string) error { return os.Mkdir(path, 0o700) },
				"link":      func(path string) error { return os.Symlink("nowhere", path) },
			} {
				to := filepath.Join(dir, what)
				if err := make(to); err != nil {
					t.Fatal(err)
				}
				if err := rename(dir+"/from", to); !errors.Is(err, fs.ErrExist) {
					t.Errorf("over a %s: %v", what, err)
				}
			}
			if err := rename(dir+"/nothing", dir+"/to"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("of nothing: %v", err)
			}
			if err := rename(dir+"/from", dir+"/to"); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(dir + "/to"); err != nil || string(text) != "new" {
				t.Errorf("%q %v", text, err)
			}
			if _, err := os.Lstat(dir + "/from"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("from: %v", err)
			}
		})
	}
}

// TestRenameAtOnce: of many that want one name, one gets it.
func TestRenameAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	var won atomic.Int32
	for i := range 20 {
		from := filepath.Join(dir, strings.Repeat("x", i+1))
		write(t, from, "")
		all.Go(func() {
			if err := Rename(from, filepath.Join(dir, "to")); err == nil {
				won.Add(1)
			} else if !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 {
		t.Errorf("%d have the name", won.Load())
	}
}
