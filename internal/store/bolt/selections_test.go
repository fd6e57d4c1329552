package bolt_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// TestSelectionLearnsOfPushes: what a selection has ruled out holds for the events of that time
// only. What is pushed later is found with it, and what it has read is counted.
func TestSelectionLearnsOfPushes(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	defer th.Close()
	_, err = th.PushAll(ctx, func(yield func(event.Draft, error) bool) {
		for i := range manySeries {
			if !yield(event.Draft{Source: fmt.Sprint("source ", i), Type: fmt.Sprint("t", i%5), Content: "c"}, nil) {
				return
			}
		}
	})
	must(t, err)
	scan := func(tx *bolt.Tx, sel *store.Selection) (ids []int64, err error) {
		_, err = tx.Scan(store.Scan{Selection: sel, Upto: 1 << 40}, func(id int64) (bool, error) { ids = append(ids, id); return true, nil })
		return ids, err
	}
	all := store.NewSelection(nil, nil)
	must(t, view(th, func(tx *bolt.Tx) error { _, err := scan(tx, all); return err }))
	if r := all.Reads; r.Transactions != 1 || r.Blocks != manySeries/index.BlockEvents || r.BlocksPassed != 0 || r.Tail != manySeries%index.BlockEvents {
		t.Errorf("all events: %+v", r)
	}
	for i, where := range []string{"type = 't9'", "source = 'late' AND content = 'c'", "type LIKE 't9%' OR source = 'late'"} {
		f, err := filter.Compile(where)
		must(t, err)
		sel := store.NewSelection(f, nil)
		if i%2 == 0 { // with all that can be asked ahead
			must(t, view(th, func(tx *bolt.Tx) error {
				done, err := tx.Learn([]*store.Selection{sel})
				if !done && i == 0 {
					t.Errorf("%s: more is to be asked, and no type matches", where)
				}
				return err
			}))
		}
		var want []int64
		must(t, view(th, func(tx *bolt.Tx) (err error) { want, err = scan(tx, sel); return err }))
		if len(want) != i {
			t.Errorf("%s: %v before it", where, want)
		}
		for _, d := range []event.Draft{{Source: "other", Type: "t1"}, {Source: "late", Type: "t9", Content: "c"}, {Source: "source 3", Type: "t3"}} {
			e, err := th.Push(ctx, d)
			must(t, err)
			if d.Source == "late" {
				want = append(want, e.ID)
			}
			must(t, view(th, func(tx *bolt.Tx) error {
				got, err := scan(tx, sel)
				if !slices.Equal(got, want) {
					t.Errorf("%s, after a push of %s: %v, want %v", where, d.Source, got, want)
				}
				return err
			}))
		}
	}
}
