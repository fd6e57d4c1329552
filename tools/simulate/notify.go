//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls that stop a process until the scheduler answers.
var held = map[int32]string{
	unix.SYS_OPENAT: "openat", unix.SYS_FLOCK: "flock", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_LINKAT: "linkat",
	unix.SYS_PWRITE64: "pwrite", unix.SYS_WRITE: "write", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_CONNECT: "connect",
	unix.SYS_KILL: "kill", unix.SYS_PIDFD_SEND_SIGNAL: "kill", unix.SYS_EXIT_GROUP: "exit", unix.SYS_CLONE: "clone", unix.SYS_EXECVE: "execve",
	unix.SYS_SCHED_GETAFFINITY: "getaffinity", unix.SYS_CLOCK_GETTIME: "gettime",
}

// The two ioctls of linux/seccomp.h, and the one that wakes the receiver on its own CPU.
const (
	notifRecv     = 0xc0502100
	notifSend     = 0xc0182101
	notifSetFlags = 0x40082104
	keepCall      = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE
)

// notification is struct seccomp_notif.
type notification struct {
	id    uint64
	tid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// answer is struct seccomp_notif_resp.
type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// launcher starts the programs. Its thread alone has the filter, and the programs inherit
// it, the CPU and the priority.
type launcher struct {
	listener int
	tid      int
	requests chan []string
	started  chan startResult
	env      []string
	dir      string
	output   uintptr
	clocks   map[string]uint64 // by program: the address of clockSymbol
}

type startResult struct {
	pid int
	err error
}

// newLauncher moves the calling goroutine and the launcher to the CPU. With one CPU for all,
// a program has run to its next held call before the scheduler can see it, mostly. A real-time
// priority would make that certain, and must not be used: a wait for a child then spins in the
// kernel when it meets a thread below that reads /proc, and starves the disk of the machine.
func newLauncher(cpu int) (*launcher, error) {
	l := &launcher{clocks: map[string]uint64{}, requests: make(chan []string), started: make(chan startResult)}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the filter cannot be taken away
		l.tid = unix.Gettid()
		err := pin(cpu)
		if err == nil {
			// Timers of the programs may be late: the Go runtime looks at its threads every 20 µs,
			// and each look takes two switches, an interrupt and a question for the clock.
			err = unix.Prctl(unix.PR_SET_TIMERSLACK, 500_000, 0, 0, 0)
		}
		if err == nil {
			l.listener, err = installFilter()
		}
		ready <- err
		for args := range l.requests {
			pid, err := syscall.ForkExec(args[0], args, &syscall.ProcAttr{Dir: l.dir, Env: l.env,
				Files: []uintptr{0, l.output, l.output}, Sys: &syscall.SysProcAttr{Setsid: true}})
			l.started <- startResult{pid, err}
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	// Programs whose parent has ended become children of this process, which waits for all.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	if err := pin(cpu); err != nil {
		return nil, err
	}
	// The waits of the scheduler end in time.
	return l, unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("CPU %d: %w", cpu, err)
	}
	return nil
}

func installFilter() (int, error) {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(how uint16, k uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, K: k, Jt: uint8(yes), Jf: uint8(no)}
	}
	// The number. A new thread is let through, and so are a process that its parent waits for, a
	// file that is opened for reading, and a clock of the processor or of the machine.
	filter := []unix.SockFilter{
		load(0), jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 2),
		load(16), jump(unix.BPF_JSET, unix.CLONE_THREAD|unix.CLONE_VFORK, len(held)+6, len(held)+7),
		jump(unix.BPF_JEQ, unix.SYS_CLOCK_GETTIME, 0, 2),
		load(16), jump(unix.BPF_JSET, ^uint32(unix.CLOCK_REALTIME|unix.CLOCK_MONOTONIC), len(held)+3, len(held)+4),
		jump(unix.BPF_JEQ, unix.SYS_OPENAT, 0, 2),
		load(32), jump(unix.BPF_JSET, unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT, len(held)+1, len(held)),
	}
	left := len(held)
	for nr := range held {
		filter = append(filter, jump(unix.BPF_JEQ, uint32(nr), left, 0))
		left--
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	// Addresses are the same in each run.
	if _, _, errno := unix.Syscall(unix.SYS_PERSONALITY, 0x0040000, 0, 0); errno != 0 {
		return 0, errno
	}
	// A signal, such as one for preemption by Go, does not interrupt a held call.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | 1<<5 // WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	unix.CloseOnExec(int(fd))
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, notifSetFlags, 1) // Linux 6.6; faster, not needed
	return int(fd), nil
}

// receive returns the next held call, or false when there is none within the time.
func (l *launcher) receive(n *notification, wait time.Duration) bool {
	for {
		fds := []unix.PollFd{{Fd: int32(l.listener), Events: unix.POLLIN}}
		limit := unix.NsecToTimespec(int64(wait))
		if got, err := unix.Ppoll(fds, &limit, nil); err == unix.EINTR {
			continue
		} else if got == 0 || err != nil {
			return false
		}
		*n = notification{}
		switch _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l.listener), notifRecv, uintptr(unsafe.Pointer(n))); errno {
		case 0:
			return true
		case unix.ENOENT, unix.EINTR: // the caller was killed
		default:
			return false
		}
	}
}

func (l *launcher) send(a answer) {
	for {
		// ENOENT: the caller was killed.
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l.listener), notifSend, uintptr(unsafe.Pointer(&a))); errno != unix.EINTR {
			return
		}
	}
}

// readString reads the text at an address of a process.
func readString(tid int, addr uint64) string {
	var b [512]byte
	for _, n := range []int{len(b), 64, 16} { // the end of a mapping may come before
		local := []unix.Iovec{{Base: &b[0], Len: uint64(n)}}
		if got, err := unix.ProcessVMReadv(tid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: n}}, 0); err == nil {
			text, _, _ := strings.Cut(string(b[:got]), "\x00")
			return text
		}
	}
	return ""
}

func writeMemory(tid int, addr uint64, p []byte) {
	local := []unix.Iovec{{Base: &p[0], Len: uint64(len(p))}}
	_, _ = unix.ProcessVMWritev(tid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(p)}}, 0)
}

// fixRandom makes the bytes the same in each run that the kernel has put on the stack for seeds.
// Each program of each seed has others: ids of runs and names of files are made of them. A run with
// the id of one in a schedule on another CPU would be ended as what is left of that one.
func (s *schedule) fixRandom(tid int, program string) {
	const atRandom = 25
	random := s.draw("random " + program)
	aux, _ := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/auxv")
	for ; len(aux) >= 16; aux = aux[16:] {
		if binary.NativeEndian.Uint64(aux) == atRandom {
			writeMemory(tid, binary.NativeEndian.Uint64(aux[8:]), binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, random.Uint64()), random.Uint64()))
		}
	}
}
