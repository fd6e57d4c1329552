package storetest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"thread/event"
	"thread/internal/store"
)

func longBatch(t *testing.T, open func(l store.Logic) store.Store) {
	const n = 25_000
	s, reader := open(&logic{}), open(&logic{})
	push(t, s, draft("first"))
	wrong := errors.New("wrong")
	batch := func(n int, err error) (store.Batch, error) {
		return s.PushAll(ctx, func(yield func(event.Draft, error) bool) {
			for i := range n {
				d := draft(fmt.Sprint(i))
				if i%1000 == 0 {
					d.DedupeKey = fmt.Sprint("key ", i%2000)
				}
				if !yield(d, nil) {
					return
				}
			}
			if err != nil {
				yield(event.Draft{}, err)
			}
		})
	}
	if _, err := batch(n, wrong); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	if st := state(t, reader); st.Head != 1 || st.Count != 1 {
		t.Errorf("of a batch that failed there is %+v", st)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b, err := batch(n, nil)
		if err != nil || b.First != 2 || b.Count != n || len(b.Duplicates) != n/1000-2 || b.Last != 1+n-int64(len(b.Duplicates)) {
			t.Errorf("%+v %v", b, err)
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		if st := state(t, reader); st.Head != 1 && st.Head != 1+n-(n/1000-2) {
			t.Fatalf("a part is visible, up to %d", st.Head)
		}
	}
}

func contents(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	texts := []string{"", "\x00", "a\x00b", strings.Repeat("é\x00", 40_000), strings.Repeat("x", 4096), strings.Repeat("y", 4097)}
	if !testing.Short() {
		texts = append(texts, strings.Repeat("long", event.MaxContentBytes/4))
	}
	for i, text := range texts {
		sub := fmt.Sprint(i)
		push(t, s, event.Draft{Source: "\x00s" + sub, Type: "\x00", Subtype: &sub, Content: text})
	}
	view(t, s, func(tx store.Tx) error {
		for i, text := range texts {
			e, ok, err := tx.Event(int64(i + 1))
			if err != nil || !ok || e.Content != text || e.Source != "\x00s"+fmt.Sprint(i) || e.Subtype == nil || *e.Subtype != fmt.Sprint(i) {
				t.Errorf("event %d of %d bytes: %v %v, %d bytes", i+1, len(text), ok, err, len(e.Content))
			}
		}
		return nil
	})
}

func prune(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	ds := make([]event.Draft, 3000)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("s", i/100), Type: "t", Content: fmt.Sprint(i)}
	}
	push(t, s, ds...)
	must(t, write(s, func(tx store.Tx) error { return tx.Put("mine", []byte("k"), []byte("v")) }))
	no := errors.New("no")
	through := func(tx store.Tx) (int64, error) { return tx.BeforeNewest(500) }
	if _, err := s.Prune(ctx, store.Dropping{Through: through, May: func(store.Tx, int64) error { return no }}); !errors.Is(err, no) {
		t.Errorf("refused: %v", err)
	}
	if st := state(t, s); st.Stored != 3000 {
		t.Errorf("refused, and %+v", st)
	}
	c, err := s.Prune(ctx, store.Dropping{Through: through, May: func(store.Tx, int64) error { return nil }})
	if err != nil || c.Dropped != 2500 || c.Through != 2500 || c.Kept != 500 {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := s.Compact(ctx); err != nil || c.Dropped != 0 || c.Kept != 500 {
		t.Errorf("%+v %v", c, err)
	}
	if p := push(t, s, draft("next")); p.Events[0].ID != 3001 {
		t.Errorf("event %d", p.Events[0].ID)
	}
	view(t, s, func(tx store.Tx) error {
		oldest, err := tx.Oldest()
		has, herr := tx.Has(2500)
		v, gerr := tx.Get("mine", []byte("k"))
		if st := tx.State(); oldest != 2501 || has || string(v) != "v" || st.Stored != 501 || st.Count != 3001 || st.LastID != 3001 {
			t.Errorf("oldest %d, %v, %q, %+v", oldest, has, v, st)
		}
		return errors.Join(err, herr, gerr)
	})
	if got := matching(t, s, "source IN ('s3', 's24', 's25')", 0, math.MaxInt64); len(got) != 100 || got[0] != 2501 {
		t.Errorf("%d events", len(got))
	}
}
