//go:build linux && (amd64 || arm64)

package faults

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// byFile are the calls whose first argument is a descriptor, byPath those whose second
// is a path.
var (
	byFile = map[int32]string{
		unix.SYS_FSTAT: "fstat", unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_PREAD64: "pread64", unix.SYS_PWRITE64: "pwrite64",
		unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FCHMOD: "fchmod",
		unix.SYS_FCHOWN: "fchown", unix.SYS_FLOCK: "flock", unix.SYS_CLOSE: "close", unix.SYS_GETDENTS64: "getdents64", unix.SYS_LSEEK: "lseek",
	}
	byPath = map[int32]string{
		unix.SYS_OPENAT: "openat", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_MKDIRAT: "mkdirat",
		unix.SYS_FCHMODAT: "fchmodat", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_LINKAT: "linkat",
	}
)

// byName are the calls of Also.
var byName = map[string]int32{
	"socket": unix.SYS_SOCKET, "socketpair": unix.SYS_SOCKETPAIR, "bind": unix.SYS_BIND, "connect": unix.SYS_CONNECT,
	"sendto": unix.SYS_SENDTO, "sendmsg": unix.SYS_SENDMSG, "recvfrom": unix.SYS_RECVFROM, "recvmsg": unix.SYS_RECVMSG,
	"pipe2": unix.SYS_PIPE2, "fcntl": unix.SYS_FCNTL, "mknodat": unix.SYS_MKNODAT, "faccessat": unix.SYS_FACCESSAT,
	"timerfd_create": unix.SYS_TIMERFD_CREATE, "pidfd_open": unix.SYS_PIDFD_OPEN,
}

// notice and answer are struct seccomp_notif and struct seccomp_notif_resp of
// linux/seccomp.h.
type notice struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// Run calls fn in a goroutine with a thread for itself. Calls on files below dir are
// recorded, and one fails. fn must not end the test.
func (f *Fault) Run(t testing.TB, dir string, fn func()) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	f.Calls, f.Hit = nil, nil
	// A process that fn starts has this thread wait until its program has begun, and asks
	// until then: nothing may wait for the thread meanwhile.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	// Some calls, as those for a socket, keep their processor: another one has to answer. A
	// change of their number also waits for the whole of a collection, and the one to no
	// collections for its marks only: what follows them asks every processor, too.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1))
	listener, done := make(chan int), make(chan struct{})
	var thread uint32
	ended, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ended.Close()
	var refused error
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		defer close(done)
		defer end.Close()
		thread = uint32(unix.Gettid())
		fd, err := install(f.Also)
		if refused = err; err != nil {
			return
		}
		listener <- fd
		fn()
	}()
	select {
	case fd := <-listener:
		l := &listening{fault: f, fd: fd, dir: dir, thread: thread}
		l.serve(int(ended.Fd()))
		<-done
		_ = unix.Close(fd)
	case <-done:
		t.Skipf("THIS SYSTEM HAS NO SECCOMP LISTENERS: no failure was tried: %v", refused)
	}
}

// install makes the calls of this thread wait for the listener.
func install(also []string) (listener int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	is := func(value uint32, otherwise uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: otherwise, K: value}
	}
	give := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	// Go's scheduler reads and writes 8 bytes to wake its poller, and it does so while
	// no goroutine can run: the listener would never answer.
	const count = 16 + 2*8 // offset of the third argument's low half in struct seccomp_data
	filter := []unix.SockFilter{load(count), is(8, 5), load(0), is(unix.SYS_READ, 1), give(unix.SECCOMP_RET_ALLOW), is(unix.SYS_WRITE, 1), give(unix.SECCOMP_RET_ALLOW), load(0)}
	for _, table := range []map[int32]string{byFile, byPath} {
		for nr := range table {
			filter = append(filter, is(uint32(nr), 1), give(unix.SECCOMP_RET_USER_NOTIF))
		}
	}
	for _, name := range also {
		nr, ok := byName[name]
		if !ok {
			panic("a fault of an unknown call: " + name)
		}
		filter = append(filter, is(uint32(nr), 1), give(unix.SECCOMP_RET_USER_NOTIF))
	}
	filter = append(filter, give(unix.SECCOMP_RET_ALLOW))
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// listening decides about the calls of one thread.
type listening struct {
	fault  *Fault
	fd     int
	dir    string
	thread uint32 // that is looked at: processes that it starts have the filter, too
	count  int
	short  int  // the descriptor whose next write fails, 0 when there is none
	full   bool // that write has failed
}

// serve answers until the pipe ended is closed.
func (l *listening) serve(ended int) {
	for {
		poll := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}, {Fd: int32(ended)}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if poll[0].Revents&unix.POLLIN != 0 {
			l.one()
			continue
		}
		if poll[1].Revents != 0 {
			return
		}
	}
}

func (l *listening) one() {
	var asked notice
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&asked))); errno != 0 {
		return
	}
	given := l.decide(&asked)
	given.id = asked.id
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&given)))
}

func (l *listening) decide(asked *notice) answer {
	pass := answer{flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if asked.pid != l.thread {
		return pass
	}
	call, ok := l.call(asked)
	if !ok {
		return pass
	}
	f := l.fault
	f.Calls = append(f.Calls, call)
	if f.Before != nil {
		f.Before(call, len(f.Calls))
	}
	if l.short != 0 && l.short == int(asked.args[0]) && call.Name == "write" {
		l.short, l.full = 0, true
		return answer{errno: -int32(unix.ENOSPC)}
	}
	if l.full && slices.Contains(f.Then, call.Name) {
		return answer{errno: -int32(unix.EROFS)}
	}
	if f.Only != nil && !slices.Contains(f.Only, call.Name) {
		return pass
	}
	if l.count++; l.count != f.At {
		return pass
	}
	f.Hit = &call
	if f.Errno != Short {
		if call.Name == "close" { // a close that fails has closed
			_ = unix.Close(int(asked.args[0]))
		}
		return answer{errno: -int32(f.Errno)}
	}
	half := make([]byte, asked.args[2]/2)
	if n, err := peek(uintptr(asked.args[1]), half); err != nil || n != len(half) {
		return answer{errno: -int32(unix.EIO)}
	}
	n, err := unix.Write(int(asked.args[0]), half)
	if err != nil {
		return answer{errno: -int32(unix.EIO)}
	}
	l.short = int(asked.args[0])
	return answer{value: int64(n)}
}

// call returns what is asked about, when it is about a file below the directory.
func (l *listening) call(asked *notice) (Call, bool) {
	for _, name := range l.fault.Also {
		if byName[name] == asked.nr {
			return Call{Name: name}, true
		}
	}
	var path string
	name := byFile[asked.nr]
	if name != "" {
		path, _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(int32(asked.args[0]))))
	} else {
		name = byPath[asked.nr]
		path = text(uintptr(asked.args[1]))
	}
	below, ok := strings.CutPrefix(path, l.dir)
	if !ok || below != "" && below[0] != '/' {
		return Call{}, false
	}
	return Call{name, "." + below}, true
}

// text returns the string at an address, which ends with a zero.
func text(at uintptr) string {
	buf := make([]byte, 4096-at%4096) // the next page may not be there
	n, _ := peek(at, buf)
	if end := bytes.IndexByte(buf[:n], 0); end >= 0 {
		return string(buf[:end])
	}
	rest := make([]byte, 4096)
	m, _ := peek(at+uintptr(n), rest)
	before, _, _ := bytes.Cut(rest[:m], []byte{0})
	return string(buf[:n]) + string(before)
}

// peek reads memory of this process.
func peek(at uintptr, into []byte) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	local := []unix.Iovec{{Base: &into[0]}}
	local[0].SetLen(len(into))
	return unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: at, Len: len(into)}}, 0)
}
