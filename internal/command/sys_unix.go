//go:build unix

package command

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// AtTerminal reports whether this process is in the foreground of a terminal. A command that
// leads a group could not read from the terminal then, and would not get the signals of its
// keys.
func AtTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// ownGroup makes cmd lead a process group, so that all of it can be ended.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to a process group, and reports whether there is one.
func signalGroup(pid int, s syscall.Signal) bool { return syscall.Kill(-pid, s) == nil }

// TreeFD is the number under which a handler has its tree lock: one that neither shells nor
// shell scripts use. A command has a lock under the next number that is free.
const TreeFD = 99

// TreeFDBelow returns TreeFD for a process that may have limit descriptors. Package os/exec
// needs some above it for a moment.
func TreeFDBelow(limit uint64) int {
	const above, least = 8, 10
	if limit >= TreeFD+1+above {
		return TreeFD
	}
	return max(int(limit)-above, least)
}

// DescriptorLimit returns how many descriptors this process may have.
func DescriptorLimit() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return TreeFD * 2
	}
	return uint64(limit.Cur) //nolint:unconvert // FreeBSD has an int64
}

// pass returns a copy of the descriptor that commands inherit.
func pass(f *os.File) (*os.File, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if cerr := conn.Control(func(from uintptr) {
		fd, err = unix.FcntlInt(from, unix.F_DUPFD, TreeFDBelow(DescriptorLimit()))
	}); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
