//go:build unix

package jsonlog

import "syscall"

const noFollow = syscall.O_NOFOLLOW
