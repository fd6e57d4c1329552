package bolt

import (
	"context"
	"errors"
	"os"
	"time"
	"unsafe"

	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// A store with Options.KeepOpen keeps events.db open and mapped between calls, but not
// locked. To open it is most of what a short call costs: some system calls, a new
// mapping, a fault for each page of it that is touched, and for a writer the list of
// free pages.
//
// A call takes the lock on the open file and uses the mapping only while that file still
// has its name, and the file as long as when it was mapped; otherwise it opens
// the database as any other call. Nothing of the file's is remembered for readers: each
// transaction of bbolt begins at the meta pages, in memory that the kernel shares with
// the process that writes the file. A writer remembers the list of free pages, and so continues
// only from the very meta pages, length and times that it left.
//
// Whatever went wrong in a call ends with its database closed.

// maxKeptReaders is how many databases are kept for readers: as many calls of several
// goroutines find one.
const maxKeptReaders = 4

// gateEvery is how often a reader passes the gate at most: it costs as much as the rest of
// a short read, and a writer that stands there waits for as much longer.
const gateEvery = time.Millisecond

// keptDatabase is a database that is open and mapped, and locked while a call has it.
type keptDatabase struct {
	*database
	gate  *lock.File  // of a reader, open but not locked; or nil
	past  time.Time   // when it passed the gate
	info  os.FileInfo // when it was mapped; of a writer, when it was left
	metas [2][disk.MetaBytes]byte
}

// close closes the database, of which nothing is to be written any more.
func (k *keptDatabase) close() {
	closeGate(k.gate)
	_ = k.Close()
}

// keeps reports whether the store keeps databases open.
func (t *Store) keeps() bool {
	return t.KeepOpen && canKeepOpen && !t.AnyMount && disk.MaxDatabaseBytes == 0
}

// take returns a database that is kept for m, nil when there is none.
func (p *keeper) take(m lock.Mode) (k *keptDatabase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m == lock.Exclusive {
		k, p.writer = p.writer, nil
	} else if n := len(p.readers); n > 0 {
		k, p.readers = p.readers[n-1], p.readers[:n-1]
	}
	return k
}

// give keeps k, whose lock was given back, unless there are enough.
func (p *keeper) give(k *keptDatabase, m lock.Mode) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return false
	case m == lock.Exclusive && p.writer == nil:
		p.writer = k
	case m == lock.Shared && len(p.readers) < maxKeptReaders:
		p.readers = append(p.readers, k)
	default:
		return false
	}
	return true
}

// close closes what is kept, and keeps nothing from now on.
func (p *keeper) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, k := range append(p.readers, p.writer) {
		if k != nil {
			k.close()
		}
	}
	p.readers, p.writer = nil, nil
}

// keptOrOpen is openNow for a database that is kept afterwards. It continues with k, which
// may be nil, if that can be done.
func (t *Store) keptOrOpen(ctx context.Context, k *keptDatabase, m lock.Mode, bytes int) (*keptDatabase, error) {
	var gate *lock.File
	if k != nil {
		usable, err := bytes < mapAheadBytes, error(nil) // else it is mapped again, with more space
		if usable {
			usable, err = t.relock(ctx, k, m)
		}
		if usable && err == nil && m == lock.Exclusive {
			err = k.guard(k.resettle)
		}
		if usable && err == nil {
			return k, nil
		}
		gate, k.gate = k.gate, nil
		k.close()
		if err != nil {
			closeGate(gate)
			return nil, err
		}
	}
	db, err := t.openNow(ctx, m, bytes)
	if err != nil {
		closeGate(gate)
		return nil, err
	}
	return &keptDatabase{database: db, gate: gate}, nil
}

// passGate is gate for a reader that keeps the gate open, too.
func (t *Store) passGate(ctx context.Context, k *keptDatabase) error {
	if k != nil {
		now := time.Now()
		if k.passed(now) {
			return nil
		}
		k.past = now
	}
	path := t.Path(store.RunName, ".gate")
	if k != nil && k.gate != nil {
		f := k.gate.File()
		if named, err := lock.Names(path, f); named && err == nil && lock.TryFile(f, lock.Shared) == nil {
			return lock.Unlock(f)
		}
		k.gate.Close()
		k.gate = nil
	}
	f, err := lock.Open(ctx, path, lock.Shared)
	if errors.Is(err, lock.ErrHeld) {
		return t.lockError(ctx, err)
	}
	if err != nil {
		return nil // as gateBy has it
	}
	if k == nil {
		return f.Close()
	}
	k.gate = f
	return lock.Unlock(f.File())
}

// passed reports whether k went through the gate a moment ago.
func (k *keptDatabase) passed(now time.Time) bool {
	since := now.Sub(k.past)
	return since >= 0 && since < gateEvery
}

func closeGate(gate *lock.File) {
	if gate != nil {
		gate.Close()
	}
}

// relock takes the lock of a kept database and reports whether it can continue from where
// it was left.
func (t *Store) relock(ctx context.Context, k *keptDatabase, m lock.Mode) (usable bool, err error) {
	err = lock.TryFile(k.file, m)
	if errors.Is(err, lock.ErrHeld) {
		err = t.lockError(ctx, lock.Wait(ctx, k.file, m))
	}
	if err != nil {
		return false, err
	}
	return t.unchanged(k, m)
}

// unchanged is relock after the lock was taken.
func (t *Store) unchanged(k *keptDatabase, m lock.Mode) (usable bool, err error) {
	info, err := os.Lstat(t.Path(DatabaseName))
	if err != nil || !os.SameFile(info, k.info) || info.Size() != k.info.Size() {
		return false, nil // what is wrong there is said when it is opened
	}
	if k.journal != nil {
		named, err := os.Lstat(t.Path(JournalName))
		if err != nil || !os.SameFile(named, k.identity) {
			return false, nil
		}
	}
	if t.CheckFile != nil {
		if err := t.CheckFile(info); err != nil {
			return false, err
		}
	}
	var metas [2][disk.MetaBytes]byte
	if err := Guard(func() error { metas = k.readMetas(); return nil }); err != nil {
		return false, err
	}
	// Two databases that compact has written may have the same meta pages.
	same := metas == k.metas && info.ModTime().Equal(k.info.ModTime())
	if m == lock.Exclusive {
		return same, nil
	}
	if !same {
		if err := disk.CheckHeader(k.file); err != nil {
			return false, err
		}
		k.metas, k.info, k.known = metas, info, false
	}
	return true, nil
}

// resettle reads what others have appended to the journal since, and settles it.
func (k *keptDatabase) resettle() error {
	if k.journal == nil {
		return nil
	}
	was, _ := k.journal.Position()
	if err := k.readAll(); err != nil {
		return err
	}
	if now, _ := k.journal.Position(); now == was {
		return nil
	}
	k.synced, k.marked = false, false
	return k.settle(k.markPath)
}

// readMetas returns the meta pages as they are mapped.
func (k *keptDatabase) readMetas() (metas [2][disk.MetaBytes]byte) {
	info := k.Info()
	// The address is of memory that Go does not manage.
	data := *(*unsafe.Pointer)(unsafe.Pointer(&info.Data))
	for i := range metas {
		at := unsafe.Add(data, i*info.PageSize+disk.PageHeaderBytes)
		copy(metas[i][:], unsafe.Slice((*byte)(at), disk.MetaBytes))
	}
	return metas
}

// keep gives the lock of a database back after a call that went well, and keeps it.
func (t *Store) keep(k *keptDatabase, m lock.Mode) {
	var err error
	k.leaveMark()
	if m == lock.Exclusive || k.info == nil {
		if k.info, err = k.file.Stat(); err == nil {
			err = Guard(func() error { k.metas = k.readMetas(); return nil })
		}
	}
	if err == nil {
		err = lock.Unlock(k.file)
	}
	if err != nil || !t.kept.give(k, m) {
		k.close()
	}
}

// reader returns a database for a read transaction; see open about the gate.
func (t *Store) reader(ctx context.Context) (*keptDatabase, error) {
	k := t.kept.take(lock.Shared)
	// Where nothing is waited for, no end of the wait need be set: a twelfth of what a
	// short query takes.
	if k != nil && k.passed(time.Now()) && lock.TryFile(k.file, lock.Shared) == nil {
		if usable, err := t.unchanged(k, lock.Shared); usable && err == nil {
			return k, nil
		} // else once more, with all that follows
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	if err := t.passGate(ctx, k); err != nil {
		if k != nil {
			k.close()
		}
		return nil, err
	}
	return t.keptOrOpen(ctx, k, lock.Shared, 0)
}

// readKept is Store.read where databases are kept.
func (t *Store) readKept(ctx context.Context, fn func(tx *Tx) error) (err error) {
	if t.isClosed() {
		return store.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	k, err := t.reader(ctx)
	if err != nil {
		return err
	}
	sound := false
	defer func() {
		if sound {
			t.keep(k, lock.Shared)
		} else {
			k.close()
		}
	}()
	scanned := false
	err = t.viewOpen(k.database, func(tx *Tx) error {
		tx.ctx = ctx
		err := fn(tx)
		scanned = tx.scanned
		return err
	})
	sound = !scanned && !errors.Is(err, store.ErrCorrupt) // the kernel was told how a scan reads
	return err
}

// writer returns the database for a write transaction. When it has ended, end is called,
// with whether it went well.
func (t *Store) writer(ctx context.Context, bytes int) (db *database, end func(sound bool), err error) {
	if t.kept == nil {
		db, err = t.openNow(ctx, lock.Exclusive, bytes)
		return db, func(bool) { db.Close() }, err
	}
	k, err := t.keptOrOpen(ctx, t.kept.take(lock.Exclusive), lock.Exclusive, bytes)
	if err != nil {
		return nil, nil, err
	}
	return k.database, func(sound bool) {
		if sound && k.synced {
			t.keep(k, lock.Exclusive)
		} else {
			k.close()
		}
	}, nil
}
