package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"thread/event"
	"thread/internal/store"
)

func denseIDs(t *testing.T, open func(l store.Logic) store.Store) {
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for range writers {
		s := open(&logic{})
		wg.Go(func() {
			for n := range each {
				ds := make([]event.Draft, 1+n%3)
				for i := range ds {
					ds[i] = draft(fmt.Sprint(n))
				}
				if _, err := s.Push(ctx, ds); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	s, last := open(&logic{}), int64(0)
	for over := false; ; {
		for _, id := range matching(t, s, "", last, math.MaxInt64) {
			if id != last+1 {
				t.Fatalf("event %d after %d", id, last)
			}
			last = id
		}
		if over {
			break
		}
		select {
		case <-done:
			over = true
		default:
		}
	}
	if st := state(t, s); st.Head != last || st.LastID != last || st.Count != last || st.Stored != last || last < writers*each {
		t.Errorf("%+v, and %d events were read", st, last)
	}
}

func atomic(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	wrong := errors.New("wrong")
	change := func(tx store.Tx) error {
		d := draft("x")
		if _, err := tx.Append(&d, at); err != nil {
			return err
		}
		if err := tx.SetSequence("mine", 7); err != nil {
			return err
		}
		return tx.Put("mine", []byte("k"), []byte("v"))
	}
	look := func(want bool) {
		t.Helper()
		view(t, s, func(tx store.Tx) error {
			v, err := tx.Get("mine", []byte("k"))
			n, serr := tx.Sequence("mine")
			_, stored, eerr := tx.Event(1)
			if (v != nil) != want || (n == 7) != want || stored != want || (tx.State().Head == 1) != want {
				t.Errorf("%q, sequence %d, event %v, %+v; want %v", v, n, stored, tx.State(), want)
			}
			return errors.Join(err, serr, eerr)
		})
	}
	if err := write(s, func(tx store.Tx) error { return errors.Join(change(tx), wrong) }); !errors.Is(err, wrong) {
		t.Error(err)
	}
	look(false)
	func() {
		defer func() {
			if r := recover(); r != "mine" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = write(s, func(tx store.Tx) error {
			_ = change(tx)
			panic("mine")
		})
	}()
	look(false)
	must(t, write(s, change))
	look(true)
	must(t, write(s, func(tx store.Tx) error { return tx.Drop("mine") }))
	view(t, s, func(tx store.Tx) error {
		if n, err := tx.Sequence("mine"); n != 0 || err != nil || !empty(tx, "mine") {
			t.Errorf("dropped, and sequence %d, %v", n, err)
		}
		return nil
	})
}

// oneMoment changes an event and a record together: no reader sees one without the other.
func oneMoment(t *testing.T, open func(l store.Logic) store.Store) {
	s, reader := open(&logic{}), open(&logic{})
	const updates = 100
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range updates {
			d := draft("x")
			if err := write(s, func(tx store.Tx) error {
				e, err := tx.Append(&d, at)
				if err != nil {
					return err
				}
				return tx.Put("mine", []byte("k"), binary.BigEndian.AppendUint64(nil, uint64(e.ID)))
			}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	last := int64(0)
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		view(t, reader, func(tx store.Tx) error {
			first, err := tx.Get("mine", []byte("k"))
			head, events := tx.State().Head, int64(0)
			eerr := tx.EventsAfter(0, func(*event.Event) error { events++; return nil })
			second, serr := tx.Get("mine", []byte("k"))
			if id(first) != head || events != head || id(second) != head || head < last {
				t.Fatalf("record %d, state %d, %d events, record %d, after %d", id(first), head, events, id(second), last)
			}
			last = head
			return errors.Join(err, eerr, serr)
		})
	}
	if last != updates {
		t.Errorf("the last view saw %d of %d updates", last, updates)
	}
}

func ended(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	why := errors.New("why")
	over, cancel := context.WithCancelCause(ctx)
	cancel(why)
	_, err := s.Push(over, []event.Draft{draft("x")})
	_, err2 := s.PushAll(over, func(yield func(event.Draft, error) bool) { yield(draft("x"), nil) })
	for _, err := range []error{err, err2, s.View(over, func(store.Tx) error { return nil }), s.Update(over, func(store.Session) error { return nil })} {
		if !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
	}
	if st := state(t, s); st.Count != 0 {
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
	if _, err := s.Push(ctx, []event.Draft{draft("x")}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.View(ctx, func(store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
