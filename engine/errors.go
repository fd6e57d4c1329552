package engine

import (
	"errors"
	"fmt"

	"thread/event"
	"thread/lock"
)

// Errors about the directory, from Init, Open and every call that opens the
// database.
var (
	ErrNotThread   = errors.New("not a thread directory")
	ErrExists      = errors.New("already a thread directory")
	ErrNotDir      = errors.New("not a directory")
	ErrSQLite      = errors.New("a SQLite thread directory") // events.db is a SQLite database
	ErrNotDatabase = errors.New("events.db is not a thread database")
	ErrEmpty       = fmt.Errorf("%w: it is empty", ErrNotDatabase)
	ErrNewerFormat = errors.New("written by a newer version")
	ErrByteOrder   = errors.New("written on a host of other byte order")
	ErrTooLarge    = errors.New("database is too large for this host's address space") // 1 GiB where it has 32 bits; also from a write that would make it so
	ErrCorrupt     = errors.New("database is damaged")
	// ErrNothingSaved says that Repair found nothing of a thread.
	ErrNothingSaved = fmt.Errorf("%w: nothing that can be saved", ErrCorrupt)
	// ErrNetwork says that the directory is on a network file system, where two hosts
	// do not see each other's locks or pages. THREAD_NETWORK=allow in the environment
	// goes on all the same.
	ErrNetwork = lock.ErrNetwork
)

// Errors about one call.
var (
	ErrBusy               = errors.New("thread is busy") // the lock did not come within the wait
	ErrClosed             = errors.New("thread is closed")
	ErrInvalid            = event.ErrInvalid // an argument is out of bounds
	ErrNoSubscription     = errors.New("no such subscription")
	ErrSubscriptionExists = errors.New("subscription exists")
	ErrPaused             = errors.New("subscription is paused")
	ErrIDsExhausted       = errors.New("the largest event id is in use")
	// ErrUnknownOutcome says that a commit failed in its very last step: the
	// change may be stored or not. All other errors mean that nothing was.
	ErrUnknownOutcome = errors.New("outcome unknown: the change may be stored")
)
