//go:build planted && unix

package bolt

import (
	"os"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"thread/internal/store"
)

func dropLock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// forgetDue removes what was released from the queue, in a transaction of its own.
func forgetDue(db *database, now time.Time) {
	_ = db.Update(func(b *bbolt.Tx) error {
		queue := b.Bucket([]byte(store.Scheduled))
		entries := queue.Cursor()
		for k, _ := entries.First(); k != nil && !store.DueOf(k).After(now); k, _ = entries.First() {
			if err := queue.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}
