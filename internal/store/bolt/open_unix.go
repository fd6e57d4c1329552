//go:build unix

package bolt

import "syscall"

// How files in a thread directory are opened: a symbolic link is not followed,
// and a named pipe in the place of events.db is not waited for.
const (
	OpenNoFollow = syscall.O_NOFOLLOW
	OpenNoWait   = syscall.O_NONBLOCK
)

// canLeaveWrites: an open file can be renamed (pendingwrite.go).
const canLeaveWrites = true
