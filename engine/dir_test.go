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

// TestForeignDatabase: whatever else is called events.db is named for what it
// is and left alone.
func TestForeignDatabase(t *testing.T) {
	swapped := make([]byte, 16384)
	binary.NativeEndian.PutUint32(swapped[boltPageHeader:], bits.ReverseBytes32(boltMagic))
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
			path := filepath.Join(dir, databaseName)
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			th, err := Open(dir)
			if err == nil {
				_, err = th.Push(ctx, event.Draft{Source: "a", Type: "b"})
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
