//go:build unix

package jsonlog

import "syscall"

// A symbolic link is not followed, and a named pipe is not waited for.
const (
	noFollow = syscall.O_NOFOLLOW
	noWait   = syscall.O_NONBLOCK
)
