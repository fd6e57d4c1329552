package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"thread/engine"
	"thread/internal/command"
	"thread/internal/dispatch"
	"thread/lock"
)

// tree is the tree lock of a consumer on this host (package command). The turn in
// PostgreSQL decides which process may start commands. So a host has any number of
// supervisors, which share the supervisor lock, and at most one of them has the turn.
type tree struct {
	t         *engine.Thread
	consumer  string
	suffix    string
	own, lock *lock.File
}

const (
	treeSuffix = ".tree" // inherited by what serve, or consume without serve, starts
	workSuffix = ".work" // inherited by what consume starts in a handler of serve
	ownSuffix  = ".own"  // of the supervisors
)

// runDir returns the directory of the locks. Several hosts may have it.
func runDir(t *engine.Thread) string { return filepath.Join(t.Dir(), "run") }

// lockName returns the beginning of the names of the locks of this host, or of a consumer.
func lockName(consumer string) string {
	host, _ := os.Hostname() // "" is as good where only one host has the directory
	return lock.Name(host + "/" + consumer)
}

// Work implements cli.Held.
func (h *tree) Work(ctx context.Context, warn func(format string, args ...any)) (*os.File, error) {
	err := h.take(ctx, func(pid int, err error) { warn("pid %d, left of an earlier command, is ended%s", pid, suffixOf(err)) })
	switch {
	case errors.Is(err, lock.ErrHeld):
		h.release()
		return nil, errors.Join(dispatch.ErrHandled, ctx.Err())
	case err != nil:
		h.release()
		warn("what is left of earlier commands cannot be seen, set XDG_STATE_HOME to a directory for it: %v", err)
		return nil, nil
	}
	return h.lock.File(), nil
}

func suffixOf(err error) string {
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		return ""
	}
	return fmt.Sprint(": ", err)
}

// take takes the tree lock for the process that has the turn. Processes that are left of an
// earlier command on this host are ended first, whether their supervisor was killed or is
// another one that has lost the turn.
func (h *tree) take(ctx context.Context, said func(pid int, err error)) error {
	if err := os.MkdirAll(runDir(h.t), 0o700); err != nil {
		return err
	}
	path := filepath.Join(runDir(h.t), lockName(h.consumer)+h.suffix)
	own := path + ownSuffix
	alone, err := lock.Try(own, lock.Exclusive)
	if err == nil {
		err = alone.Close()
	}
	if err != nil && !errors.Is(err, lock.ErrHeld) {
		return err
	}
	if h.own, err = lock.Open(ctx, own, lock.Shared); err != nil {
		return err
	}
	h.lock, err = command.TakeTree(ctx, path, &command.Left{Trees: []string{path}, Supervisor: own}, command.Grace, said)
	if errors.Is(err, lock.ErrHeld) && ctx.Err() == nil && alone == nil && runtime.GOOS == "linux" {
		// Only a supervisor without the turn has it still, as one that is stopped.
		if err = os.Remove(path); err == nil {
			h.lock, err = lock.Try(path, lock.Exclusive)
		}
	}
	return err
}

// Left returns what is left of a command that has inherited the lock. Its path may be the
// name of another lock by now.
func Left(work *os.File) *command.Left {
	if work == nil {
		return nil
	}
	return &command.Left{Trees: []string{fmt.Sprint("/proc/self/fd/", work.Fd())}}
}

// release unlocks the tree: a daemon that a command has left behind holds nothing.
func (h *tree) release() {
	if h.lock != nil {
		_ = lock.Unlock(h.lock.File()) // who has inherited it would have it still
		_ = h.lock.Close()
	}
	if h.own != nil {
		_ = h.own.Close() // it was only held
	}
	h.own, h.lock = nil, nil
}

// EndLeft ends what supervisors that were killed on this host have left of their commands:
// another host may have the turn by now.
func EndLeft(ctx context.Context, t *engine.Thread, said func(pid int, err error)) (err error) {
	entries, _ := os.ReadDir(runDir(t)) // without it, nothing is left
	for _, e := range entries {
		own := filepath.Join(runDir(t), e.Name())
		path, ok := strings.CutSuffix(own, ownSuffix)
		if !ok || !strings.HasPrefix(e.Name(), lockName("")) {
			continue
		}
		l, lerr := lock.Try(own, lock.Exclusive)
		if lerr != nil {
			continue // it has a supervisor
		}
		f, lerr := command.TakeTree(ctx, path, &command.Left{Trees: []string{path}}, command.Grace, said)
		if lerr == nil {
			lerr = errors.Join(os.Remove(path), os.Remove(own), f.Close())
		}
		err = errors.Join(err, lerr, l.Close())
	}
	return err
}
