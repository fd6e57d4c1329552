//go:build linux

package dispatch

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSealed: what is started while descriptors are sealed inherits none of them, and those
// that this process has inherited can be inherited afterwards, whether or not it started.
func TestSealed(t *testing.T) {
	fd, err := unix.Dup(int(os.Stderr.Fd())) // as if inherited
	must(t, err)
	defer unix.Close(fd)
	inherits := func() bool {
		t.Helper()
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		must(t, err)
		return flags&unix.FD_CLOEXEC == 0
	}
	if !inherits() {
		t.Fatal("the descriptor cannot be inherited")
	}
	mine := errors.New("mine")
	for _, want := range []error{nil, mine} {
		err := sealed(func() error {
			if inherits() {
				t.Error("what is started has the descriptor")
			}
			return want
		})
		if !errors.Is(err, want) || !inherits() {
			t.Errorf("%v, want %v; inherited afterwards: %v", err, want, inherits())
		}
	}
}

// TestCloseInherited: what a process has inherited is closed, and what it has opened itself
// stays open.
func TestCloseInherited(t *testing.T) {
	fd, err := unix.Dup(int(os.Stderr.Fd()))
	must(t, err)
	own, err := os.Open(os.DevNull)
	must(t, err)
	defer own.Close()
	closeInherited()
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("it is open: %v", err)
	}
	if _, err := own.Stat(); err != nil {
		t.Error(err)
	}
}
