package history

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"thread/internal/command"
	"thread/internal/store"
	"thread/lock"
)

// A history of a thread on a server is a separate thread there, next to the thread. Any
// number of hosts write it, so that its runs beat in the store, by the clock of the server. A
// run without a beat for three intervals is recovered by any host. Its worker has ended the
// command after two intervals without an answer, and the fence of each write, which is the
// attempt in the row of the run, refuses what it stores later.
//
// A host keeps the locks of supervised runs in its own place. They serve to end what a
// worker that was killed has left on this host.

// wantsIndexes returns ctx for a transaction that will ask for these keys of indexes, and go
// through indexes from these places on.
func (h *History) wantsIndexes(ctx context.Context, keys [][]byte, from ...[]byte) context.Context {
	if h.of == nil {
		return ctx
	}
	w := store.WantedOf(ctx)
	w.Records = slices.Concat(w.Records, wantedIn(tableBy, keys))
	w.From = slices.Concat(w.From, wantedIn(tableBy, from))
	return w.With(ctx)
}

// local returns the directory on this host that has the logs of the thread.
func (h *History) local() string {
	if h.of != nil {
		return h.of.Dir()
	}
	return h.parent
}

// beating returns the store of beats, nil where there is no history yet.
func (h *History) beating() (store.Beating, error) {
	t, err := h.thread(false)
	if err != nil || t == nil {
		return nil, err
	}
	return t.Store().(store.Beating), nil
}

// stopBeatTime bounds the wait of a run that has ended for a server that does not answer.
const stopBeatTime = 5 * time.Second

func (h *History) stopBeat(run string) {
	if h.of == nil {
		return // the beat is a file
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopBeatTime)
	defer cancel()
	if b, err := h.beating(); err == nil && b != nil {
		_ = b.StopBeat(ctx, run) // a row that stays is of no harm
	}
}

// silence returns how long ago a run beat last, and whether that is known.
func (tx *Tx) silence(run string) (d time.Duration, known bool) {
	if tx.beats == nil {
		tx.beats, _ = tx.e.Store().(store.Beats).Beats() // nil with an error, which ends the transaction
	}
	d, known = tx.beats[run]
	return d, known
}

// beatOnServer is beatOf for a thread on a server.
func (tx *Tx) beatOnServer(run string) time.Time {
	d, known := tx.silence(run)
	if !known {
		return time.Time{}
	}
	return tx.now.Add(-d).Truncate(time.Millisecond)
}

// judgeOnServer is judge for a thread on a server. The row has the time of the latest beat, or
// the time of the start.
func (tx *Tx) judgeOnServer(run *RunRow, staleAfter time.Duration) (v vitality, silent time.Duration) {
	silent = max(0, tx.now.Sub(run.HeartbeatAt))
	path := tx.h.beatPath(run.ID)
	switch {
	case run.Supervised && diedHere(path, run.Attempt) && leftHere(path):
		return left, silent
	case run.Supervised && diedHere(path, run.Attempt):
		return dead, silent
	case silent <= staleAfter, tx.beats == nil: // they could not be read
		return alive, silent
	}
	return dead, silent
}

// leftHere reports whether a worker on this host was killed and its command runs, by the path
// of the worker's lock.
func leftHere(path string) bool {
	return ask(path) == nil && errors.Is(ask(treeOf(path)), lock.ErrHeld)
}

// endLocal ends what workers that were killed on this host have left: another host may have
// taken their runs.
func (h *History) endLocal(ctx context.Context) {
	dir := h.beatDir()
	entries, _ := os.ReadDir(dir) // without it, nothing is left
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), treeEnd)
		if path := filepath.Join(dir, name); ok && leftHere(path) {
			_, _ = endLeftAt(ctx, path, &command.Left{Trees: []string{treeOf(path)}}) // it is tried again
		}
	}
}

// lookEvery is how often at most a worker looks whether its run is to be cancelled: every
// write of the history wakes all workers.
const lookEvery = time.Second

// beatServer is the loop of Beat for a thread on a server.
func (r *Run) beatServer(ctx context.Context, every time.Duration, cancel context.CancelCauseFunc) {
	beaten := time.Now() // its start
	if pause(ctx, min(every/2, lookEvery)) != nil {
		return // a short run needs no beat
	}
	t, err := r.h.thread(true)
	if err != nil {
		cancel(err)
		return
	}
	w, err := t.Watch()
	if err != nil {
		cancel(err)
		return
	}
	defer w.Close()
	for {
		began := time.Now()
		limited, stop := context.WithDeadlineCause(ctx, beaten.Add(2*every), ErrCutOff)
		err := r.BeatOnce(limited)
		stop()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			beaten = began
		case errors.Is(err, ErrCancelled), errors.Is(err, ErrRecovered), errors.Is(err, ErrEnded), errors.Is(err, ErrNotFound):
			cancel(err)
			return
		case time.Since(beaten) >= 2*every:
			cancel(ErrCutOff)
			return
		}
		if pause(ctx, min(every/2, lookEvery)) != nil || w.Wait(ctx, began.Add(every)) != nil {
			return
		}
	}
}

// BeatOnce says that the run lives. It returns [ErrCancelled] when the run is to be
// cancelled, and [ErrRecovered] and [ErrEnded].
func (r *Run) BeatOnce(ctx context.Context) error {
	cancelled := false
	err := r.h.View(ctx, func(tx *Tx) error {
		row, err := tx.fenced(r.id, r.attempt)
		cancelled = !row.CancelRequestedAt.IsZero()
		return err
	})
	switch {
	case err != nil:
		return err
	case cancelled:
		err = ErrCancelled
	}
	return errors.Join(err, r.keep(ctx))
}

// release gives the lock back; over says that the beat is of no use any more.
func (r *Run) release(over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if over {
		if !r.silent {
			r.h.stopBeat(r.id)
		}
		r.h.forgetHere(r.id)
	}
	if r.tree != nil { // first: who finds it held without a worker ends those who have it
		_ = lock.Unlock(r.tree.File()) // also for what the command has left behind
		_ = r.tree.Close()
	}
	if r.lock != nil {
		_ = r.lock.Close() // it was only held
	}
	r.lock, r.tree = nil, nil
}

// Leave gives up a run without ending it: recovery finds it.
func (r *Run) Leave() { r.release(false) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
