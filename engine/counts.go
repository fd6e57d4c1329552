package engine

import (
	"context"
	"math"

	"thread/event"
	"thread/internal/store"
)

// Series is what events have in common that only differ in time and content.
type Series struct {
	Source, Type string
	Subtype      string
	HasSubtype   bool
}

// Counts returns how many of the selected events there are of each series. Limit and
// Reverse of q say nothing here. Events are read only where the filter asks for more
// than their series and times; memory grows with the number of series. It lets writers
// through meanwhile; events that are pushed after the call are not counted. The errors
// are those of [Thread.Peek].
func (t *Thread) Counts(ctx context.Context, q Query) (counts map[Series]int64, err error) {
	q.Limit = 0
	f, _, err := q.compile()
	if err != nil {
		return nil, err
	}
	r := reading{t: t, selection: store.NewSelection(f, nil), after: q.After, upto: math.MaxInt64, limit: math.MaxInt64}
	counts = map[Series]int64{}
	for !r.done() {
		err := t.read(ctx, func(tx *Tx) (err error) {
			r.upto = min(r.upto, tx.s.State().Head)
			r.after, err = tx.s.ScanSeries(r.scan(r.upto), func(e *event.Event, _ func() error) (bool, error) {
				s := Series{Source: e.Source, Type: e.Type}
				if e.Subtype != nil {
					s.Subtype, s.HasSubtype = *e.Subtype, true
				}
				counts[s]++
				return true, nil
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}
