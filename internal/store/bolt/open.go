package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// Close closes the database, and of one that is broken the file, which gives the lock
// back; its mapping stays until the process ends.
func (db *database) Close() error {
	db.leaveMark()
	defer db.Journal.Close()
	if db.broken {
		return errors.Join(lock.Unlock(db.file), db.file.Close()) // the mapping would keep the lock
	}
	return db.DB.Close()
}

// guard is the function guard for what uses db.
func (db *database) guard(fn func() error) error {
	return Guard(func() error {
		defer func() {
			if r := recover(); r != nil {
				_, callers := r.(store.CallerPanic)
				db.broken = db.broken || !callers
				panic(r)
			}
		}()
		return fn()
	})
}

// open takes the lock and opens the database, waiting at most t.LockTimeout.
//
// Writers hold the gate while they wait for readers to finish, and a reader that
// comes later passes through the gate first, so a steady stream of readers cannot
// keep a writer out. The gate decides order only: without it (a read-only medium,
// run/ just deleted) everything stays right.
func (t *Store) open(ctx context.Context, m lock.Mode) (*database, error) {
	if t.isClosed() {
		return nil, store.ErrClosed
	}
	if ctx.Err() != nil { // between the slices of a long read, too
		return nil, context.Cause(ctx)
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	g, err := t.gate(ctx, m)
	if err != nil {
		return nil, err
	}
	defer g.close()
	return t.openNow(ctx, m, 0)
}

// openNow is open without the gate. The caller is about to write that many bytes.
func (t *Store) openNow(ctx context.Context, m lock.Mode, bytes int) (*database, error) {
	db := &database{Journal: Journal{check: t.CheckFile}}
	var lockFile func(flag int) (*os.File, error) // until it is open: bbolt keeps its options
	opts := bbolt.Options{
		ReadOnly:     m == lock.Shared,
		NoStatistics: true,
		FreelistType: bbolt.FreelistMapType,
		MaxSize:      disk.MaxDatabaseBytes,
		// bbolt polls for its lock every 50 ms. On Unix the lock taken here, on the
		// same descriptor, is the same lock, so that bbolt finds it free.
		OpenFile: func(_ string, flag int, _ os.FileMode) (_ *os.File, err error) {
			db.file, err = lockFile(flag &^ os.O_CREATE)
			return db.file, err
		},
	}
	lockFile = func(flag int) (*os.File, error) { return t.lockDatabase(ctx, flag, m, disk.CheckHeader) }
	opts.InitialMmapSize = t.mapSize(bytes)
	err := Guard(func() (err error) {
		db.DB, err = bbolt.Open(t.Path(DatabaseName), FileMode, &opts)
		return err
	})
	if err != nil {
		if db.file != nil {
			_ = lock.Unlock(db.file) // a panic in bbolt left it open and mapped, and so locked
			db.file.Close()
		}
		return nil, t.lockError(ctx, err)
	}
	lockFile = nil // a database that is kept must not know the store
	db.AllocSize = growBytes
	if m == lock.Exclusive {
		if err := db.guard(func() error {
			if err := db.readAll(); err != nil {
				return err
			}
			return db.settle(t.markPath())
		}); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

// mapSize returns how much of events.db is to be mapped before that many bytes are
// written: when the file outgrows what is mapped, bbolt copies all that the
// transaction has put, and does so each time. 0 leaves it to bbolt.
func (t *Store) mapSize(bytes int) int {
	if bytes < mapAheadBytes || disk.MaxDatabaseBytes != 0 {
		return 0 // the map does not fit into 32 bits
	}
	info, err := os.Stat(t.Path(DatabaseName))
	if err != nil {
		return 0
	}
	return int(info.Size()) + 2*bytes
}

const mapAheadBytes = 1 << 20

// growBytes is the step in which a file beyond that size grows. bbolt's 16 MiB
// leave a thread of a million events 8 MiB empty on the average.
const growBytes = 4 << 20

// lockDatabase opens events.db, locks it and checks its start. It starts again
// when the file was replaced while it waited.
func (t *Store) lockDatabase(ctx context.Context, flag int, m lock.Mode, check func(*os.File) error) (*os.File, error) {
	path := t.Path(DatabaseName)
	for {
		f, err := os.OpenFile(path, flag|OpenNoFollow|OpenNoWait, 0)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s", store.ErrNotThread, t.Dir)
		}
		if err != nil {
			return nil, err
		}
		same := false
		if err = lock.Wait(ctx, f, m); err == nil {
			same, err = lock.Names(path, f)
		}
		if err == nil && same {
			err = check(f)
		}
		if err == nil && same && t.CheckFile != nil {
			var info os.FileInfo
			if info, err = f.Stat(); err == nil {
				err = t.CheckFile(info)
			}
		}
		if err == nil && same {
			return f, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
}

// view runs fn in a read transaction and closes db.
func (t *Store) view(db *database, fn func(tx *Tx) error) error {
	defer db.Close()
	return t.viewOpen(db, fn)
}

// viewOpen runs fn in a read transaction.
func (t *Store) viewOpen(db *database, fn func(tx *Tx) error) error {
	return Guard(func() error {
		b, err := index.Begin(db.DB, false)
		if err != nil {
			return err
		}
		defer b.Rollback()
		over, err := db.overlay(b)
		if err != nil {
			return err
		}
		if over.Empty() {
			over = nil
		}
		tx, err := newTx(t, b, over)
		if err != nil {
			return err
		}
		return fn(tx)
	})
}

// Guard runs fn with what a damaged file can do to it turned into ErrCorrupt:
// bbolt checks its pages with panics, and the file is mapped, so that a read
// behind its end, or on a failing SD card, is a memory fault.
func Guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		switch r := recover().(type) {
		case nil:
		case store.CallerPanic:
			panic(r.Value)
		default:
			err = fmt.Errorf("%w: %v", store.ErrCorrupt, r)
		}
		if errors.Is(err, index.ErrDamaged) {
			err = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
		if errors.Is(err, bolterrors.ErrMaxSizeReached) {
			err = fmt.Errorf("%w: it would exceed %d bytes", store.ErrTooLarge, disk.MaxDatabaseBytes)
		}
	}()
	return fn()
}

// clearBeyondHead removes what a long batch left above head that did not come to
// its end. It runs under the exclusive lock, before anything is written.
func (t *Store) clearBeyondHead(db *database) error {
	if !db.over.Empty() {
		return nil // it was done before the first record
	}
	for {
		more, err := t.clearSome(db)
		if err != nil || !more {
			return err
		}
	}
}

func (t *Store) clearSome(db *database) (more bool, err error) {
	b, err := index.Begin(db.DB, true)
	if err != nil {
		return false, err
	}
	defer b.Rollback()
	tx, err := newTx(t, b, nil)
	if err != nil {
		return false, err
	}
	if tx.st.Head == math.MaxInt64 {
		return false, nil
	}
	events, err := tx.eventBucket()
	if err != nil {
		return false, err
	}
	from := disk.EventKey(tx.st.Head + 1)
	var junk [][]byte // collected first: a cursor is slow among deleted keys
	err = index.Range(events, from, func(k, _ []byte) (more bool, err error) {
		junk = append(junk, bytes.Clone(k))
		return len(junk) < t.MaxGroup, nil
	})
	if err != nil {
		return false, err
	}
	across, cut, err := tx.acrossHead(events)
	if err != nil || len(junk) == 0 && across == nil {
		return false, err
	}
	// The events go last: as long as there is one, this is done again.
	columns, err := tx.columnBucket()
	if err != nil {
		return false, err
	}
	if err := index.DropBlocksAfter(columns, tx.st.Head); err != nil {
		return false, err
	}
	if err := tx.dict().DropAfter(tx.st.Head); err != nil {
		return false, err
	}
	if more, err := t.Logic.DropAfter(tx, tx.st.Head, t.MaxGroup); err != nil || more {
		if err != nil {
			return false, err
		}
		return true, db.commit(b)
	}
	if more, err := tx.dropPiecesAfter(tx.st.Head); err != nil || more {
		if err != nil {
			return false, err
		}
		return true, db.commit(b)
	}
	if across != nil {
		if err := events.Put(across, cut); err != nil {
			return false, err
		}
	}
	for _, k := range junk {
		// In a damaged tree the way to a key can end elsewhere than the walk that met
		// it, and then this would be done for ever.
		if v, err := index.Get(events, k); err != nil {
			return false, err
		} else if v == nil {
			return false, disk.CorruptEvent(k)
		}
		if err := events.Delete(k); err != nil {
			return false, err
		}
	}
	return true, db.commit(b)
}

// View implements store.Store.
func (t *Store) View(ctx context.Context, fn func(tx store.Tx) error) error {
	return t.read(ctx, func(tx *Tx) error { return fn(tx) })
}

func (t *Store) read(ctx context.Context, fn func(tx *Tx) error) error {
	if t.kept != nil {
		return t.readKept(ctx, fn)
	}
	db, err := t.open(ctx, lock.Shared)
	if err != nil {
		return err
	}
	return t.view(db, func(tx *Tx) error {
		tx.ctx = ctx
		return fn(tx)
	})
}

// acrossHead returns the group with events on both sides of head, if there is one,
// and what is left of it without those above.
func (tx *Tx) acrossHead(events *index.Bucket) (key, cut []byte, err error) {
	if tx.st.Head == 0 {
		return nil, nil, nil
	}
	k, v, err := index.Floor(events, events.Cursor(), disk.EventKey(tx.st.Head))
	if k == nil || err != nil {
		return nil, nil, err
	}
	if first, err := disk.EventID(k); err != nil || first > tx.st.Head {
		return nil, nil, err
	}
	g, err := disk.OpenUnchecked(k, v)
	if err != nil {
		return nil, nil, err
	}
	var r disk.Record
	for {
		rest := len(g.Rest)
		if more, err := g.Next(&r); err != nil || !more {
			return nil, nil, err
		}
		if g.ID <= tx.st.Head {
			continue
		}
		if _, ok := index.CheckSum(k, v); !ok {
			return nil, nil, disk.CorruptEvent(k)
		}
		key = bytes.Clone(k)
		return key, index.AppendSum(bytes.Clone(v[:len(v)-disk.SumBytes-rest]), key), nil
	}
}

// dropPiecesAfter removes pieces of events above head, as many as go into one
// transaction.
func (tx *Tx) dropPiecesAfter(head int64) (more bool, err error) {
	b, err := tx.bucket(disk.BucketPieces)
	if b == nil || err != nil {
		return false, err
	}
	var junk [][]byte
	err = index.Range(b, disk.EventKey(head+1), func(k, _ []byte) (bool, error) {
		junk = append(junk, bytes.Clone(k))
		return len(junk) < tx.t.MaxGroup, nil
	})
	if err != nil {
		return false, err
	}
	return len(junk) == tx.t.MaxGroup, index.DeleteAll(b, junk)
}
