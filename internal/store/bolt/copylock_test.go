package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
	"thread/lock"
)

// TestCopyEndsUnlocked: while a copy elsewhere is synced and renamed the database is not
// locked; while one in its place is, it is.
func TestCopyEndsUnlocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t")
	th, err := engine.Init(dir)
	must(t, err)
	defer th.Close()
	_, err = th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "x"})
	must(t, err)
	asked := 0
	var is error // of the last sync; those before it are of parts
	defer bolt.SyncCopy(func(db *bbolt.DB) error {
		f, err := os.Open(filepath.Join(dir, bolt.DatabaseName))
		if err != nil {
			return err
		}
		defer f.Close()
		asked, is = asked+1, lock.TryFile(f, lock.Shared)
		return db.Sync()
	})()
	_, _, err = dirOf(th).CopyTo(ctx, bolt.CopyOptions{To: filepath.Join(t.TempDir(), "copy")})
	if err != nil || asked < 1 || is != nil {
		t.Errorf("a copy elsewhere: %v; asked %d times: %v", err, asked, is)
	}
	before := asked
	_, err = th.Compact(ctx)
	if err != nil || asked <= before || !errors.Is(is, lock.ErrHeld) {
		t.Errorf("a compaction: %v; asked %d times: %v", err, asked, is)
	}
}
