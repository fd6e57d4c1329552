package engine

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"thread/event"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

func TestInit(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "a b", "inbox")
	th, err := Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	if th.Dir() != dir {
		t.Errorf("dir is %q", th.Dir())
	}
	for _, name := range []string{".", "run", "logs"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o700 || !info.IsDir() {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	for _, name := range []string{"events.db", "events.jsonl"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if _, err := Init(dir); !errors.Is(err, ErrExists) {
		t.Errorf("again: %v", err)
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below")} {
		if _, err := Init(path); !errors.Is(err, ErrNotDir) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := Open(path); !errors.Is(err, ErrNotThread) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := Destroy(base); !errors.Is(err, ErrNotThread) {
		t.Errorf("destroy of a plain directory: %v", err)
	}
	if err := Destroy(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || Exists(dir) {
		t.Errorf("still there: %v", err)
	}
}

// TestInitOnce: of many at once exactly one succeeds, and what is there already
// stays.
func TestInitOnce(t *testing.T) {
	dir := t.TempDir()
	old := []byte("an older line, without an end")
	if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			switch _, err := Init(dir); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, ErrExists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d succeeded", won.Load())
	}
	th, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	e, err := th.Push(ctx, event.Draft{Source: "a", Type: "b", Content: "c"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if want := string(old) + "\n" + string(e.AppendJSON(nil)) + "\n"; err != nil || string(got) != want {
		t.Errorf("%v: got %q, want %q", err, got, want)
	}
}

// TestNoHandle: who gets an error gets no handle.
func TestNoHandle(t *testing.T) {
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, bolt.DatabaseName+".new", "file")
	if err := os.Mkdir(filepath.Dir(inTheWay), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if th, err := Init(dir); err == nil || th != nil {
		t.Errorf("init: %v, %v", th, err)
	}
	if th, err := OpenOrCreate(dir); err == nil || th != nil {
		t.Errorf("open or create: %v, %v", th, err)
	}
	sound := t.TempDir()
	if _, err := Init(sound); err != nil {
		t.Fatal(err)
	}
	bolt.CheckMount = func(string) error { return ErrNetwork }
	t.Cleanup(func() { bolt.CheckMount = lock.CheckMount })
	if th, err := Open(sound); err == nil || th != nil {
		t.Errorf("open: %v, %v", th, err)
	}
}

// TestDestroyLinks: what is reached through a link is not deleted, in whole or in
// part.
func TestDestroyLinks(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	parent := filepath.Join(base, "parent")
	for _, dir := range []string{outside, parent} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	kept := filepath.Join(outside, "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(parent, "real")
	th, err := Init(real)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := th.Push(ctx, event.Draft{Source: "a", Type: "b", Content: "c"}); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		filepath.Join(base, "link"): real, filepath.Join(base, "up"): parent, filepath.Join(real, "out"): outside,
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip(err)
		}
	}
	for _, dir := range []string{filepath.Join(base, "link"), filepath.Join(base, "link") + string(filepath.Separator)} {
		if err := Destroy(dir); !errors.Is(err, ErrNotDir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if es, err := th.Peek(ctx, Query{}); err != nil || len(es) != 1 {
		t.Errorf("left: %v, %v", es, err)
	}
	if err := Destroy(filepath.Join(base, "up", "real")); err != nil { // the way to it may be a link
		t.Error(err)
	}
	if _, err := os.Lstat(real); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// TestForeignDatabase: whatever else is called events.db is named for what it
// is and left alone.
func TestForeignDatabase(t *testing.T) {
	swapped := make([]byte, 16384)
	binary.NativeEndian.PutUint32(swapped[disk.PageHeaderBytes:], bits.ReverseBytes32(disk.BoltMagic))
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"empty":       {nil, ErrNotDatabase},
		"short":       {[]byte("hello"), ErrNotDatabase},
		"text":        {make([]byte, 20000), ErrNotDatabase},
		"sqlite":      {append([]byte("SQLite format 3\x00"), make([]byte, 4096)...), ErrSQLite},
		"sqlite, cut": {[]byte("SQLite format 3\x00"), ErrSQLite},
		"byte order":  {swapped, ErrByteOrder},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, bolt.DatabaseName)
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			th, err := Open(dir)
			if err == nil {
				_, err = th.Push(ctx, event.Draft{Source: "a", Type: "b"})
			} else if th != nil {
				t.Error("a handle came with the error")
			}
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != string(c.content) {
				t.Errorf("the file has changed: %v", err)
			}
		})
	}
}
