//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"thread/internal/historymirror"
)

// A new mirror has its tables in the file that gets the name: what the closing of the
// file leaves in the write-ahead log, here because of a reader, is not lost.
func TestNewMirrorIsWhole(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	h := newHistory(t, filepath.Join(dir, "t"))
	path := filepath.Join(dir, "mirror.db")
	m := &HistoryMirror{h: h}
	m.path = path
	var err error
	m.m, err = historymirror.New(h, historyTables{m}, historymirror.Tables, nil)
	must(t, err)
	err = m.make(ctx, func(ctx context.Context) error {
		if err := m.create(ctx); err != nil {
			return err
		}
		made, err := filepath.Glob(path + ".*.new")
		if err != nil || len(made) != 1 {
			return errors.Join(err, errors.New("the new file is not found"))
		}
		db, conn, err := connect(ctx, made[0], "mode=rw")
		if err != nil {
			return err
		}
		t.Cleanup(func() { must(t, errors.Join(conn.Close(), db.Close())) })
		var n int
		if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
			return err
		}
		return conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n)
	})
	must(t, err)
	mirrorHistory(t, h, path, HistoryMirrorOptions{})
	must(t, h.Close())
}
