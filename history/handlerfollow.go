package history

import (
	"context"
	"errors"
	"iter"
	"path/filepath"

	"thread/internal/watch"
	"thread/lock"
)

// FollowHandlerRuns gives the runs of handlers that end from now on, as they end, each
// once, until ctx ends, whose cause is then the last element. An element whose ID is
// empty says that something else may have changed: a handler has started or printed.
func (h *History) FollowHandlerRuns(ctx context.Context, q HandlerQuery) iter.Seq2[RunRow, error] {
	return func(yield func(RunRow, error) bool) {
		err := h.followHandlerRuns(ctx, q, func(r RunRow) bool { return yield(r, nil) })
		if err != nil && !errors.Is(err, errEnough) {
			yield(RunRow{}, err)
		}
	}
}

var errEnough = errors.New("nobody wants more")

func (h *History) followHandlerRuns(ctx context.Context, q HandlerQuery, yield func(RunRow) bool) error {
	if _, err := h.thread(true); err != nil {
		return err
	}
	logs := filepath.Join(h.parent, "logs")
	w, err := watch.NewDirs() // before the first look: nothing falls between
	if err != nil {
		return err
	}
	defer w.Close()
	for _, dir := range []string{logs, filepath.Join(logs, "handlers"), filepath.Join(logs, "runs")} {
		if err := lock.Mkdir(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{filepath.Join(logs, "handlers"), filepath.Join(logs, "runs"), h.dir} {
		if err := w.Add(dir); err != nil {
			return err
		}
	}
	notices := make(chan struct{}, 1)
	go func() {
		defer close(notices)
		for {
			if _, err := w.Next(); errors.Is(err, watch.ErrClosed) {
				return
			}
			select { // one look answers all of them
			case notices <- struct{}{}:
			default:
			}
		}
	}()
	after, err := h.Head(ctx)
	if err != nil {
		return err
	}
	for {
		if _, err := h.TakeRuns(ctx); err != nil {
			return err
		}
		for c, err := range h.Changes(ctx, after, "type = 'run'") {
			if err != nil {
				return err
			}
			after = c.ID
			var row RunRow
			if c.Op != OpUpsert || ParseJSON(&row, c.Row) != nil || !row.Ended() {
				continue
			}
			_, is := HandlerOf(&row)
			if !is || q.Consumer != "" && row.AgentName != q.Consumer || q.Failed && row.Status != Failed && row.Status != TimedOut {
				continue
			}
			if !yield(row) {
				return errEnough
			}
		}
		if !yield(RunRow{}) {
			return errEnough
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case _, open := <-notices:
			if !open {
				return watch.ErrClosed
			}
		}
	}
}
