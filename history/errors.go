package history

import (
	"errors"
	"fmt"

	"thread/engine"
)

// Errors about one call. Errors of the engine come through as they are.
var (
	ErrInvalid = engine.ErrInvalid // a column or an argument is out of bounds

	ErrNotFound = errors.New("no such row")
	ErrExists   = errors.New("row exists")
	// ErrRecovered says that recovery has ended the run, or has given it to another
	// worker: what such a worker writes afterwards is not stored.
	ErrRecovered = errors.New("the run was recovered")
	// ErrEnded says that the run has ended, or was never started.
	ErrEnded = errors.New("the run is not active")
	// ErrCancelled is the cause of the end of a run's context when it is to end.
	ErrCancelled = errors.New("the run is to be cancelled")
	// ErrState says that a run in this state cannot be what it is asked to be.
	ErrState = errors.New("the run is in another state")
	// ErrActive says that a session has runs that have not ended.
	ErrActive = errors.New("the session has an active run")
	// ErrNoneReady says that no run in the queue may be started now.
	ErrNoneReady = errors.New("no run is ready")
	// ErrOwner says that only the account that the thread belongs to, or root, may do that.
	ErrOwner = errors.New("of another account")
	// ErrLimit is wrapped by *LimitError.
	ErrLimit = errors.New("a limit is reached")
)

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func notFound(e Entity, id string) error { return fmt.Errorf("%w: %s %q", ErrNotFound, e, id) }

// corrupt says that the tables and the log do not fit.
func corrupt(e Entity, id string) error {
	return fmt.Errorf("%w: the history of %s %q; thread history rebuild makes its tables anew", engine.ErrCorrupt, e, id)
}
