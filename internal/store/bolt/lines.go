package bolt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"thread/event"
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

// LinesOff reports whether the thread of a transaction is a directory without lines.
func LinesOff(tx store.Tx) bool {
	b, ok := tx.(*Tx)
	return ok && b.linesOff()
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

// commit makes the transaction durable. A transaction that is not the last of
// its batch changes nothing that anyone can see, so that its outcome is known.
func (tx *Tx) commit(db *database, last bool) error {
	if err := tx.saveState(); err != nil {
		return err
	}
	if tx.over != nil {
		return tx.journalled(db)
	}
	return commitPages(db, tx.b, last)
}

// beginWrite begins a write transaction. One that is direct writes to events.db, and
// folds the journal.
func (t *Store) beginWrite(db *database, direct bool) (*Tx, error) {
	b, err := index.Begin(db.DB, false)
	if err != nil {
		return nil, err
	}
	over := db.over
	if !db.all {
		over, err = db.overlay(b)
	}
	db.all = false
	if err != nil || over == nil || direct {
		if err := errors.Join(b.Rollback(), err); err != nil {
			return nil, err
		}
		return t.beginFold(db)
	}
	over.SetWritable(true)
	return rolledBack(newTx(t, b, over))(b)
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

// journalled commits what the transaction has written to the overlay.
func (tx *Tx) journalled(db *database) error {
	changes := tx.over.Changes()
	if len(changes) == 0 {
		tx.over.SetWritable(false)
		return nil
	}
	if !db.journal.Room(len(changes)) {
		return tx.fold(db)
	}
	db.synced, db.marked = false, false
	written, err := db.journal.Append(changes)
	if err != nil && written {
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	}
	if err != nil {
		return err
	}
	db.synced = true
	tx.over.Settled()
	return nil
}

// fold commits the overlay, with what the transaction has written to it, in events.db.
func (tx *Tx) fold(db *database) error {
	_ = tx.b.Rollback() // or the map of the file could not grow: it is read until then
	b, err := index.Begin(db.DB, true)
	if err != nil {
		return err
	}
	defer b.Rollback()
	if err := tx.over.Fold(b, fillOf); err != nil {
		return err
	}
	return commitPages(db, b, true)
}

// lines collects the lines that a transaction adds to events.jsonl.
type lines struct {
	t    *Store
	tx   *Tx
	file *jsonlog.Events
	off  bool  // The thread's lines are off; known once an event was added.
	err  error // the file cannot be written
	text []byte
	long []longLine // in order
}

// longLine is a line that is written in pieces.
type longLine struct {
	at int // it follows this much of the text
	e  event.Event
}

// longLineBytes is the content from which on a line is not kept as text.
const longLineBytes = 64 << 10

// lineLen returns the length of the line of e. Buf is scratch space.
func lineLen(e *event.Event, buf []byte) ([]byte, int) {
	if len(e.Content) > longLineBytes {
		return buf, e.LineLen()
	}
	buf = append(e.AppendJSON(buf[:0]), '\n')
	return buf, len(buf)
}

// add accounts for e, before the commit, so that the database knows how the
// file has to look after it.
func (l *lines) add(e *event.Event) {
	if l.off {
		return
	}
	if l.file == nil && l.err == nil {
		if l.off = l.tx.linesOff(); l.off {
			return
		}
		l.err = l.open(e.ID - 1)
	}
	if len(e.Content) > longLineBytes {
		l.long = append(l.long, longLine{len(l.text), *e})
		l.tx.st.Log.Add(e.ID, e.LineLen())
		return
	}
	if k := l.t.kept; k != nil && l.text == nil {
		l.text, k.text = k.text, nil
	}
	start := len(l.text)
	l.text = append(e.AppendJSON(l.text), '\n')
	l.tx.st.Log.Add(e.ID, len(l.text)-start)
}

// open opens the file and brings it to where it was before this transaction.
func (l *lines) open(head int64) (err error) {
	if l.file, err = jsonlog.OpenEvents(l.t.Dir); err != nil {
		l.file = nil
		return err
	}
	l.tx.st.Log, err = l.file.Prepare(l.tx.st.Log, head, l.t.Now(), func(after int64, emit func(*event.Event) error) error {
		return l.tx.EventsAfter(after, emit)
	})
	return err
}

func (l *lines) write() error {
	if l.err != nil || l.file == nil {
		return l.err
	}
	if len(l.long) == 0 {
		return l.file.AppendLine(l.text)
	}
	return l.file.Append(func(w io.Writer) (err error) {
		var buf []byte
		at := 0
		for i := range l.long {
			if _, err = w.Write(l.text[at:l.long[i].at]); err != nil {
				return err
			}
			at = l.long[i].at
			if buf, err = l.long[i].e.WriteLine(w, buf); err != nil {
				return err
			}
		}
		_, err = w.Write(l.text[at:])
		return err
	})
}

// keptText is how long a text may be to be kept for the next transaction: to grow one
// costs more than to fill it.
const keptText = 4 << 20

func (l *lines) close() {
	if k := l.t.kept; k != nil && l.text != nil && cap(l.text) <= keptText {
		k.text = l.text[:0]
	}
	if l.file != nil {
		l.file.Close()
	}
}
