package bolt

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
	"thread/lock"
)

// Push implements store.Store. Calls of several goroutines on one store share their
// syncs.
func (t *Store) Push(ctx context.Context, ds []event.Draft) (store.Pushed, error) {
	if len(ds) > t.MaxGroup {
		return t.pushLong(ctx, ds)
	}
	return t.pushGroup(ctx, ds)
}

func (t *Store) pushLong(ctx context.Context, ds []event.Draft) (p store.Pushed, err error) {
	b, err := t.PushAll(ctx, func(yield func(event.Draft, error) bool) {
		for i := range ds {
			if !yield(ds[i], nil) {
				return
			}
		}
	})
	if err != nil {
		return p, err
	}
	es := make([]event.Event, len(ds))
	i := 0
	for id, duplicate := range store.IDs(b.First, b.Count, b.Duplicates) {
		d := &ds[i]
		es[i] = event.Event{ID: id, CreatedAt: b.CreatedAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
		if duplicate {
			err := t.read(ctx, func(tx *Tx) (err error) {
				es[i], _, err = tx.Event(id)
				return err
			})
			if err != nil {
				return p, fmt.Errorf("%w: the events are stored, but the first one with the key of draft %d cannot be read: %w", store.ErrUnknownOutcome, i, err)
			}
		}
		i++
	}
	return store.Pushed{Events: es, Duplicates: b.Duplicates, Subscribed: b.Subscribed, Warning: b.Warning}, nil
}

func (t *Store) pushGroup(ctx context.Context, ds []event.Draft) (store.Pushed, error) {
	for i := range ds {
		if err := ds[i].Validate(); err != nil {
			if len(ds) > 1 {
				err = fmt.Errorf("draft %d: %w", i, err)
			}
			return store.Pushed{}, err
		}
	}
	if len(ds) == 0 {
		return store.Pushed{}, context.Cause(ctx)
	}
	w := &write{drafts: ds}
	err := t.write(ctx, w)
	return w.pushed, err
}

// PushAll implements store.Store. The sequence is read to its end, into a temporary
// file in run/ when it is long, before the database is locked.
func (t *Store) PushAll(ctx context.Context, ds iter.Seq2[event.Draft, error]) (store.Batch, error) {
	sp := spool{dir: t.Path(store.RunName)}
	defer sp.close()
	var few []event.Draft // until the sequence turns out to be long
	size := 0
	for d, err := range ds {
		if err != nil {
			return store.Batch{}, err
		}
		if err := d.Validate(); err != nil {
			return store.Batch{}, err
		}
		if err := context.Cause(ctx); err != nil {
			return store.Batch{}, err
		}
		if len(few) == t.MaxGroup || len(few) > 0 && size+len(d.Content) > maxGroupBytes {
			if err := sp.add(few); err != nil {
				return store.Batch{}, err
			}
			few, size = few[:0], 0
		}
		few = append(few, d)
		size += len(d.Content)
	}
	if sp.n == 0 {
		p, err := t.pushGroup(ctx, few)
		if err != nil || len(p.Events) == 0 {
			return store.Batch{}, err
		}
		es, duplicates := p.Events, p.Duplicates
		b := store.Batch{Count: int64(len(es)), Duplicates: duplicates, LastSource: few[len(few)-1].Source, Subscribed: p.Subscribed, Warning: p.Warning}
		for i := range es {
			if len(duplicates) > 0 && duplicates[0].Index == int64(i) {
				duplicates = duplicates[1:]
				continue
			}
			if b.First == 0 {
				b.First, b.CreatedAt = es[i].ID, es[i].CreatedAt
			}
			b.Last = es[i].ID
		}
		return b, nil
	}
	if err := sp.add(few); err != nil {
		return store.Batch{}, err
	}
	return t.pushLongBatch(ctx, &sp)
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

func (l *longLines) close() {
	if l.file != nil {
		l.file.Close()
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
	w, err := t.Logic.Write(tx, true, func(s store.Session) error { return l.push(tx, s) })
	if err != nil {
		return err
	}
	l.out.Subscribed = w.Subscribed
	tx.goesOn = l.left > 0
	tx.changed = l.left == 0
	return tx.commit(db, l.left == 0)
}

// push stores as many drafts as one transaction takes.
func (l *longBatch) push(tx *Tx, s store.Session) (err error) {
	for n, size := 0, 0; l.left > 0 && n < l.t.MaxGroup && size < maxGroupBytes; n++ {
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
	return nil
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

func (l *longLines) prepare(tx *Tx, head int64) {
	if l.off = tx.linesOff(); l.off {
		return
	}
	once := lines{t: tx.t, tx: tx}
	l.err = once.open(head)
	l.file = once.file
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
