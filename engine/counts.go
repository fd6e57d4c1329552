package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
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

// Counting for a filter that reads contents can take minutes. So a handle keeps what was
// counted, in parts: a count that was cut off continues where it was, one that has ended adds
// what was pushed since, and one whose consumer got on takes off the parts in front. A
// consumer with settled ids above its progress is counted from the start.

// partIDs bounds the ids of a part, which are counted again after a step of progress, and
// partsIDs those for a filter that reads no contents. Variables for the tests.
var partIDs, partsIDs int64 = 4 << 10, 64 << 10

// tally is the count for one consumer.
type tally struct {
	reading
	backlog *Backlog

	keep         bool // the parts, for a later count
	parts, ahead []countPart
	seen         int64
	seenAt       string
}

// keepsParts reports whether a count is worth keeping, and may be.
func (l *tally) keepsParts() bool {
	return l.selection.Filter != nil && len(l.skip) == 0 && !l.selection.Filter.UsesClock()
}

func (l *tally) partIDs() int64 {
	if l.selection.Contents {
		return partIDs
	}
	return partsIDs
}

// resume lets a count use what earlier ones have counted behind its place.
func (l *tally) resume(seen *seenEvents, k keptParts) error {
	if len(k.parts) == 0 || k.where != l.selection.Filter.Text() {
		return nil
	}
	oldest, err := seen.first()
	if err != nil {
		return err
	}
	at, err := seen.at(k.seen)
	if err != nil || k.seen >= oldest && at != k.at {
		return err
	}
	l.after = max(l.after, oldest-1)
	l.ahead = slices.DeleteFunc(slices.Clone(k.parts), func(p countPart) bool { return p.after < l.after || p.upto > l.upto })
	l.join()
	return nil
}

// until returns up to which id is counted next.
func (l *tally) until(head int64) int64 {
	upto := min(l.upto, head)
	switch {
	case !l.keep:
		return upto
	case len(l.ahead) > 0:
		return min(upto, l.after+l.partIDs(), l.ahead[0].after)
	}
	return min(upto, l.after+l.partIDs())
}

// add adds a part that begins at the count's place.
func (l *tally) add(p countPart) {
	if l.backlog.Count == 0 {
		l.backlog.Oldest = p.oldest
	}
	l.backlog.Count += p.count
	l.after = p.upto
	if !l.keep {
		return
	}
	if n := len(l.parts) - 1; n >= 0 && p.upto-l.parts[n].after <= l.partIDs() {
		last := &l.parts[n]
		last.oldest = cmp.Or(last.oldest, p.oldest)
		last.upto, last.count = p.upto, last.count+p.count
		return
	}
	l.parts = append(l.parts, p)
}

// join adds the parts that were counted before and begin at the count's place.
func (l *tally) join() {
	for len(l.ahead) > 0 && l.ahead[0].after <= l.after {
		l.add(l.ahead[0])
		l.ahead = l.ahead[1:]
	}
}

// seenEvents are what counts ask one transaction, each once: on a server that is a round trip.
type seenEvents struct {
	s      store.Tx
	oldest int64 // 0: not asked
	times  map[int64]string
}

func (v *seenEvents) first() (id int64, err error) {
	if v.oldest == 0 {
		v.oldest, err = v.s.Oldest()
	}
	return v.oldest, err
}

// at returns created_at of an event, "" when it is not stored.
func (v *seenEvents) at(id int64) (string, error) {
	at, known := v.times[id]
	if known || id == 0 {
		return at, nil
	}
	e, _, err := v.s.Event(id)
	if v.times == nil {
		v.times = map[int64]string{}
	}
	v.times[id] = e.CreatedAt
	return e.CreatedAt, err
}

// kept returns what a later count can use. In a thread without an event, it is nothing.
func (l *tally) kept() keptParts {
	if !l.keep || l.seenAt == "" {
		return keptParts{}
	}
	return keptParts{where: l.selection.Filter.Text(), parts: append(l.parts, l.ahead...), seen: l.seen, at: l.seenAt}
}
