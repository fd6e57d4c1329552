package engine

import (
	"errors"

	"thread/internal/store"
	"thread/lock"
)

// Errors about the directory, from Init, Open and every call that opens the
// database.
var (
	ErrNotThread   = store.ErrNotThread
	ErrExists      = store.ErrExists
	ErrNotDir      = store.ErrNotDir
	ErrSQLite      = store.ErrSQLite // events.db is a SQLite database
	ErrNotDatabase = store.ErrNotDatabase
	ErrEmpty       = store.ErrEmpty
	ErrNewerFormat = store.ErrNewerFormat
	ErrByteOrder   = store.ErrByteOrder
	ErrTooLarge    = store.ErrTooLarge // 1 GiB where it has 32 bits; also from a write that would make it so
	ErrCorrupt     = store.ErrCorrupt
	ErrOwner       = store.ErrOwner
	// ErrNetwork says that the directory is on a network file system, where two hosts
	// do not see each other's locks or pages. WithNetworkMount continues all the same.
	ErrNetwork = lock.ErrNetwork
)

// Errors about one call.
var (
	ErrBusy               = store.ErrBusy // the lock did not come within the wait
	ErrClosed             = store.ErrClosed
	ErrInvalid            = store.ErrInvalid // an argument is out of bounds
	ErrNoSubscription     = errors.New("no such subscription")
	ErrSubscriptionExists = errors.New("subscription exists")
	ErrPaused             = errors.New("subscription is paused")
	// ErrPull says that the consumer has no handler, and is for [Thread.Next] and a Feed
	// without parallel deliveries; ErrNotPull that it has one.
	ErrPull    = errors.New("the consumer has no handler")
	ErrNotPull = errors.New("the consumer has a handler")
	// ErrOut says that events of a consumer are in flight with a Feed: one that works, or one
	// whose process was killed.
	ErrOut = errors.New("events are in flight")
	// ErrConsumerBusy says that another Feed or ParallelFeed, in this process or another,
	// uses the consumer. [Thread.Next] returns it along with ErrOut.
	ErrConsumerBusy = errors.New("another feed uses the consumer")
	// ErrStale: a delivery is no longer in flight. Its result is stored, its events
	// were given out again, or the consumer was moved by hand.
	ErrStale        = errors.New("the delivery is not in flight")
	ErrIDsExhausted = store.ErrIDsExhausted
	// ErrUnknownOutcome says that a commit failed in its very last step: the
	// change may be stored or not. All other errors mean that nothing was.
	ErrUnknownOutcome = store.ErrUnknownOutcome
)
