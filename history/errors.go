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
	// worker: what that worker writes afterwards is not stored.
	ErrRecovered = errors.New("the run was recovered")
	// ErrEnded says that the run has ended, or was never started.
	ErrEnded = errors.New("the run is not active")
	// ErrCancelled is the cause of the end of a run's context when it is to end.
	ErrCancelled = errors.New("the run is to be cancelled")
	// ErrCutOff is the cause of the end of a run's context when its server did not answer for
	// so long that another host may take the run.
	ErrCutOff = errors.New("the server could not be reached, and another host may take the run")
	// ErrState says that a run in this state cannot be what it is asked to be.
	ErrState = errors.New("the run is in another state")
	// ErrActive says that a session has runs that have not ended.
	ErrActive = errors.New("the session has an active run")
	// ErrNoneReady says that no run in the queue may be started now.
	ErrNoneReady = errors.New("no run is ready")
	// ErrOwner says that only the account that the thread belongs to, or root, may do that.
	ErrOwner = errors.New("of another account")
	// ErrOutcome says that a process died during a step that has to happen once.
	ErrOutcome = errors.New("it is unknown whether the step has happened")
	// ErrWaiting says that the answer to a wait of a run is not there yet.
	ErrWaiting = errors.New("the run waits")
	// ErrLimit is wrapped by *LimitError.
	ErrLimit = errors.New("a limit is reached")
)

// DirError is an error about the directory of a history, Dir, which is not one about the
// thread that the history belongs to. It wraps the error of the engine.
type DirError struct {
	Dir string
	Err error
}

func (e *DirError) Error() string { return e.Err.Error() }
func (e *DirError) Unwrap() error { return e.Err }

// HistoryDir returns Dir, for programs that do not link this package.
func (e *DirError) HistoryDir() string { return e.Dir }

func invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

func notFound(e Entity, id string) error { return fmt.Errorf("%w: %s %q", ErrNotFound, e, id) }

// corrupt says that the tables and the log do not fit.
func corrupt(e Entity, id string) error {
	return fmt.Errorf("%w: the history of %s %q; thread history rebuild makes its tables again", engine.ErrCorrupt, e, id)
}
