//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package dispatch

import (
	"context"
	"time"

	"thread/internal/command"
	"thread/lock"
)

// There is no exact way here to find the processes of a handler: their end is
// waited for, which the tree lock tells. A healthy handler continues, too.

// lockTree takes the consumer's tree lock. While it is held, a handler has not ended.
func (r *dispatcher) lockTree(ctx context.Context, consumer string, _ *command.Left, _ time.Duration) (*treeLock, error) {
	path := r.treeLockPath(consumer)
	l, err := lock.Open(ctx, path, lock.Exclusive)
	if err != nil {
		return nil, err
	}
	return &treeLock{path: path, lock: l}, nil
}
