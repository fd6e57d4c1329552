//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64))

package compat

import (
	"context"
	"time"

	"thread/internal/watch"
)

// lookAgain is how long Follow trusts the file system to tell of changes. Some
// network file systems never do.
const lookAgain = time.Minute

// Follow syncs again whenever the thread changes, until ctx ends; it then returns
// nil. After each round it calls synced with how many events that copied and what
// went wrong, and goes on if synced returns nil.
func (m *Mirror) Follow(ctx context.Context, synced func(n int64, err error) error) error {
	w, err := watch.New(m.t.Dir())
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		n, err := m.Sync(ctx, nil)
		if ctx.Err() != nil {
			return nil
		}
		if err := synced(n, err); err != nil {
			return err
		}
		if err := w.Wait(ctx, time.Now().Add(lookAgain)); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
	}
}
