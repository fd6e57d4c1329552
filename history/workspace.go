package history

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"thread/internal/address"
)

// A history belongs to a workspace, its directory's, whose id no other row
// holds. A directory that was copied is another workspace: it then differs from what
// was noted in path and in inode, where one that was moved has its inode and one that
// was restored from a backup its path. Where the other of the two, at the path or with the
// inode that was noted, still lives with the same id, the directory is a copy, too.

// place returns where the directory is. Where that cannot be told now, a directory
// whose place is noted is taken to be still there.
func (h *History) place() (path, inode string, err error) {
	if h.of != nil {
		return "", "", nil // the workspace is the thread's, wherever its server is
	}
	if path, err = filepath.EvalSymlinks(h.parent); err == nil {
		inode, err = inodeOf(path)
	}
	return path, inode, err
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

// ensureWorkspace sees to it that the row of the own workspace is there, and is that
// of this directory.
func (tx *Tx) ensureWorkspace() error {
	var w WorkspaceRow
	key := rowKey(Workspace, "")
	path, inode, unknown := tx.h.place()
	_, ok, err := tx.read(&w, key)
	switch {
	case err != nil:
		return err
	case tx.h.of != nil && ok:
		return nil // also one that came from a directory
	case tx.h.of != nil:
		w = WorkspaceRow{Own: true, Name: address.Name(tx.h.parent)}
	case !ok && unknown != nil:
		return unknown
	case !ok:
		w = WorkspaceRow{Own: true, RootPath: path, Name: filepath.Base(path), Path: path, Inode: inode}
	case unknown != nil || w.Path == path && w.Inode == inode:
		return nil
	default:
		if tx.h.copied || w.Path != "" && w.Path != path && (w.Inode != inode || inode == "") {
			w.ID = ""
		}
		if w.RootPath == w.Path {
			w.RootPath = path
		}
		w.Path, w.Inode, w.UpdatedAt = path, inode, tx.now
	}
	return tx.Put(&w)
}

// outside sees to it that the store of a chat workspace, which is this history, is not below
// the root of the workspace. A root that was never chosen, and is the directory itself, goes.
func (h *History) outside(w *WorkspaceRow) error {
	if w.RootPath == "" {
		return nil
	}
	path, _, err := h.place()
	if err != nil || h.of != nil {
		return err
	}
	if w.Own && w.RootPath == path {
		w.RootPath = ""
		return nil
	}
	root, err := filepath.EvalSymlinks(w.RootPath)
	if err != nil {
		root = filepath.Clean(w.RootPath)
	}
	if rel, err := filepath.Rel(root, path); err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return nil
	}
	return invalidf("the store %s is below the root %s of a chat workspace", path, w.RootPath)
}

// Workspace returns the own workspace of the directory. One that is not stored yet
// has no id.
func (h *History) Workspace(ctx context.Context) (w WorkspaceRow, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		_, _, err := tx.read(&w, rowKey(Workspace, ""))
		return err
	})
	return w, err
}

// SetWorkspace changes a workspace, or makes one: the directory's for the id
// "". It returns the row as it is stored.
func (h *History) SetWorkspace(ctx context.Context, id string, change func(w *WorkspaceRow)) (w WorkspaceRow, err error) {
	err = h.Update(ctx, func(tx *Tx) error {
		w = WorkspaceRow{}
		ok, err := tx.Get(&w, id)
		if err != nil {
			return err
		}
		own, path, inode := w.Own, w.Path, w.Inode
		change(&w)
		if id != "" && !ok {
			w.ID = id
		}
		w.Own, w.Path, w.Inode, w.UpdatedAt = own, path, inode, tx.now
		return tx.Put(&w)
	})
	return w, err
}
