//go:build unix

package socket

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestListen: a socket of mode 0600 in place of a stale one and of no other file, also
// where the path is longer than an address holds.
func TestListen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	stale, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second one: %v", err)
	}
	stale.Listener.Close() // as a killed process leaves it
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	conn, err := Dial(dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := errors.Join(l.Close(), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !errors.Is(err, ErrPlace) {
		t.Errorf("on a file: %v", err)
	}
}

// TestPlaceOfOthers: no socket where another account can put its own.
func TestPlaceOfOthers(t *testing.T) {
	dir := t.TempDir()
	for mode, ok := range map[os.FileMode]bool{0o777: false, 0o770: false, 0o702: false, 0o777 | os.ModeSticky: true, 0o755: true, 0o700: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(filepath.Join(dir, "s"))
		if ok != (err == nil) || !ok && !errors.Is(err, ErrPlace) {
			t.Errorf("in a directory of mode %v: %v", mode, err)
		}
		if l != nil {
			l.Close()
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("the rest needs root")
	}
	left, err := Replace(dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	left.Listener.Close()
	for _, of := range []string{filepath.Join(dir, "s"), dir} {
		if err := os.Lchown(of, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(filepath.Join(dir, "s")); !errors.Is(err, ErrPlace) {
			t.Errorf("%s belongs to another account: %v", of, err)
		}
	}
}
