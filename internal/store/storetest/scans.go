package storetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

func scans(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	r := rand.New(rand.NewPCG(3, 4))
	var all []event.Event
	for len(all) < 3000 {
		ds := make([]event.Draft, 1+r.IntN(500))
		for i := range ds {
			ds[i] = event.Draft{Source: fmt.Sprint("agent:", r.IntN(40)), Type: fmt.Sprint("t", r.IntN(5)), Content: fmt.Sprint(r.IntN(100))}
			if r.IntN(3) == 0 {
				ds[i].Subtype = event.Text("sub")
			}
		}
		all = append(all, push(t, s, ds...).Events...)
	}
	for _, where := range []string{
		"", "source = 'agent:7'", "source LIKE 'agent:1%'", "type = 't3' AND subtype IS NULL", "type = 'none'", "content > '95'",
		"source = 'agent:7' OR content LIKE '%7'", "id > 2000 AND type <> 't0'", "created_at > '2020'",
	} {
		f, err := filter.Compile(where)
		must(t, err)
		m := f.Matcher()
		after := r.Int64N(2000)
		upto := after + r.Int64N(2000)
		var want []int64
		for _, e := range all {
			row := filter.RowOf(&e)
			if ok, err := m.Match(&row); err != nil {
				t.Fatal(err)
			} else if ok && e.ID > after && e.ID <= upto {
				want = append(want, e.ID)
			}
		}
		if got := matching(t, s, where, after, upto); !slices.Equal(got, want) {
			t.Errorf("%s in (%d, %d]: %d events, want %d", where, after, upto, len(got), len(want))
		}
		// In pages, and in slices.
		sel := store.NewSelection(f, nil)
		var got []int64
		for pos, n := after, 0; pos < min(upto, int64(len(all))); n++ {
			view(t, s, func(tx store.Tx) error {
				es, p, err := tx.Page(store.Scan{Selection: sel, After: pos, Upto: upto, Slice: true, Long: n > 0}, 7, nil)
				if p <= pos && err == nil || len(es) > 7 {
					t.Fatalf("%s: from %d to %d, %d events", where, pos, p, len(es))
				}
				for _, e := range es {
					if e != all[e.ID-1] && *e.Subtype != *all[e.ID-1].Subtype {
						t.Errorf("event %+v, want %+v", e, all[e.ID-1])
					}
					got = append(got, e.ID)
				}
				pos = p
				return err
			})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s in pages of (%d, %d]: %d events, want %d", where, after, upto, len(got), len(want))
		}
		seriesOf(t, s, store.Scan{Selection: store.NewSelection(f, nil), After: after, Upto: upto}, all, want)
	}
}

// seriesOf compares a ScanSeries, which is ended in the middle and continues in another
// transaction, with the ids that it must find among all events. It reads every third.
func seriesOf(t *testing.T, s store.Store, q store.Scan, all []event.Event, want []int64) {
	t.Helper()
	same := func(a, b *string) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	var got []int64
	var kept []event.Event
	end := min(q.Upto, int64(len(all)))
	for half := max(1, len(want)/2); q.After < end; half = math.MaxInt {
		view(t, s, func(tx store.Tx) error {
			pos, err := tx.ScanSeries(q, func(e *event.Event, read func() error) (bool, error) {
				w := all[e.ID-1]
				if e.Source != w.Source || e.Type != w.Type || !same(e.Subtype, w.Subtype) {
					t.Errorf("the series of %+v, want %+v", e, w)
				}
				if e.ID%3 == 0 {
					if err := read(); err != nil {
						return false, err
					}
					kept = append(kept, *e)
				}
				got = append(got, e.ID)
				return len(got) != half, nil
			})
			if len(got) == half && pos != want[half-1] {
				t.Errorf("ended at event %d, and searched up to %d", want[half-1], pos)
			}
			if pos < q.After || pos == q.After && err == nil {
				t.Fatalf("from %d to %d", q.After, pos)
			}
			q.After = pos
			return err
		})
	}
	if !slices.Equal(got, want) {
		t.Errorf("series in (…, %d]: %d events, want %d", q.Upto, len(got), len(want))
	}
	for _, e := range kept { // after the transaction
		if w := all[e.ID-1]; e.Content != w.Content || e.CreatedAt != w.CreatedAt || e.Source != w.Source || !same(e.Subtype, w.Subtype) {
			t.Errorf("read %+v, want %+v", e, w)
		}
	}
	wrong := errors.New("wrong")
	if len(want) > 0 {
		q.After = 0
		if err := s.View(ctx, func(tx store.Tx) error {
			_, err := tx.ScanSeries(q, func(*event.Event, func() error) (bool, error) { return true, wrong })
			return err
		}); !errors.Is(err, wrong) {
			t.Errorf("got %v, want the error of the function", err)
		}
	}
}
