package bolt_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// TestStepsOfAFullTail is TestSteps for a thread whose next event fills a column block, with
// pushes that other processes have left, and searches that read what they find.
func TestStepsOfAFullTail(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	ds := make([]event.Draft, index.BlockEvents-1)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("source ", i%9), Type: fmt.Sprint("t", i%5), Content: fmt.Sprint(i)}
	}
	ds[3].Content, ds[5].DedupeKey = large, "key"
	_, err = th.PushBatch(ctx, ds)
	must(t, err)
	token := []byte("0123456789abcdef")
	left := []event.Draft{draft("left"), ds[5]}
	must(t, bolt.Write(ctx, dirOf(th), func(tx *bolt.Tx, s store.Session) error {
		return tx.StorePending(s, token, []event.Draft{ds[5]}, "2026-03-18T10:30:00.123Z")
	}))
	must(t, th.Close())
	f, err := filter.Compile("type = 't3'")
	must(t, err)
	failEachStep(t, dir, map[string]deed{
		"push": {do: func(th *engine.Thread) (string, error) {
			e, err := th.Push(ctx, draft("new"))
			return fmt.Sprint(e.ID), err
		}, then: newest},
		"cut batch": {do: done(func(th *engine.Thread) error {
			s, err := openStore(th.Dir(), bolt.Options{MaxGroup: 4})
			if err != nil {
				return err
			}
			defer s.Close()
			return bolt.CutBatch(ctx, s, ds[:9])
		}), then: newest},
		"raw": {do: done(func(th *engine.Thread) error { return bolt.Fold(ctx, dirOf(th)) }), then: newest},
		"series": {do: func(th *engine.Thread) (text string, err error) {
			err = view(th, func(tx *bolt.Tx) error {
				_, err := tx.ScanSeries(store.Scan{Selection: store.NewSelection(f, nil), Upto: 2000}, func(e *event.Event, read func() error) (bool, error) {
					err := read()
					text += fmt.Sprint(e.ID, e.Source, len(e.Content), " ")
					return true, err
				})
				return err
			})
			return text, err
		}},
		"all, with contents": {do: func(th *engine.Thread) (text string, err error) {
			n := 0
			for e, err := range th.Events(ctx, engine.Query{}) {
				if err != nil {
					return "", err
				}
				n += len(e.Content)
			}
			return fmt.Sprint(n), nil
		}},
		"store what others left": {do: done(func(th *engine.Thread) error {
			return bolt.Write(ctx, dirOf(th), func(tx *bolt.Tx, s store.Session) error {
				return tx.StorePending(s, []byte("fedcba9876543210"), left, "2026-03-18T10:30:00.123Z")
			})
		}), then: newest},
		"drop a receipt": {do: done(func(th *engine.Thread) error {
			_, err := th.Push(ctx, draft("new"))
			return err
		}), then: newest},
		"a receipt": {do: func(th *engine.Thread) (text string, err error) {
			err = view(th, func(tx *bolt.Tx) error {
				ok, err := tx.Receipt(token, []event.Draft{ds[5]})
				text = fmt.Sprint(ok)
				return err
			})
			return text, err
		}},
	})
}

// TestStepsOfALongLastRound is TestSteps for a copy that has more to write in its last round
// than goes into one transaction.
func TestStepsOfALongLastRound(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	compactable(t, dir)
	compact := deed{do: done(func(th *engine.Thread) error {
		return atSync(func(n int) error {
			if n > 1 {
				return nil
			}
			other, err := engine.Open(th.Dir())
			if err != nil {
				return err
			}
			defer other.Close()
			return other.Update(ctx, func(tx *engine.Tx) error {
				r, err := tx.Records("mine")
				for i := range 11 {
					if err == nil {
						err = r.Put(fmt.Append(nil, "key ", i), []byte(strings.Repeat("x", 1_000_000)))
					}
				}
				return err
			})
		}, func() error { _, err := th.Compact(ctx); return err })
	}), then: func(th *engine.Thread) (string, error) { return fmt.Sprint(len(contents(t, th.Dir()))), nil }}
	next, open := compact, compact
	next.within, open.within = "(*copying).next", "(*copying).open\n\tcopyrecords.go"
	failEachStep(t, dir, map[string]deed{"next": next})
	failEachOnce(t, dir, map[string]deed{"open": open})
}
