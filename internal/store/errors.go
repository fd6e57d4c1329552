package store

import (
	"errors"
	"fmt"

	"thread/event"
)

// What stores return. Package engine has them under the same names.
var (
	ErrNotThread   = errors.New("not a thread directory")
	ErrExists      = errors.New("already a thread directory")
	ErrNotDir      = errors.New("not a directory")
	ErrSQLite      = errors.New("a SQLite thread directory")
	ErrNotDatabase = errors.New("events.db is not a thread database")
	ErrEmpty       = fmt.Errorf("%w: it is empty", ErrNotDatabase)
	ErrOldFormat   = fmt.Errorf("%w: written before the first release", ErrNotDatabase)
	ErrNewerFormat = errors.New("written by a newer version")
	ErrByteOrder   = errors.New("written on a host of other byte order")
	ErrTooLarge    = errors.New("database is too large for this host's address space")
	ErrCorrupt     = errors.New("database is damaged")
	// ErrOwner says that what replaces a file would take it from its owner. Nothing was
	// changed.
	ErrOwner = errors.New("the thread belongs to another account")
	// ErrNothingSaved says that a repair found nothing of a thread.
	ErrNothingSaved = fmt.Errorf("%w: nothing that can be saved", ErrCorrupt)

	ErrBusy         = errors.New("thread is busy")
	ErrClosed       = errors.New("thread is closed")
	ErrInvalid      = event.ErrInvalid
	ErrIDsExhausted = errors.New("the largest event id is in use")
	// ErrUnknownOutcome says that a commit failed in its very last step: the change may
	// be stored or not. All other errors mean that nothing was.
	ErrUnknownOutcome = errors.New("outcome unknown: the change may be stored")
)

// Invalidf returns an error that wraps ErrInvalid.
func Invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
