//go:build !unix

package bolt

const (
	OpenNoFollow = 0
	OpenNoWait   = 0
)

// canLeaveWrites: an open file cannot be renamed (pendingwrite.go).
const canLeaveWrites = false
