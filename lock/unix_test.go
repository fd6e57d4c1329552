//go:build unix

package lock_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"thread/lock"
)

func owner(info fs.FileInfo) (uid, gid uint32) {
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

// TestPipes: a named pipe is refused and not waited for.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if l, err := lock.Try(path, lock.Exclusive); err == nil {
		l.Close()
		t.Error("a lock on a named pipe")
	}
	if text, err := lock.ReadFile(path); err != nil || len(text) != 0 {
		t.Errorf("%q, %v", text, err)
	}
}

// TestUmask: a directory has mode 0700 and a lock file 0600 whatever the umask.
func TestUmask(t *testing.T) {
	dir := t.TempDir()
	old := syscall.Umask(0o777)
	defer syscall.Umask(old)
	if err := lock.Mkdir(filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	l, err := lock.Try(filepath.Join(dir, "f"), lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for name, mode := range map[string]fs.FileMode{"d": 0o700, "f": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}
