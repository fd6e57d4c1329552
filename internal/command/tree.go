package command

import (
	"context"
	"errors"
	"time"

	"thread/lock"
)

// TakeTree takes the tree lock at the path for a supervisor, which has its supervisor lock or
// another right to be the only one. Processes that hold the tree lock are left of the command
// of a killed supervisor: said, which may be nil, is called for each, and they
// get SIGTERM, and SIGKILL after the grace. It returns lock.ErrHeld where one of them cannot be found or ended.
func TakeTree(ctx context.Context, path string, left *Left, grace time.Duration, said func(pid int, err error)) (*lock.File, error) {
	l, err := lock.Try(path, lock.Exclusive)
	if !errors.Is(err, lock.ErrHeld) {
		return l, err
	}
	limited, cancel := context.WithTimeout(ctx, 2*grace)
	defer cancel()
	if err := left.End(limited, grace, said); err != nil {
		return nil, errors.Join(lock.ErrHeld, err)
	}
	limited, stop := context.WithTimeout(ctx, EndPause)
	defer stop()
	return lock.Open(limited, path, lock.Exclusive)
}
