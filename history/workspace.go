package history

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// A history belongs to a workspace, that of its directory, whose id no other row
// holds. A directory that was copied is another workspace: it then differs from what
// was noted in path and in inode, where one that was moved has its inode and one that
// was restored from a backup its path.

// place returns where the directory is. Where that cannot be told now, a directory
// whose place is noted is taken to be still there.
func (h *History) place() (path, inode string, err error) {
	if path, err = filepath.EvalSymlinks(h.parent); err == nil {
		inode, err = inodeOf(path)
	}
	return path, inode, err
}

// bind notes where the directory is now, with a new id for one that was copied. A
// medium that cannot be written keeps its id.
func (h *History) bind(ctx context.Context) error {
	moved := false
	path, inode, unknown := h.place()
	if unknown != nil {
		return nil
	}
	err := h.View(ctx, func(tx *Tx) error {
		var w WorkspaceRow
		_, ok, err := tx.read(&w, rowKey(Workspace, ""))
		moved = ok && (w.Path != path || w.Inode != inode)
		return err
	})
	if err != nil || !moved {
		return err
	}
	err = h.Update(ctx, func(tx *Tx) error { return nil })
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return nil
	}
	return err
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
	case !ok && unknown != nil:
		return unknown
	case !ok:
		w = WorkspaceRow{Own: true, RootPath: path, Name: filepath.Base(path), Path: path, Inode: inode}
	case unknown != nil || w.Path == path && w.Inode == inode:
		return nil
	default:
		if w.Path != path && (w.Inode != inode || inode == "") {
			w.ID = ""
		}
		if w.RootPath == w.Path {
			w.RootPath = path
		}
		w.Path, w.Inode, w.UpdatedAt = path, inode, tx.now
	}
	return tx.Put(&w)
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

// SetWorkspace changes a workspace, or makes one: that of the directory for the id
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
