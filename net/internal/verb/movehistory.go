package verb

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"thread/engine"
	"thread/history"
	"thread/internal/address"
	"thread/internal/cli"
	"thread/internal/durable"
	"thread/net/internal/move"
	"thread/net/pgstore"
)

// historyOf returns the thread that has the history of t, nil where there is none.
func historyOf(ctx context.Context, t *engine.Thread) (*engine.Thread, error) {
	at := filepath.Join(t.Dir(), history.Dir)
	if t.URL() != "" {
		url, err := address.History(t.URL())
		if err != nil {
			return nil, err
		}
		at = url
	} else if !cli.IsThread(at) {
		return nil, nil
	}
	h, err := address.Open(at)
	if err != nil {
		return nil, err
	}
	err = h.View(ctx, func(*engine.Tx) error { return nil })
	if err == nil {
		return h, nil
	}
	_ = h.Close()
	if errors.Is(err, engine.ErrNotThread) {
		err = nil
	}
	return nil, err
}

// moveToServer copies the thread and its history. The history comes first: with the thread, all
// is there.
func moveToServer(ctx context.Context, t, h *engine.Thread, to string, progress move.Progress) (r move.Report, err error) {
	at, err := pgstore.ParseURL(to)
	if err != nil || h == nil {
		if err == nil {
			r, err = move.ToServer(ctx, t, at, progress)
		}
		return r, err
	}
	there, err := address.Open(to)
	if err != nil {
		return r, err
	}
	defer there.Close()
	if err := there.View(ctx, func(*engine.Tx) error { return nil }); err == nil {
		return r, engine.ErrExists
	}
	url, err := address.History(to)
	if err != nil {
		return r, err
	}
	of, err := pgstore.ParseURL(url)
	if err != nil {
		return r, err
	}
	if _, err = move.ToServer(ctx, h, of, progress); errors.Is(err, engine.ErrExists) {
		err = sameHistory(ctx, h, url) // of an import that was interrupted
	}
	if err == nil {
		r, err = move.ToServer(ctx, t, at, progress)
	}
	return r, err
}

// sameHistory returns ErrExists unless the thread at the URL is a copy of h.
func sameHistory(ctx context.Context, h *engine.Thread, url string) error {
	there, err := address.Open(url)
	if err != nil {
		return err
	}
	defer there.Close()
	one, err := h.WithoutRelease().Digest(ctx)
	if err != nil {
		return err
	}
	other, err := there.WithoutRelease().Digest(ctx)
	if err == nil && one != other {
		err = engine.ErrExists
	}
	return err
}

// moveToDirectory copies the thread and its history, which is built next to the directory.
func moveToDirectory(ctx context.Context, t, h *engine.Thread, dir string, progress move.Progress) (r move.Report, err error) {
	if h == nil {
		return move.ToDirectory(ctx, t, dir, progress)
	}
	beside, err := os.MkdirTemp(filepath.Dir(dir), ".history-*")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(beside)) }()
	built := filepath.Join(beside, history.Dir)
	if _, err = move.ToDirectory(ctx, h, built, progress); err != nil {
		return r, err
	}
	if r, err = move.ToDirectory(ctx, t, dir, progress); err != nil {
		return r, err
	}
	if err = os.Rename(built, filepath.Join(dir, history.Dir)); err == nil {
		err = durable.SyncDir(dir)
	}
	return r, err
}
