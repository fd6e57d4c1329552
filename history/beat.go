package history

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"thread/internal/watch"
	"thread/lock"
)

// A run beats by touching run/.beat/<run>, which costs no history event and wears no
// flash. A supervised run holds the kernel lock on that file, too.

func (h *History) beatPath(run string) string {
	return filepath.Join(h.dir, "run", ".beat", lock.Name(run))
}

// beatOf returns when the run beat last, the zero time where that is not known.
func (h *History) beatOf(run string) time.Time {
	info, err := os.Lstat(h.beatPath(run))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime().UTC().Truncate(time.Millisecond)
}

// touch makes the run beat now.
func (h *History) touch(run string) error {
	now := h.now()
	path := h.beatPath(run)
	err := os.Chtimes(path, now, now)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := h.makeBeatDir(); err != nil {
		return err
	}
	f, err := lock.Create(path, os.O_RDWR)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Chtimes(path, now, now)
}

func (h *History) makeBeatDir() error {
	dir := filepath.Join(h.dir, "run")
	if err := lock.Mkdir(dir); err != nil {
		return err
	}
	return makeDir(filepath.Join(dir, ".beat"), h.dir)
}

// supervise takes the lock of a run, which says that it lives. It returns
// lock.ErrHeld where another process has it.
func (h *History) supervise(run string) (*lock.File, error) {
	if err := h.makeBeatDir(); err != nil {
		return nil, err
	}
	return lock.Try(h.beatPath(run), lock.Exclusive)
}

// forget removes what a run that has ended has left.
func (h *History) forget(run string) { _ = os.Remove(h.beatPath(run)) }

// vitality is what is known of a run that is active.
type vitality int

const (
	alive   vitality = iota
	unknown          // no beat was ever seen: it counts from now on
	dead
)

// judge says whether a run lives that last beat within staleAfter, or is supervised
// and has its lock. For how long it has not beaten, it returns as well.
func (h *History) judge(run *RunRow, staleAfter time.Duration) (v vitality, silent time.Duration) {
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
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return unknown, silent
		}
		if err == nil {
			defer f.Close()
			err = lock.TryFile(f, lock.Exclusive)
		}
		switch {
		case errors.Is(err, lock.ErrHeld):
			return alive, silent
		case err == nil:
			return dead, silent
		}
		// Locks cannot be had here, or it is another account's: its beat decides.
	}
	if silent > staleAfter {
		return dead, silent
	}
	return alive, silent
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
	return errors.Join(err, r.keep())
}

// keep touches the beat of the run. If run/ was deleted, the lock went with it: a
// supervised run takes the new one.
func (r *Run) keep() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock != nil {
		if same, _ := lock.Names(r.h.beatPath(r.id), r.lock.File()); !same {
			l, err := r.h.supervise(r.id)
			if err != nil {
				return err
			}
			_ = r.lock.Close() // of a file that has no name
			r.lock = l
		}
	}
	return r.h.touch(r.id)
}

// Beat lets the run beat every so often, 0 for [DefaultBeat] and at least [MinBeat],
// until stop is called or ctx ends. The context that it returns ends when the run is
// to be cancelled or is not this handle's any more; its cause is then [ErrCancelled],
// [ErrRecovered] or [ErrEnded]. A history that cannot be read for a while ends
// nothing.
func (r *Run) Beat(ctx context.Context, every time.Duration) (_ context.Context, stop func()) {
	if every <= 0 {
		every = DefaultBeat
	}
	every = max(every, MinBeat)
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w, err := watch.New(r.h.dir)
		if err == nil {
			defer w.Close()
		}
		for {
			switch err := r.BeatOnce(ctx); {
			case errors.Is(err, ErrCancelled), errors.Is(err, ErrRecovered), errors.Is(err, ErrEnded), errors.Is(err, ErrNotFound):
				cancel(err)
				return
			}
			if !r.wait(ctx, w, every) {
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-ended
	}
}

// wait returns true when it is time to beat again, or something was written, which
// may be that the run is to be cancelled.
func (r *Run) wait(ctx context.Context, w *watch.Watcher, every time.Duration) bool {
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
