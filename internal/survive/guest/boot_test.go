//go:build linux

package main

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// boot becomes the kernel whose path and arguments are given. On hosts whose
// processors have more registers than the kernel of that package knows (AMX), it
// stops at its first process because it cannot set them; so the call by which it
// learns that there are these registers fails, and it goes back to the plain ones.
func boot(args []string) error {
	const (
		ptraceGetRegset, xstate = 0x4204, 0x202                                       // linux/ptrace.h, NT_X86_XSTATE of linux/elf.h
		load, equal, answer     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, 0x15, 0x06 // BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
		number, first, third    = 0, 16, 32                                           // offsets in struct seccomp_data
		refuse, allow           = 0x00050000 | uint32(unix.EIO), 0x7fff0000           // SECCOMP_RET_ERRNO, _ALLOW
		setFilter               = 2                                                   // SECCOMP_MODE_FILTER
	)
	program := []unix.SockFilter{
		{Code: load, K: number}, {Code: equal, Jf: 5, K: uint32(unix.SYS_PTRACE)},
		{Code: load, K: first}, {Code: equal, Jf: 3, K: ptraceGetRegset},
		{Code: load, K: third}, {Code: equal, Jf: 1, K: xstate},
		{Code: answer, K: refuse}, {Code: answer, K: allow},
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, setFilter, uintptr(unsafe.Pointer(&filter)), 0, 0); err != nil {
		return err
	}
	return unix.Exec(args[0], args, os.Environ())
}
