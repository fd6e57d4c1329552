package pgstore

import (
	"context"
	"iter"

	"thread/event"
	"thread/internal/store"
)

// maxDigests bounds how many series are looked up beforehand.
const maxDigests = 1000

// digests are the digests of the drafts' series that the handle does not know yet.
type digests struct {
	seen map[digest]bool
	list [][]byte // not nil
}

func newDigests() digests { return digests{map[digest]bool{}, [][]byte{}} }

func (s *Store) note(all *digests, d *event.Draft) {
	if len(all.list) >= maxDigests {
		return
	}
	sum := digestOf(d)
	if _, known := s.series.get(sum, anyEpoch); known || all.seen[sum] {
		return
	}
	all.seen[sum] = true
	all.list = append(all.list, []byte(sum))
}

// Push implements store.Store: one transaction for each call.
func (s *Store) Push(ctx context.Context, ds []event.Draft) (p store.Pushed, err error) {
	series := newDigests()
	for i := range ds {
		if err := ds[i].Validate(); err != nil {
			return p, err
		}
		s.note(&series, &ds[i])
	}
	if len(ds) == 0 {
		return p, context.Cause(ctx)
	}
	subscribed, err := s.write(ctx, series.list, func(tx *tx, u store.Session) error {
		p = store.Pushed{}
		tx.limit = s.lockTimeout + s.answerTimeout
		for i := range ds {
			e, duplicate, err := u.Push(&ds[i], tx.createdAt)
			if err == nil && duplicate {
				p.Duplicates = append(p.Duplicates, store.Duplicate{Index: int64(i), ID: e.ID})
				e, _, err = tx.Event(e.ID)
			}
			if err != nil {
				return err
			}
			p.Events = append(p.Events, e)
		}
		return nil
	})
	if err != nil {
		return store.Pushed{}, err
	}
	p.Subscribed = subscribed
	return p, nil
}

// PushAll implements store.Store: the sequence is read to its end, into a file when it is
// long, before anything is locked, and then it is one transaction, however long.
func (s *Store) PushAll(ctx context.Context, all iter.Seq2[event.Draft, error]) (b store.Batch, err error) {
	var sp spool
	defer sp.close()
	series := newDigests()
	for d, err := range all {
		if err == nil {
			err = d.Validate()
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			s.note(&series, &d)
			err = sp.add(&d)
		}
		if err != nil {
			return b, err
		}
	}
	if sp.n == 0 {
		return b, context.Cause(ctx)
	}
	subscribed, err := s.write(ctx, series.list, func(tx *tx, u store.Session) error {
		b = store.Batch{CreatedAt: tx.createdAt}
		return sp.each(func(d *event.Draft) error {
			e, duplicate, err := u.Push(d, tx.createdAt)
			switch {
			case err != nil:
				return err
			case duplicate:
				b.Duplicates = append(b.Duplicates, store.Duplicate{Index: b.Count, ID: e.ID})
			case b.First == 0:
				b.First = e.ID
			}
			if !duplicate {
				b.Last = e.ID
			}
			b.Count++
			b.LastSource = d.Source
			return nil
		})
	})
	if err != nil {
		return store.Batch{}, err
	}
	b.Subscribed = subscribed
	return b, nil
}
