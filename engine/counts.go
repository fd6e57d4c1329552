package engine

import (
	"context"
	"fmt"
	"math"
	"strings"

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
// are the errors of [Thread.Peek].
func (t *Thread) Counts(ctx context.Context, q Query) (counts map[Series]int64, err error) {
	counts = map[Series]int64{}
	err = t.EachCount(ctx, q, func(s *Series, n int64) {
		counts[Series{strings.Clone(s.Source), strings.Clone(s.Type), strings.Clone(s.Subtype), s.HasSubtype}] += n
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// EachCount calls fn with what [Thread.Counts] returns, in no order. In a directory its memory
// is 8 bytes for each series. What s holds is valid during the call. A series may come more than once
// with a part of its count.
func (t *Thread) EachCount(ctx context.Context, q Query, fn func(s *Series, n int64)) error {
	q.Limit = 0
	f, _, err := q.compile()
	if err != nil {
		return err
	}
	r := &reading{t: t, selection: store.NewSelection(f, nil), after: q.After, upto: math.MaxInt64, limit: math.MaxInt64}
	numbered := false
	var one Series
	var counts []int64 // by number of the series
	for !r.done() {
		err := t.read(ctx, func(tx *Tx) (err error) {
			r.upto = min(r.upto, tx.s.State().Head)
			var s store.Numbered
			if s, numbered = tx.s.(store.Numbered); !numbered {
				r.after, err = tx.s.ScanSeries(r.scan(r.upto), func(e *event.Event, _ func() error) (bool, error) {
					fn(one.set(e.Source, e.Type, e.Subtype), 1)
					return true, nil
				})
				return err
			}
			r.after, err = s.ScanNumbers(r.scan(r.upto), func(number uint32) error {
				if missing := int(number) + 1 - len(counts); missing > 0 {
					counts = append(counts, make([]int64, missing)...)
				}
				counts[number]++
				return nil
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	if !numbered {
		return nil
	}
	return t.nameCounts(ctx, counts, fn)
}

// nameCounts finds the series of the numbers, some in each transaction.
func (t *Thread) nameCounts(ctx context.Context, counts []int64, fn func(s *Series, n int64)) error {
	var one Series
	for next := uint32(0); int(next) < len(counts); {
		ended := true
		err := t.read(ctx, func(tx *Tx) error {
			return tx.s.(store.Numbered).SeriesFrom(next, func(number uint32, source, typ string, subtype *string) (bool, error) {
				if int(number) >= len(counts) {
					return false, nil
				}
				if n := counts[number]; n > 0 {
					fn(one.set(source, typ, subtype), n)
					counts[number] = 0
				}
				next, ended = number+1, number%1024 != 0 || !tx.s.Yield()
				return ended, nil
			})
		})
		if err != nil {
			return err
		}
		if ended {
			break
		}
	}
	for number, n := range counts {
		if n > 0 {
			return fmt.Errorf("%w: series %d is missing", ErrCorrupt, number)
		}
	}
	return nil
}

func (s *Series) set(source, typ string, subtype *string) *Series {
	*s = Series{Source: source, Type: typ}
	if subtype != nil {
		s.Subtype, s.HasSubtype = *subtype, true
	}
	return s
}
