// Package faults makes system calls of a test fail, one at a time: the way to see that
// no error of a disk is swallowed, that files are closed, and what is synced before what
// is renamed. It is for tests only, and needs neither root nor another program.
//
// A seccomp filter that asks a listener is installed on one thread. The calls of one
// goroutine on files below one directory are recorded; one of them fails.
package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Call is one system call on a file below the directory.
type Call struct {
	Name string // as in the manual: "fsync"
	Path string // of the file, relative to the directory; of a rename the old name
}

func (c Call) String() string { return c.Name + " " + c.Path }

// Short, as the error of a write, writes half of the bytes. The write after it fails
// with ENOSPC.
const Short = syscall.Errno(0)

// Fault is the failure of one call.
type Fault struct {
	At    int // ordinal of the call that fails, from 1; 0: none
	Errno syscall.Errno
	Only  []string // Only has the names of the calls that are counted; nil: all of them.
	// Then has the names of calls that fail with EROFS after a short write.
	Then []string
	// Also has the names of calls on no file that are recorded and counted too, with the
	// path "": socket, socketpair, bind, connect, sendto, sendmsg, recvfrom, recvmsg, pipe2,
	// fcntl, mknodat, faccessat, timerfd_create, pidfd_open.
	Also []string

	// Before is called at each recorded call, while the goroutine waits in it. The n-th
	// recorded call has n 1. So a test lets another process come first.
	Before func(c Call, n int)

	// Calls are the calls that Run has recorded.
	Calls []Call
	// Hit is the call that failed, nil when there were fewer.
	Hit *Call
}

// Dir returns a temporary directory, in memory where the system has that: thousands of
// syncs, none of which is to outlast a loss of power, take minutes on a disk.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "faults")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Each calls test with the failure of the first call, then of the second, and so on,
// until test makes fewer calls than that. A quick run (-short) passes over three of four.
func Each(t *testing.T, errno syscall.Errno, only []string, test func(t *testing.T, f *Fault)) {
	t.Helper()
	hit, step := true, 1
	if testing.Short() {
		step = 4
	}
	for at := 1; hit; at += step {
		f := &Fault{At: at, Errno: errno, Only: only}
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			test(t, f)
			if t.Failed() && f.Hit != nil {
				t.Logf("failed with %v: %v", errno, f.Hit)
			}
		})
		hit = f.Hit != nil && !t.Failed()
	}
}

// Nth is the failure of the n-th call of that name on a file whose path ends so.
func Nth(errno syscall.Errno, n int, name, path string) *Fault {
	f := &Fault{At: -1, Errno: errno}
	f.Before = func(c Call, at int) {
		if c.Name != name || !strings.HasSuffix(c.Path, path) {
			return
		}
		if n--; n == 0 {
			f.At = at
		}
	}
	return f
}

// Names returns the recorded calls of these names, in order.
func (f *Fault) Names(names ...string) []string {
	var list []string
	for _, c := range f.Calls {
		for _, name := range names {
			if c.Name == name {
				list = append(list, c.String())
			}
		}
	}
	return list
}

// Open returns the files below dir that this process has open.
func Open(t testing.TB, dir string) (list []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		path, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(path+"/", dir+"/") {
			list = append(list, path)
		}
	}
	return list
}
