package lane

import (
	"errors"
	"fmt"

	"thread/internal/lanes"
)

// Why a task never started. Submit and Task.Err return them inside a
// [*RefusedError]; test with errors.Is.
var (
	// ErrDraining: the queue takes no new tasks since Drain (L-14).
	ErrDraining = errors.New("queue is draining")
	// ErrCanceled: the context ended before the task started. The error also
	// wraps the context's cause (L-15).
	ErrCanceled = errors.New("canceled before start")
	// ErrCleared: Clear removed the task from its lane (L-11).
	ErrCleared = errors.New("lane cleared")
	// ErrReentrant: the context belongs to a task that holds the session lane
	// the new task would wait for (L-20).
	ErrReentrant = errors.New("submitted from within the same session")
	// ErrSessionLane: a session lane was given where only a global lane can be.
	ErrSessionLane = errors.New("a session lane cannot be used as a global lane")
)

// ErrGoexit is the error of a task that ended its goroutine by runtime.Goexit.
var ErrGoexit = errors.New("task called runtime.Goexit")

// RefusedError is the error of a task that never started.
type RefusedError struct {
	Lane   string // the lane that refused the task
	Reason error  // one of the sentinels above
	Cause  error  // for ErrCanceled the context's cause, otherwise nil
}

func (e *RefusedError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("lane %s: %v: %v", lanes.Shown(e.Lane), e.Reason, e.Cause)
	}
	return fmt.Sprintf("lane %s: %v", lanes.Shown(e.Lane), e.Reason)
}

// Unwrap returns the reason and, when there is one, the cause.
func (e *RefusedError) Unwrap() []error {
	if e.Cause != nil {
		return []error{e.Reason, e.Cause}
	}
	return []error{e.Reason}
}

// PanicError is the error of a task that panicked.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // the stack of the panicking goroutine, for a log
}

func (e *PanicError) Error() string { return fmt.Sprintf("task panicked: %v", e.Value) }

// Unwrap returns the value when it is an error, so errors.Is sees through it.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
