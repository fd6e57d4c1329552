package history

import (
	"errors"
	"os"
	"path/filepath"
	"time"

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
	return lock.Mkdir(filepath.Join(dir, ".beat"))
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
	path := h.beatPath(run.ID)
	info, err := os.Lstat(path)
	if err != nil {
		return unknown, 0
	}
	silent = max(0, h.now().Sub(info.ModTime()))
	if run.Supervised {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return unknown, silent
		}
		defer f.Close()
		switch err := lock.TryFile(f, lock.Exclusive); {
		case errors.Is(err, lock.ErrHeld):
			return alive, silent
		case err == nil:
			return dead, silent
		}
		// Locks cannot be had here: its beat decides.
	}
	if silent > staleAfter {
		return dead, silent
	}
	return alive, silent
}
