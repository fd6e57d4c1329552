package faults

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString("text")
	return errors.Join(err, f.Sync(), f.Close())
}

// TestEach: each call fails once, and other directories are left alone.
func TestEach(t *testing.T) {
	var hits []string
	Each(t, syscall.EIO, nil, func(t *testing.T, f *Fault) {
		dir, elsewhere := t.TempDir(), t.TempDir()
		var err error
		f.Run(t, dir, func() { err = errors.Join(save(filepath.Join(elsewhere, "a")), save(filepath.Join(dir, "b"))) })
		if f.Hit == nil {
			if err != nil {
				t.Error(err)
			}
			return
		}
		hits = append(hits, f.Hit.String())
		if !errors.Is(err, syscall.EIO) || Open(t, dir) != nil {
			t.Errorf("%v, after %v; open are %q", err, f.Calls, Open(t, dir))
		}
	})
	want := []string{"openat ./b", "write ./b", "fsync ./b", "close ./b"}
	if testing.Short() {
		want = want[:1]
	}
	if !slices.Equal(hits, want) {
		t.Errorf("%q, want %q", hits, want)
	}
}

func TestShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	f := Fault{At: 1, Errno: Short, Only: []string{"write"}}
	var err error
	f.Run(t, filepath.Dir(path), func() { err = save(path) })
	if text, _ := os.ReadFile(path); !errors.Is(err, syscall.ENOSPC) || string(text) != "te" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestBefore: what another one does at a call is seen by that call.
func TestBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f := Fault{Before: func(c Call, n int) {
		if c == (Call{"openat", "./a"}) && n == 1 {
			if err := save(path); err != nil {
				t.Error(err)
			}
		}
	}}
	var text []byte
	var err error
	f.Run(t, filepath.Dir(path), func() { text, err = os.ReadFile(path) })
	if err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestNth: of the calls of one name on one file one fails, and no other one.
func TestNth(t *testing.T) {
	dir := t.TempDir()
	f := Nth(syscall.EIO, 2, "openat", "/b")
	errs := map[string]error{}
	f.Run(t, dir, func() {
		for _, what := range []string{"b first", "a", "b second", "b third"} {
			errs[what] = save(filepath.Join(dir, what[:1]))
		}
	})
	for what, err := range errs {
		if fails := what == "b second"; errors.Is(err, syscall.EIO) != fails || (err != nil) != fails {
			t.Errorf("%s: %v", what, err)
		}
	}
	if f.Hit == nil || *f.Hit != (Call{"openat", "./b"}) {
		t.Errorf("it hit %v", f.Hit)
	}
}

// TestAlso: calls on no file fail where they are asked for.
func TestAlso(t *testing.T) {
	for _, also := range [][]string{nil, {"pipe2"}} {
		f := Fault{At: 1, Errno: syscall.EMFILE, Only: []string{"pipe2"}, Also: also}
		var err error
		f.Run(t, t.TempDir(), func() {
			var r, w *os.File
			if r, w, err = os.Pipe(); err == nil {
				r.Close()
				w.Close()
			}
		})
		if fails := also != nil; errors.Is(err, syscall.EMFILE) != fails || len(f.Calls) != len(also) {
			t.Errorf("%v: %v after %v", also, err, f.Calls)
		}
	}
}
