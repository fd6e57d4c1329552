//go:build !nosqlite && ((linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64)))

package compat

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// lookAgain is how long Follow trusts the file system to tell of changes. Some
// network file systems never do.
const lookAgain = time.Minute

// Follow syncs again whenever the thread changes, until ctx ends; it then returns
// nil. After each round it calls synced with how many events that copied and what
// went wrong, and goes on if synced returns nil.
func (m *Mirror) Follow(ctx context.Context, synced func(n int64, err error) error) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Add(m.t.Dir()); err != nil {
		return err
	}
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	for {
		n, err := m.Sync(ctx, nil)
		if ctx.Err() != nil {
			return nil
		}
		if err := synced(n, err); err != nil {
			return err
		}
		timer.Reset(lookAgain)
		if !m.wait(ctx, w, timer.C) {
			return nil
		}
	}
}

// wait returns true when the thread may have changed since it was last called,
// false when ctx has ended.
func (m *Mirror) wait(ctx context.Context, w *fsnotify.Watcher, timer <-chan time.Time) bool {
	changed := false
	for {
		if changed && len(w.Events) == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer:
			return true
		case <-w.Errors: // events were dropped, or the directory is gone: look
			return true
		case e, ok := <-w.Events:
			if !ok {
				return true
			}
			// The database is written when it is replaced or pruned without a push too.
			switch filepath.Base(e.Name) {
			case databaseName, "events.jsonl":
				changed = changed || !e.Has(fsnotify.Chmod)
			}
		}
	}
}
