package bolt

import (
	"context"
	"math"
	"os"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
	"thread/lock"
)

// ViewLines runs fn under the shared lock of the database: no process appends to
// events.jsonl meanwhile.
func (t *Store) ViewLines(ctx context.Context, fn func(st disk.State, start disk.LogStart) error) error {
	return t.read(ctx, func(tx *Tx) error {
		start, err := tx.logStart()
		if err != nil {
			return err
		}
		return fn(tx.st, start)
	})
}

// LockLines runs fn under the exclusive lock: events.jsonl is not rotated meanwhile.
func (t *Store) LockLines(ctx context.Context, fn func() error) error {
	db, err := t.open(ctx, lock.Exclusive)
	if err != nil {
		return err
	}
	defer db.Close()
	return fn()
}

// ReplaceLines runs fn, which replaces events.jsonl and returns how that is now, under
// the exclusive lock and in a write transaction. Where the file ends is noted in it,
// unless fn returns an error.
func (t *Store) ReplaceLines(ctx context.Context, fn func(tx store.Tx) (jsonlog.Position, error)) error {
	return t.writeAlone(ctx, func(tx *Tx) error {
		log, err := fn(tx)
		if err != nil {
			return err
		}
		tx.st.Log, tx.changed = log, true
		return nil
	})
}

// SetLogStart stores where the thread's part of events*.jsonl begins.
func (t *Store) SetLogStart(ctx context.Context, s disk.LogStart) error {
	return t.writeAlone(ctx, func(tx *Tx) error { return index.Put(tx.meta, disk.KeyLines, s.Encode()) })
}

// SetLines turns the lines of the thread off or on; it changes nothing where they are so.
// The events.jsonl of the time before is renamed like a full one, and an empty one is
// removed. The first push after turning on begins a new one.
func (t *Store) SetLines(ctx context.Context, on bool) error {
	err := t.writeAlone(ctx, func(tx *Tx) error {
		start, err := tx.logStart()
		if err != nil || start.Off() == !on {
			return err
		}
		if start.Known, start.From = true, math.MaxInt64; on {
			// An older program may have made one meanwhile.
			if err := jsonlog.SetAside(t.Dir, t.Now()); err != nil {
				return err
			}
			start.From = max(tx.st.LastID+1, 1)
		} else {
			healed := lines{t: t, tx: tx}
			defer healed.close()
			_ = healed.open(tx.st.Head) // what a crash left out; that can fail: there are no lines from now on
		}
		tx.st.Log, tx.changed = jsonlog.Position{}, true
		return index.Put(tx.meta, disk.KeyLines, start.Encode())
	})
	if err != nil || on {
		return err
	}
	// After the commit: of a file that is missing before, a push would write all lines again.
	return t.ViewLines(ctx, func(_ disk.State, start disk.LogStart) error {
		if !start.Off() {
			return nil
		}
		return jsonlog.SetAside(t.Dir, t.Now())
	})
}

// linesOff reports whether pushes write no lines. A damaged record keeps no push from
// succeeding; check finds it.
func (tx *Tx) linesOff() bool {
	start, err := tx.logStart()
	return err == nil && start.Off()
}

// writeAlone runs fn in a separate write transaction, without the thread's logic and
// the queue of writes, and commits unless fn returns an error.
func (t *Store) writeAlone(ctx context.Context, fn func(tx *Tx) error) error {
	db, err := t.open(ctx, lock.Exclusive)
	if err != nil {
		return err
	}
	defer db.Close()
	return Guard(func() error {
		if err := t.clearBeyondHead(db); err != nil {
			return err
		}
		tx, err := t.beginWrite(db, true)
		if err != nil {
			return err
		}
		defer tx.b.Rollback()
		if err := fn(tx); err != nil {
			return err
		}
		return tx.commit(db, true)
	})
}

// LockForReading returns events.db, under a shared lock, with at least one whole
// meta page: that is enough to look at what there is. A file that was replaced
// meanwhile is opened again.
func (t *Store) LockForReading(ctx context.Context) (*os.File, error) {
	if t.isClosed() {
		return nil, store.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	if _, err := t.gate(ctx, lock.Shared); err != nil {
		return nil, err
	}
	f, err := t.lockDatabase(ctx, os.O_RDONLY, lock.Shared, func(f *os.File) error {
		_, err := disk.ReadHeader(f)
		return err
	})
	return f, t.lockError(ctx, err)
}

// logStart returns what is known of the beginning of events*.jsonl.
func (tx *Tx) logStart() (disk.LogStart, error) {
	v, err := index.Get(tx.meta, disk.KeyLines)
	if err != nil {
		return disk.LogStart{}, err
	}
	return disk.DecodeLogStart(v)
}
