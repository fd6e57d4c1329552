package bolt

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"thread/internal/durable"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// # The newest transaction is on the disk before the next one begins
//
// bbolt overwrites the pages that transaction N replaced as soon as N+1 writes its own.
// After a loss of power those pages are the database again, unless the meta page of N
// is on the disk. A process that is killed between writing that page and syncing it
// leaves N visible, but not synced. So a writer syncs events.db first, unless it knows
// that the newest transaction was synced.
//
// The mark in run/.synced is that knowledge. A writer leaves it under the lock of the
// database, after its last sync has returned without an error. The mark is a hash of the
// newest meta page, of the identity of the file and of the time of its last change: the
// kernel sets that time, and no program can set it back. Any other commit, a failed
// commit, another file under the name, and a file that was changed in place make the
// mark invalid. An invalid, torn or missing mark costs three syncs: of the file, of its name and
// of the name of its directory. The mark itself is never
// synced: it is written after what it vouches for is on the disk.

const (
	syncedName    = ".synced"
	syncedVersion = "thread synced 1"
)

type syncedMark [sha256.Size]byte

// settle makes the newest transaction durable, unless the mark vouches for it. It must be
// called under the exclusive lock, before the first write transaction.
func (db *database) settle(mark string) error {
	db.markPath = mark
	want, err := db.newestMark()
	if err != nil {
		return err
	}
	if db.mark, err = lock.Create(mark, os.O_RDWR|OpenNoFollow|OpenNoWait); err == nil {
		var is syncedMark
		if n, _ := db.mark.ReadAt(is[:], 0); n == len(is) && is == want {
			db.synced, db.marked = true, true
			return nil
		}
	}
	// After a failed sync the kernel takes the page for clean: only a page that is
	// written again is synced.
	if err := disk.RewriteNewestMeta(db.file); err != nil {
		return err
	}
	if err := db.syncNamed(); err != nil {
		return err
	}
	if db.journal != nil {
		if err := db.journal.Settle(); err != nil {
			return err
		}
	}
	db.synced = true
	return nil
}

// syncNamed syncs the file and its name: a compaction or a restore may have been killed
// between its rename and the sync of the directory.
func (db *database) syncNamed() error {
	if err := db.file.Sync(); err != nil { // not only its data: FAT keeps its size with the name
		return err
	}
	return durable.NamedDir(filepath.Dir(db.Path()))
}

// commit commits b, unless that has changed nothing. All write transactions on events.db
// end here.
func (db *database) commit(b *bbolt.Tx) error {
	if stats := b.Stats(); stats.GetNodeCount() == 0 { // bbolt makes a node of each page that is changed
		return b.Rollback()
	}
	next, err := db.nextBase(b)
	if err != nil {
		return err
	}
	db.synced, db.marked = false, false
	if err := b.Commit(); err != nil {
		return err
	}
	db.synced = true
	db.rebase(next)
	return nil
}

// commitPages commits a transaction of bbolt.
func commitPages(db *database, b *bbolt.Tx, last bool) error {
	id := uint64(b.ID())
	if err := db.commit(b); err != nil {
		// bbolt syncs the pages, then writes and syncs the meta page. Once that
		// page is written, readers see the change, synced or not.
		if at := disk.Committed(db.file); last && (at == 0 || at >= id) {
			return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
		}
		return err
	}
	return nil
}

// leaveMark writes the mark if the newest transaction was synced. A mark that cannot be
// written costs the next writer a sync.
func (db *database) leaveMark() {
	if db.markPath == "" {
		return
	}
	if db.synced && !db.marked && !db.broken {
		db.marked = db.writeMark() == nil
	}
	if db.mark != nil {
		db.mark.Close()
		db.mark = nil
	}
}

func (db *database) writeMark() error {
	mark, err := db.newestMark()
	if err != nil {
		return err
	}
	if db.mark == nil { // of a database that was kept
		if db.mark, err = lock.Create(db.markPath, os.O_RDWR|OpenNoFollow|OpenNoWait); err != nil {
			return err
		}
	}
	if err := lock.Usable(db.mark); err != nil {
		return err
	}
	_, err = db.mark.WriteAt(mark[:], 0)
	return err
}

// newestMark returns the mark for the file as it is now.
func (db *database) newestMark() (mark syncedMark, err error) {
	meta, err := disk.NewestMeta(db.file)
	if err != nil {
		return mark, err
	}
	id, err := changeIdentity(db.file)
	if err != nil {
		return mark, err
	}
	text := fmt.Appendf(nil, "%s %x %s", syncedVersion, meta, id)
	if db.journal != nil {
		if id, err = changeIdentity(db.journal.File()); err != nil {
			return mark, err
		}
		number, crc := db.journal.Position()
		text = fmt.Appendf(text, " %s %d %x", id, number, crc)
	}
	return sha256.Sum256(text), nil
}

func (t *Store) markPath() string { return t.Path(store.RunName, syncedName) }
