package pgstore_test

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"thread/event"
	"thread/internal/store"
)

// Push implements store.Store: one transaction for each call.
func (s *pgStore) Push(ctx context.Context, ds []event.Draft) (p store.Pushed, err error) {
	for i := range ds {
		if err := ds[i].Validate(); err != nil {
			return p, err
		}
	}
	if len(ds) == 0 {
		return p, context.Cause(ctx)
	}
	err = s.write(ctx, func(tx *tx, u store.Session) error {
		p = store.Pushed{}
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
		p.Subscribed = s.logic.Subscribed(tx)
		return nil
	})
	if err != nil {
		return store.Pushed{}, err
	}
	return p, nil
}

// PushAll implements store.Store: the sequence is read to its end into a file, before
// anything is locked, and then it is one transaction, however long.
func (s *pgStore) PushAll(ctx context.Context, all iter.Seq2[event.Draft, error]) (b store.Batch, err error) {
	sp, err := newSpool()
	if err != nil {
		return b, err
	}
	defer sp.close()
	for d, err := range all {
		if err == nil {
			err = d.Validate()
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = sp.add(&d)
		}
		if err != nil {
			return b, err
		}
	}
	if sp.n == 0 {
		return b, context.Cause(ctx)
	}
	err = s.write(ctx, func(tx *tx, u store.Session) error {
		b = store.Batch{CreatedAt: tx.createdAt}
		err := sp.each(func(d *event.Draft) error {
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
		b.Subscribed = s.logic.Subscribed(tx)
		return err
	})
	if err != nil {
		return store.Batch{}, err
	}
	return b, nil
}

// spool keeps drafts in a file.
type spool struct {
	file *os.File
	buf  *bufio.Writer
	enc  *gob.Encoder
	n    int64
}

// spooled is a draft: gob makes no difference between a pointer to "" and none.
type spooled struct {
	Draft      event.Draft
	HasSubtype bool
}

func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "thread-spool-")
	if err != nil {
		return nil, err
	}
	s := &spool{file: f, buf: bufio.NewWriter(f)}
	s.enc = gob.NewEncoder(s.buf)
	return s, nil
}

func (s *spool) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

func (s *spool) add(d *event.Draft) error {
	s.n++
	return s.enc.Encode(spooled{*d, d.Subtype != nil})
}

func (s *spool) each(fn func(d *event.Draft) error) error {
	if err := s.buf.Flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	dec := gob.NewDecoder(bufio.NewReader(s.file))
	for n := int64(0); ; n++ {
		var d spooled
		if err := dec.Decode(&d); errors.Is(err, io.EOF) && n == s.n {
			return nil
		} else if err != nil {
			return fmt.Errorf("spool: %w", err)
		}
		if d.HasSubtype && d.Draft.Subtype == nil {
			d.Draft.Subtype = event.Text("")
		}
		if err := fn(&d.Draft); err != nil {
			return err
		}
	}
}
