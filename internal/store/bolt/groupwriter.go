package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
	"thread/lock"
)

// groupWriter appends events to bucket events in groups. The newest group is put
// when it is full, and by flush.
type groupWriter struct {
	events *index.Bucket
	pieces func() (*index.Bucket, error)

	g       disk.Group // the newest group; its key is nil when there is none
	buf     []byte     // its value, without the crc
	before  int        // the length of the first of the pair; -1: this is the first
	unsaved bool       // buf is not what was put
	slab    []byte     // space for values, which bbolt keeps until the commit
}

// resume makes the newest group of the bucket the one to append to.
func (w *groupWriter) resume() error {
	k, v := w.events.Cursor().Last()
	if k == nil {
		return nil
	}
	g, err := disk.OpenGroup(k, v)
	if err != nil {
		return err
	}
	w.before = -1
	switch g.Form {
	case disk.GroupFirst:
	case disk.GroupSecond:
		before, _ := binary.Uvarint(v[1:])
		if before > math.MaxInt32 {
			return disk.CorruptEvent(k)
		}
		w.before = int(before)
	default:
		return disk.CorruptEvent(k)
	}
	if err := g.End(); err != nil {
		return err
	}
	g.Key = bytes.Clone(k)
	w.g, w.buf = g, append(w.buf[:0], v[:len(v)-disk.SumBytes]...)
	return nil
}

// add appends an event whose id is above all others.
func (w *groupWriter) add(id int64, series uint32, at *disk.TimeText, content string) error {
	e := disk.Appended{ID: id, Series: series, At: at, Content: content}
	if e.InPieces = len(content) > disk.LargeBytes; e.InPieces {
		e.Content, e.Size = "", len(content)
		b, err := w.pieces()
		if err != nil {
			return err
		}
		e.Sum, err = putPieces(b, id, content)
		if err != nil {
			return err
		}
	}
	return w.append(&e)
}

// append is add for an event whose pieces are there.
func (w *groupWriter) append(e *disk.Appended) error {
	if w.g.Key != nil {
		g, n := w.g, len(w.buf)
		if w.buf = g.Append(w.buf, e); len(w.buf)+disk.SumBytes <= w.limit(n, len(w.buf)-n) {
			w.g, w.unsaved = g, true
			return nil
		}
		w.buf = w.buf[:n]
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.g.Key != nil && w.before < 0 {
		w.before = len(w.buf) + disk.SumBytes
		w.buf = binary.AppendUvarint(append(w.buf[:0], disk.GroupSecond), uint64(w.before))
	} else {
		w.before = -1
		w.buf = append(w.buf[:0], disk.GroupFirst)
	}
	w.g = disk.Group{Key: disk.EventKey(e.ID)}
	w.buf = w.g.Append(w.buf, e)
	w.unsaved = true
	return nil
}

// limit returns how long the value of the newest group may become with an event
// of size bytes. The length of the value now is n, without the crc.
func (w *groupWriter) limit(n, size int) int {
	pages := 1
	if size > disk.PageEventBytes {
		pages = 2
	}
	if w.before < 0 {
		return disk.PairBytes(pages) / 2
	}
	for disk.PairBytes(pages) < w.before+n+disk.SumBytes {
		pages++ // an event was larger than what the first one had left
	}
	return disk.PairBytes(pages) - w.before
}

// flush puts the newest group, which can be appended to afterwards.
func (w *groupWriter) flush() error {
	if !w.unsaved {
		return nil
	}
	if need := len(w.buf) + disk.SumBytes; cap(w.slab)-len(w.slab) < need {
		w.slab = make([]byte, 0, max(need, min(2*cap(w.slab), 1<<20)))
	}
	start := len(w.slab)
	w.slab = append(w.slab, w.buf...)
	w.slab = binary.BigEndian.AppendUint32(w.slab, index.Sum(w.g.Key, w.buf))
	w.unsaved = false
	return w.events.Put(w.g.Key, w.slab[start:len(w.slab):len(w.slab)])
}

// maxFresh is how many new series of a batch wait for their keys to be put in order.
const maxFresh = 100_000

// longBatch stores a spool in several transactions under one lock. Only the last
// one moves head, so the batch becomes visible at once, and what a crash leaves
// is cleared by the next writer.
type longBatch struct {
	t     *Store
	in    *spoolReader
	left  int64
	draft event.Draft // the present one; one alone, because it is passed through an interface
	st    *disk.State // carried from one transaction to the next; nil before the first
	tail  *tail
	fresh *index.Fresh
	lines longLines
	out   store.Batch
}

func (t *Store) pushLongBatch(ctx context.Context, sp *spool) (store.Batch, error) {
	// What is due comes first. Others may be faster, which changes the order only.
	if err := t.Logic.BeforeBatch(ctx); err != nil {
		return store.Batch{}, err
	}
	in, err := sp.reader()
	if err != nil {
		return store.Batch{}, err
	}
	db, err := t.open(ctx, lock.Exclusive)
	if err != nil {
		return store.Batch{}, err
	}
	defer db.Close()
	l := &longBatch{t: t, in: in, left: sp.n}
	l.out.Count = sp.n
	l.out.CreatedAt = event.FormatTime(t.Now())
	defer l.lines.close()
	err = Guard(func() error {
		if err := t.clearBeyondHead(db); err != nil {
			return err
		}
		for l.left > 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := l.step(db); err != nil {
				return err
			}
		}
		l.out.Warning = warnBehind(l.lines.write(t, db.DB, l.out.First))
		return nil
	})
	if err != nil {
		return store.Batch{}, err
	}
	return l.out, nil
}

// step stores the next drafts in one transaction.
func (l *longBatch) step(db *database) error {
	t := l.t
	tx, err := t.beginWrite(db, true)
	if err != nil {
		return err
	}
	defer tx.b.Rollback()
	if l.st == nil {
		if tx.st.LastID > math.MaxInt64-l.left {
			return store.ErrIDsExhausted
		}
		l.lines.prepare(tx, tx.st.LastID)
	} else {
		tx.st, tx.tail = *l.st, l.tail
		tx.dict().SetFresh(l.fresh)
	}
	tx.pushed = l.lines.account(tx)
	s := t.Logic.Begin(tx)
	for n, size := 0, 0; l.left > 0 && n < t.MaxGroup && size < maxGroupBytes; n++ {
		var err error
		if l.draft, err = l.in.next(); err != nil {
			return err
		}
		d := &l.draft
		e, duplicate, err := s.Push(d, l.out.CreatedAt)
		if err != nil {
			return err
		}
		if duplicate {
			l.out.Duplicates = append(l.out.Duplicates, store.Duplicate{Index: l.out.Count - l.left, ID: e.ID})
			l.left--
			continue
		}
		if l.out.First == 0 {
			l.out.First = e.ID
		}
		l.left--
		size += len(d.Content)
		l.out.LastSource = d.Source
	}
	l.st, l.tail, l.fresh = &tx.st, tx.tail, tx.dict().Fresh()
	if l.out.First != 0 {
		l.out.Last = tx.st.LastID
	}
	l.out.Subscribed = t.Logic.Subscribed(tx)
	if err := s.After(); err != nil {
		return err
	}
	tx.goesOn = l.left > 0
	tx.changed = l.left == 0
	return tx.commit(db, l.left == 0)
}

// longLines is lines for a batch that is too long to keep: each line is encoded
// once before the commit, to know its length, and once after it, from the
// database.
type longLines struct {
	file *jsonlog.Events
	off  bool
	buf  []byte
	err  error // the file cannot be written
}

func (l *longLines) prepare(tx *Tx, head int64) {
	if l.off = tx.linesOff(); l.off {
		return
	}
	once := lines{t: tx.t, tx: tx}
	l.err = once.open(head)
	l.file = once.file
}

func (l *longLines) account(tx *Tx) func(*event.Event) {
	return func(e *event.Event) {
		if l.off {
			return
		}
		var n int
		l.buf, n = lineLen(e, l.buf)
		tx.st.Log.Add(e.ID, n)
	}
}

func (l *longLines) write(t *Store, db *bbolt.DB, first int64) error {
	if l.err != nil || l.off || first == 0 {
		return l.err
	}
	return db.View(func(b *bbolt.Tx) error {
		tx, err := newTx(t, b, nil)
		if err != nil {
			return err
		}
		return l.file.Append(func(w io.Writer) error {
			return tx.EventsAfter(first-1, func(e *event.Event) error {
				var err error
				l.buf, err = e.WriteLine(w, l.buf)
				return err
			})
		})
	})
}

func (l *longLines) close() {
	if l.file != nil {
		l.file.Close()
	}
}
