package bolt_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
)

// TestSyncedMark: a clean commit leaves a mark, and whatever else becomes of the file, or
// of the mark, makes the next writer sync.
func TestSyncedMark(t *testing.T) {
	push := func(t *testing.T, dir string, opts ...engine.Option) {
		th, err := engine.Open(dir, opts...)
		must(t, err)
		defer th.Close()
		_, err = th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "x"})
		must(t, err)
	}
	rewrite := func(t *testing.T, path string, info os.FileInfo) {
		b, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, b, 0o600))
		must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, dir string) (now string)
		want bool
	}{
		"nothing":     {func(t *testing.T, dir string) string { return dir }, true},
		"a kept file": {func(t *testing.T, dir string) string { push(t, dir, engine.WithKeepOpen()); return dir }, true},
		"a reader": {func(t *testing.T, dir string) string {
			th, err := engine.Open(dir)
			must(t, err)
			defer th.Close()
			_, err = th.Info(ctx)
			must(t, err)
			return dir
		}, true},
		"run/ is deleted": {func(t *testing.T, dir string) string {
			must(t, os.RemoveAll(filepath.Join(dir, "run")))
			return dir
		}, false},
		"a torn mark": {func(t *testing.T, dir string) string {
			must(t, os.Truncate(filepath.Join(dir, "run", ".synced"), 20))
			return dir
		}, false},
		"a copy with its times": {func(t *testing.T, dir string) string {
			info, err := os.Stat(filepath.Join(dir, "events.db"))
			must(t, err)
			to := filepath.Join(t.TempDir(), "copy")
			must(t, os.CopyFS(to, os.DirFS(dir)))
			rewrite(t, filepath.Join(to, "events.db"), info)
			return to
		}, false},
		"the same bytes in place": {func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "events.db")
			info, err := os.Stat(path)
			must(t, err)
			rewrite(t, path, info)
			return dir
		}, false},
		"a program without marks": {func(t *testing.T, dir string) string {
			db, err := bbolt.Open(filepath.Join(dir, "events.db"), 0o600, nil)
			must(t, err)
			must(t, db.Update(func(b *bbolt.Tx) error { return b.Bucket([]byte("meta")).Put([]byte("x"), []byte("y")) }))
			must(t, db.Close())
			return dir
		}, false},
		"a compaction": {func(t *testing.T, dir string) string {
			th, err := engine.Open(dir)
			must(t, err)
			defer th.Close()
			_, err = th.Compact(ctx)
			must(t, err)
			return dir
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "t")
			th, err := engine.Init(dir)
			must(t, err)
			must(t, th.Close())
			push(t, dir)
			now := c.do(t, dir)
			s, err := bolt.Open(now, bolt.Options{})
			must(t, err)
			for _, want := range []bool{c.want, true} { // the sync was noted
				if is, err := s.Vouched(ctx); err != nil || is != want {
					t.Errorf("vouched for: %v %v, want %v", is, err, want)
				}
			}
			push(t, now)
			if is, err := s.Vouched(ctx); err != nil || !is {
				t.Errorf("after a push: %v %v", is, err)
			}
		})
	}
}
