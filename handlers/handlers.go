// Package handlers starts the handlers of a thread from Go: after a push of the library
// they run as they do after a push of the program.
//
//	e, err := t.Push(ctx, draft)
//	if err == nil {
//		err = handlers.Wake(ctx, t, e.Source) // the event is stored, whatever this says
//	}
//
// The program "thread" has to be installed on the host: handlers are run by a process
// of it, which outlives this one. It is looked for next to this program's file, in
// libexec/thread next to that directory, and on PATH, except entries of PATH that are
// relative. A program that only reads, pops or takes a Feed needs none of this.
package handlers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thread/engine"
	"thread/internal/dispatch"
)

var (
	// ErrNoProgram says that the program "thread" was not found.
	ErrNoProgram = dispatch.ErrNoProgram

	// ErrOwner says that the thread belongs to another account, whose handlers this one
	// does not run. (Root starts them as that account.)
	ErrOwner = errors.New("the thread belongs to another account")
)

// Wake sees to it that the handlers run which have unread events, and returns at once.
// A running "thread serve" is told, which takes one datagram; without one, a detached
// process of the program starts. source is the source of the last event pushed. A thread
// without subscriptions costs one read. One call after several pushes is enough.
//
// The environment counts as it does for the program: THREAD_DISPATCH=none starts
// nothing, and a push made in a handler does not start that handler again at once.
//
// Wake returns [ErrNoProgram], [ErrOwner], the errors of [engine.Thread.View], or
// errors of starting a process. The events are stored all the same, and the next push,
// or "thread dispatch", runs the handlers.
func Wake(ctx context.Context, t *engine.Thread, source string) error {
	subscribed := false
	err := t.View(ctx, func(tx *engine.Tx) error {
		subscribed = tx.HasSubscriptions()
		return nil
	})
	if err == nil && !subscribed { // the process that starts handlers also keeps the thread's limits
		subscribed, err = t.RetainDue(ctx)
	}
	switch {
	case err != nil:
	case subscribed:
		err = dispatch.Wake(ctx, t, source)
	default:
		err = dispatch.WakeUnsubscribed(ctx, t, source)
	}
	return explained(err)
}

// WakeAt is for an event that was scheduled ([engine.Thread.PushAt] and
// [engine.Thread.PushAfter] with an id of 0). It tells a running "thread serve", or
// leaves a process that waits for times within the hour, and reports whether a process
// will release the event at its time; if not, the next use of the thread after it
// does. Errors are as of [Wake], and the event is scheduled all the same.
func WakeAt(ctx context.Context, t *engine.Thread, at time.Time) (awaited bool, err error) {
	awaited, err = dispatch.Rescheduled(ctx, t, at)
	return awaited, explained(err)
}

// explained makes an error of package dispatch one that callers can tell.
func explained(err error) error {
	if foreign := (*dispatch.OwnerError)(nil); errors.As(err, &foreign) {
		return fmt.Errorf("%w: %w", ErrOwner, err)
	}
	return err
}
