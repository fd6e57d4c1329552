package dispatch

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/programs"
	"thread/jsonlog"
	"thread/lock"
)

// Options are the settings of a dispatch. The supervisors it starts keep them.
type Options struct {
	// MaxHandlers is how many handlers of the thread run at once; 0 means twice
	// the number of cores. Dispatches with different bounds share the slots below
	// the smaller one.
	MaxHandlers int
}

// dispatcher runs the handlers of one thread directory.
type dispatcher struct {
	t   *engine.Thread
	log *jsonlog.Log
	run string // <thread>/run
	max int    // slots

	after     string             // the consumer whose handler made the push, see author
	takeovers int                // how many supervisors in a row were killed before this one
	inherited map[string]*output // by run: outputs taken over from a killed supervisor
	busyTries int                // how often a look is tried when the thread is busy, 0: until it is done
	unwritten unwritten

	taking    sync.Mutex
	takeLater *time.Timer // asks the history to take what has ended; nil: nothing to take
}

// serverSlots is how many slots a server has: no bound, as its own is what counts.
const serverSlots = 1 << 20

func newDispatcher(t *engine.Thread, o Options) *dispatcher {
	if o.MaxHandlers <= 0 {
		o.MaxHandlers = 2 * runtime.NumCPU()
	}
	return &dispatcher{t: t, log: jsonlog.OpenLog(t.Dir()), run: filepath.Join(t.Dir(), "run"), max: o.MaxHandlers}
}

// path returns the consumer's file with the ending. Other packages use names with a
// leading dot in run/, which lock.Name does not give out. The endings are known to
// programs of other versions.
func (r *dispatcher) path(consumer, ending string) string {
	return filepath.Join(r.run, lock.Name(consumer)+ending)
}
func (r *dispatcher) handlerLockPath(consumer string) string    { return r.path(consumer, ".lock") }
func (r *dispatcher) supervisorLockPath(consumer string) string { return r.path(consumer, ".busy") }
func (r *dispatcher) treeLockPath(consumer string) string       { return r.path(consumer, ".tree") }
func (r *dispatcher) workLockPath(consumer string) string       { return r.path(consumer, ".turn") }
func (r *dispatcher) notePath(consumer string) string           { return r.path(consumer, ".json") }
func (r *dispatcher) poppedPath(consumer string) string         { return r.path(consumer, ".popped") }
func (r *dispatcher) slotPath(i int) string                     { return filepath.Join(r.run, "slots", strconv.Itoa(i)) }

// prepare makes the directory of the locks, which may be deleted at any time.
func (r *dispatcher) prepare() error {
	if _, err := os.Stat(r.t.Dir()); err != nil {
		return err // not ours to bring back
	}
	for _, dir := range []string{r.run, filepath.Join(r.run, "slots")} {
		if err := lock.Mkdir(dir); err != nil {
			return err
		}
	}
	return nil
}

// trySlot takes a free slot, and returns nil when there is none.
func (r *dispatcher) trySlot() (*lock.File, error) {
	for i := range r.max {
		l, err := lock.Try(r.slotPath(i), lock.Exclusive)
		if err == nil || !errors.Is(err, lock.ErrHeld) {
			return l, err
		}
	}
	return nil, nil
}

// release gives a lock back, even if a child that is just being started has a
// copy of the descriptor. A nil l is nothing to release.
func release(l *lock.File) {
	if l == nil {
		return
	}
	_ = lock.Unlock(l.File()) // for every process that has the descriptor
	l.Close()
}

// retryBusy calls look until the thread is not busy, each time with the engine's
// own wait of some seconds. In a process that was started to look there is no process
// to give ErrBusy to: a look that is given up would leave an event behind.
func retryBusy[T any](ctx context.Context, r *dispatcher, look func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := look()
		if !errors.Is(err, engine.ErrBusy) || try == r.busyTries || ctx.Err() != nil {
			return v, err
		}
	}
}

// due returns what is due, by the first unread event of each consumer (L-06).
func (r *dispatcher) due(ctx context.Context) ([]engine.Due, error) {
	return retryBusy(ctx, r, func() ([]engine.Due, error) { return dueInOrder(ctx, r.t) })
}

// dueInOrder is t.Due in the order in which consumers take room: the consumer whose first
// unread event is the oldest comes first, and of several the one that subscribed first.
func dueInOrder(ctx context.Context, t *engine.Thread) ([]engine.Due, error) {
	due, err := t.Due(ctx)
	slices.SortStableFunc(due, func(a, b engine.Due) int { return cmp.Compare(a.First, b.First) })
	return due, err
}

// dueFor looks at one consumer. One that is gone, or whose filter is broken, is
// not due, which is logged, nor is one without a handler.
func (r *dispatcher) dueFor(ctx context.Context, consumer string, after int64) (engine.Due, error) {
	d, err := retryBusy(ctx, r, func() (engine.Due, error) { return r.t.DueFor(ctx, consumer, after) })
	if errors.Is(err, engine.ErrNoSubscription) {
		return engine.Due{}, nil
	}
	if d.Pull {
		d.First = 0 // nothing is started for it
		return d, err
	}
	if err == nil && d.Err != nil {
		r.logBroken(consumer, d.Err)
		d.First = 0
	}
	return d, err
}

func (r *dispatcher) logBroken(consumer string, err error) {
	r.log.Warn("dispatch: consumer=%s skipped (filter: %v)", consumer, err)
}

// report logs an error that stops work on one consumer but not on the others.
func (r *dispatcher) report(consumer string, err error) {
	r.noteTrouble(err)
	r.log.Error("supervise: consumer=%s %v", consumer, err)
}

// ErrNoProgram says that the program to start is not found.
var ErrNoProgram = errors.New("the program " + programs.Main + " is not found")

// executable is the program to start for a dispatch or a supervisor.
func executable() (string, error) {
	if exe := programs.Thread(); exe != "" {
		return exe, nil
	}
	return "", ErrNoProgram
}
