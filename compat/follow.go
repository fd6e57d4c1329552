//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64))

package compat

import (
	"context"

	"thread/internal/historymirror"
)

// Follow syncs again whenever the thread changes, until ctx ends; it then returns
// nil. After each round it calls synced with how many events that copied and what
// went wrong, and goes on if synced returns nil.
func (m *Mirror) Follow(ctx context.Context, synced func(n int64, err error) error) error {
	return historymirror.Follow(ctx, m.t.Dir(), func(ctx context.Context) (int64, error) { return m.Sync(ctx, nil) }, synced)
}
