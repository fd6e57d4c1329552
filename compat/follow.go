package compat

import (
	"context"

	"thread/internal/historymirror"
)

// Follow syncs again whenever the thread changes, until ctx ends; it then returns
// nil. After each round it calls synced with how many events that copied and what
// went wrong, and continues if synced returns nil.
func (m *Mirror) Follow(ctx context.Context, synced func(n int64, err error) error) error {
	return historymirror.Follow(ctx, m.t, func(ctx context.Context) (int64, error) { return m.Sync(ctx, nil) }, synced)
}
