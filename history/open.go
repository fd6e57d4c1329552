package history

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"thread/engine"
	"thread/internal/address"
)

// Open returns a handle on the history of the thread directory dir. Where there is
// no history yet, the first write makes it, and until then there is nothing to read.
// A directory that was copied gets a separate workspace id here, and runs of handlers
// that have ended are taken, see [History.TakeRuns]. History events go as
// [RunRetention] says.
//
// With the URL of a thread on a server, the history is a separate thread there. That needs a
// program that links a driver for the server, and is not part of the promised API.
//
// Open returns the errors of [engine.Open]. Errors of the history's own directory are a
// [*DirError].
func Open(ctx context.Context, dir string, opts ...Option) (*History, error) {
	if address.IsURL(dir) {
		return openServer(ctx, dir, opts)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	h := &History{parent: abs, dir: filepath.Join(abs, Dir), now: time.Now, uptime: uptime}
	for _, o := range opts {
		o(h)
	}
	h.engine = append(h.engine, engine.WithClock(h.now))
	if _, err := engine.Open(abs, h.engine...); err != nil {
		return nil, err
	}
	_, err = h.thread(false)
	if err == nil && h.t != nil {
		if err = h.bind(ctx); err != nil {
			err = &DirError{h.dir, err}
		}
	}
	if err == nil && !h.leaveRuns {
		_, _ = h.TakeRuns(ctx) // what cannot be taken now waits
		_ = h.retainLater(ctx) // and so do history events that cannot be dropped
	}
	return h, err
}

// bind notes where the directory is now, with a new id for one that was copied. A
// medium that cannot be written keeps its id.
func (h *History) bind(ctx context.Context) error {
	moved := false
	var was WorkspaceRow
	path, inode, unknown := h.place()
	if unknown != nil {
		return nil
	}
	err := h.View(ctx, func(tx *Tx) error {
		var w WorkspaceRow
		_, ok, err := tx.read(&w, rowKey(Workspace, ""))
		moved, was = ok && (w.Path != path || w.Inode != inode), w
		return err
	})
	if err != nil || !moved {
		return err
	}
	h.copied = h.lives(ctx, &was, path, inode)
	err = h.Update(ctx, func(tx *Tx) error { return nil })
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return err
}

// lives reports whether another directory is the workspace that was noted: the one at its
// path; or, next to this one, the one with its inode, if that has noted its present path.
// Without that note, as of a damaged directory that was put aside, the path decides.
func (h *History) lives(ctx context.Context, was *WorkspaceRow, path, inode string) bool {
	if was.Path != path && h.twin(ctx, was.Path, path).ID == was.ID {
		return true
	}
	if was.Inode == inode || was.Inode == "" {
		return false
	}
	siblings, _ := os.ReadDir(filepath.Dir(path)) // a directory that cannot be read shows none
	for _, d := range siblings {
		other := filepath.Join(filepath.Dir(path), d.Name())
		if n, err := inodeOf(other); !d.IsDir() || err != nil || n != was.Inode {
			continue
		}
		if w := h.twin(ctx, other, path); w.ID == was.ID && w.Path == other {
			return true
		}
	}
	return false
}

// twin returns the own workspace of the history in other: none for the directory path itself,
// by whatever path, and for what cannot be read.
func (h *History) twin(ctx context.Context, other, path string) (w WorkspaceRow) {
	a, err := os.Stat(other)
	if err != nil {
		return w
	}
	if b, err := os.Stat(path); err != nil || os.SameFile(a, b) {
		return w
	}
	t := &History{parent: other, dir: filepath.Join(other, Dir), now: h.now, engine: h.engine}
	defer t.Close()
	w, _ = t.Workspace(ctx)
	return w
}

// openServer is Open for a URL.
func openServer(ctx context.Context, url string, opts []Option) (*History, error) {
	h := &History{parent: url, now: time.Now}
	for _, o := range opts {
		o(h)
	}
	of, err := address.Open(url, h.engine...)
	if err != nil {
		return nil, err
	}
	h.of, h.dir = of, filepath.Join(of.Dir(), Dir)
	t, err := h.thread(false)
	if err == nil && t == nil { // is there a thread at all?
		err = of.View(ctx, func(*engine.Tx) error { return nil })
	}
	if err == nil && !h.leaveRuns {
		_, _ = h.TakeRuns(ctx) // what cannot be taken now waits
		if t != nil {
			_ = h.retainLater(ctx) // what cannot be dropped waits
		}
	}
	if err != nil {
		_ = h.Close()
		return nil, err
	}
	return h, nil
}

// uptime returns an id of the boot and the time since then; "" where the system does not tell.
func uptime() (boot string, up time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	text, err2 := os.ReadFile("/proc/uptime")
	seconds, _, _ := strings.Cut(string(text), " ")
	n, err3 := strconv.ParseFloat(seconds, 64)
	if err != nil || err2 != nil || err3 != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), time.Duration(n * float64(time.Second))
}

// Close makes later calls return [engine.ErrClosed], and closes the files that the handle
// keeps open between calls (see [engine.WithKeepOpen]). The collector does so for a handle
// that no caller has any more.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.of != nil {
		_ = h.of.Close() // it holds connections only
	}
	if h.t == nil {
		return nil
	}
	return h.t.Close()
}
