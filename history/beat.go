package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/command"
	"thread/lock"
)

// A run beats by touching run/.beat/<run>, which costs no history event and wears no
// flash. The process of a supervised run also holds two kernel locks: one on that file, and
// the tree lock on run/.beat/<run>~tree, which the command of the run inherits. See package
// command.

func (h *History) beatPath(run string) string { return filepath.Join(h.beatDir(), lock.Name(run)) }

// treePath has a character that no encoded id has.
func (h *History) treePath(run string) string { return treeOf(h.beatPath(run)) }

func treeOf(beat string) string { return beat + treeEnd }

const treeEnd = "~tree"

// beatOf returns when the run beat last, the zero time where that is not known.
func (tx *Tx) beatOf(run string) time.Time {
	if tx.h.of != nil {
		return tx.beatOnServer(run)
	}
	return tx.h.beatOf(run)
}

// beatOf is that for a directory.
func (h *History) beatOf(run string) time.Time {
	info, err := os.Lstat(h.beatPath(run))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime().UTC().Truncate(time.Millisecond)
}

// touch makes the run beat now.
func (h *History) touch(ctx context.Context, run string) error {
	if h.of != nil {
		return h.beatOnServer(ctx, run)
	}
	now := h.now()
	path := h.beatPath(run)
	err := os.Chtimes(path, now, now)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := h.makeBeatDir(); err != nil {
		return err
	}
	f, err := lock.Create(path, os.O_RDWR|lock.NoFollow)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Chtimes(path, now, now)
}

func (h *History) beatOnServer(ctx context.Context, run string) error {
	b, err := h.beating()
	if err != nil || b == nil {
		return err
	}
	return b.Beat(ctx, run)
}

// supervise takes the locks of a run, alone only the first one. It returns lock.ErrHeld where
// another process has that, and *leftError where a command of an earlier attempt has the tree
// lock.
func (h *History) supervise(run string, alone bool) (own, tree *lock.File, err error) {
	if err := h.makeBeatDir(); err != nil {
		return nil, nil, err
	}
	if own, err = lock.Try(h.beatPath(run), lock.Exclusive); err != nil {
		return nil, nil, err
	}
	if alone {
		err = ask(h.treePath(run))
	} else {
		tree, err = lock.Try(h.treePath(run), lock.Exclusive)
	}
	switch {
	case errors.Is(err, lock.ErrHeld):
		err = &leftError{run}
	case alone && errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		_ = own.Close() // it was only held
		return nil, nil, err
	}
	return own, tree, nil
}

// leftError says that a process is left of the command of a run whose worker is gone.
type leftError struct{ run string }

func (e *leftError) Error() string {
	return fmt.Sprintf("the command of run %q has not ended, though its worker has", e.run)
}

// endLeft ends what is left of the command of a run, and reports whether it has ended. Where
// processes cannot be found, as on other systems than Linux, it has not until it ends itself.
// The lock of the run is held meanwhile: without it, the run could be recovered and begun
// again, and the new attempt, which has the same id, would be ended.
func (h *History) endLeft(ctx context.Context, run string) (bool, error) {
	path := h.beatPath(run)
	return endLeftAt(ctx, path, &command.Left{RunID: run, Dir: h.parent, Trees: []string{treeOf(path)}})
}

// endLeftAt is endLeft by the path of the lock of the run.
func endLeftAt(ctx context.Context, path string, left *command.Left) (bool, error) {
	limited, stop := context.WithTimeout(ctx, command.Grace+time.Second)
	defer stop()
	own, err := lock.Open(limited, path, lock.Exclusive)
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return true, nil // a worker has it, and the run is judged again
	case err != nil:
		return false, err
	}
	defer own.Close()
	if err := left.End(ctx, command.Grace, nil); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, command.EndPause)
	defer cancel()
	f, err := os.OpenFile(treeOf(path), os.O_RDWR|lock.NoFollow, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), nil
	}
	defer f.Close()
	return lock.Wait(ctx, f, lock.Shared) == nil, nil
}

// forget removes what a run that has ended has left.
func (h *History) forget(run string) {
	h.stopBeat(run)
	h.forgetHere(run)
}

// forgetHere is forget of what is on this host.
func (h *History) forgetHere(run string) {
	_ = os.Remove(h.beatPath(run))
	_ = os.Remove(h.treePath(run))
	_ = os.Remove(h.keptPath(run))
}

func (h *History) keptPath(run string) string { return h.beatPath(run) + "~end" }

// vitality is what is known of a run that is active.
type vitality int

const (
	alive   vitality = iota
	unknown          // no beat was ever seen: it counts from now on
	left             // its worker is gone, its command is not
	dead
)

// judge says whether a run lives that last beat within staleAfter, or is supervised
// and has its lock. For how long it has not beaten, it returns as well.
func (tx *Tx) judge(run *RunRow, staleAfter time.Duration) (v vitality, silent time.Duration) {
	h := tx.h
	if h.of != nil {
		return tx.judgeOnServer(run, staleAfter)
	}
	if _, ok := HandlerOf(run); ok && h.handlerRuns(run) {
		return alive, 0
	}
	path := h.beatPath(run.ID)
	info, err := os.Lstat(path)
	if err != nil {
		return unknown, 0
	}
	silent = max(0, h.now().Sub(info.ModTime()))
	if run.Supervised {
		err := ask(path)
		switch {
		case errors.Is(err, lock.ErrHeld):
			return alive, silent
		case err == nil && errors.Is(ask(h.treePath(run.ID)), lock.ErrHeld):
			return left, silent
		case err == nil:
			return dead, silent
		case errors.Is(err, fs.ErrNotExist):
			return unknown, silent
		}
		// Locks cannot be had here, or it is another account's: its beat decides.
	}
	if silent > staleAfter {
		return dead, silent
	}
	return alive, silent
}

// handlerRuns reports whether the handler of that run is running: it is the one of its
// consumer's record, and the consumer has a supervisor. Only that lock may be asked for,
// as who finds one of the others held leaves an event to its holder.
func (h *History) handlerRuns(row *RunRow) bool {
	name := lock.Name(row.AgentName)
	f, err := os.OpenFile(filepath.Join(h.parent, "run", name+".busy"), os.O_RDWR|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if err := lock.TryFile(f, lock.Shared); !errors.Is(err, lock.ErrHeld) {
		return false
	}
	text, err := lock.ReadFile(filepath.Join(h.parent, "logs", "handlers", name+".run"))
	var rec struct {
		RunID string `json:"run_id"`
	}
	return err == nil && json.NewDecoder(bytes.NewReader(text)).Decode(&rec) == nil && rec.RunID == row.ID
}

// HandlerOf returns the handler of a run of a handler, and whether it is one.
func HandlerOf(r *RunRow) (h HandlerRun, ok bool) {
	if !bytes.Contains(r.Metadata, []byte(`"handler":`)) {
		return h, false
	}
	var in struct {
		Handler *HandlerRun `json:"handler"`
	}
	if json.Unmarshal(r.Metadata, &in) != nil || in.Handler == nil {
		return h, false
	}
	return *in.Handler, true
}

// ask returns lock.ErrHeld if the lock of the file is held.
func ask(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|lock.NoFollow, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return lock.TryFile(f, lock.Shared)
}

// diedHere reports whether the worker of that attempt was a process of this host, and is gone.
func diedHere(path string, attempt int64) bool {
	text, err := lock.ReadFile(path)
	return err == nil && string(text) == fmt.Sprintf("%d\n", attempt) && ask(path) == nil
}

// keep touches the beat of the run. If run/ was deleted, the lock went with it: a
// supervised run takes the new one.
func (r *Run) keep(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock != nil {
		if same, _ := lock.Names(r.h.beatPath(r.id), r.lock.File()); !same {
			own, tree, err := r.h.supervise(r.id, r.tree == nil)
			if err != nil {
				return err
			}
			_ = r.lock.Close() // of files that have no name
			if r.tree != nil {
				_ = r.tree.Close()
			}
			r.lock, r.tree = own, tree
			r.noteAttempt()
		}
	}
	r.silent = false
	return r.h.touch(ctx, r.id)
}

// Beat lets the run beat every so often, 0 for [DefaultBeat] and at least [MinBeat],
// until stop is called or ctx ends. The context that it returns ends when the run is
// to be cancelled or is not this handle's any more; its cause is then [ErrCancelled],
// [ErrRecovered] or [ErrEnded]. A directory that cannot be read for a while ends
// nothing. A server ends the context with [ErrCutOff] when a beat is two intervals late, because
// another host may take the run after the third.
func (r *Run) Beat(ctx context.Context, every time.Duration) (_ context.Context, stop func()) {
	if every <= 0 {
		every = DefaultBeat
	}
	every = max(every, MinBeat)
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if r.h.of != nil {
			r.beatServer(ctx, every, cancel)
			return
		}
		if pause(ctx, lookPause) != nil {
			return // a short run has beaten at its start
		}
		var w engine.Watcher
		if t, err := r.h.thread(true); err == nil {
			if w, err = t.Watch(); err == nil {
				defer r.h.leaveWatch(w)
			}
		}
		for {
			switch err := r.BeatOnce(ctx); {
			case errors.Is(err, ErrCancelled), errors.Is(err, ErrRecovered), errors.Is(err, ErrEnded), errors.Is(err, ErrNotFound):
				cancel(err)
				return
			}
			if !r.wait(ctx, w, every) || pause(ctx, lookPause) != nil {
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-ended
	}
}

// lookPause is how long a worker of a directory waits after a write before it looks whether its
// run is to be cancelled: every write wakes all workers.
const lookPause = 20 * time.Millisecond

// leaveWatch closes a watcher. In a directory it does not wait for the kernel, which takes up to
// 20 ms: longer than all else of a short run.
func (h *History) leaveWatch(w engine.Watcher) {
	if h.of != nil {
		_ = w.Close() // it only waited
		return
	}
	go w.Close()
}

// endAllLeft ends what is left of the commands of all these runs, at the same time: each has
// the whole grace.
func (h *History) endAllLeft(ctx context.Context, active []RunRow, judged []vitality) {
	var all sync.WaitGroup
	for i := range active {
		if judged[i] == left {
			all.Go(func() { _, _ = h.endLeft(ctx, active[i].ID) }) // it is judged again
		}
	}
	all.Wait()
}

// wait returns true when it is time to beat again, or something was written, which
// may be that the run is to be cancelled.
func (r *Run) wait(ctx context.Context, w engine.Watcher, every time.Duration) bool {
	if w != nil {
		return w.Wait(ctx, time.Now().Add(every)) == nil
	}
	timer := time.NewTimer(every)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// HandlerRun is what the run of a handler has next to its row: the member "handler" of
// its metadata.
type HandlerRun struct {
	Exit      string `json:"exit,omitempty"` // "exit 3", "killed by SIGKILL", "timed out after 5m0s"
	ExitCode  *int64 `json:"exit_code"`
	AckedFrom int64  `json:"acked_from"` // the consumer's progress at the start
	AckedTo   int64  `json:"acked_to"`   // and after the end
}
