// Package counts counts events by source, type and subtype, for thread stats and HTTP.
package counts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"thread/engine"
	"thread/event"
)

// By are the columns that are counted by.
type By struct{ Source, Type, Subtype bool }

// All are the names of all columns, for Parse.
const All = "source,type,subtype"

// Parse reads names of columns with commas in between.
func Parse(s string) (by By, err error) {
	for column := range strings.SplitSeq(s, ",") {
		switch strings.TrimSpace(column) {
		case "source":
			by.Source = true
		case "type":
			by.Type = true
		case "subtype":
			by.Subtype = true
		default:
			return by, fmt.Errorf("%q is not source, type or subtype", column)
		}
	}
	return by, nil
}

// Count yields the counts, the greatest first, at most limit unless that is negative. Events that
// are equal in the columns are added up.
func (by By) Count(ctx context.Context, t *engine.Thread, q engine.Query, limit int64) (iter.Seq2[engine.Series, int64], error) {
	g, err := by.count(ctx, t, q, limit)
	return func(yield func(engine.Series, int64) bool) {
		for _, x := range g.list {
			if !yield(g.series(x), x.n) {
				return
			}
		}
	}, err
}

// AppendJSON appends a count as an object.
func (by By) AppendJSON(b []byte, s *engine.Series, count int64) []byte {
	b = strconv.AppendInt(append(b, `{"count":`...), count, 10)
	if by.Source {
		b = event.AppendString(append(b, `,"source":`...), s.Source)
	}
	if by.Type {
		b = event.AppendString(append(b, `,"type":`...), s.Type)
	}
	if by.Subtype && s.HasSubtype {
		b = event.AppendString(append(b, `,"subtype":`...), s.Subtype)
	} else if by.Subtype {
		b = append(b, `,"subtype":null`...)
	}
	return append(b, '}')
}

func (by By) count(ctx context.Context, t *engine.Thread, q engine.Query, limit int64) (*greatest, error) {
	if by == (By{true, true, true}) && t.URL() == "" {
		best := &greatest{limit: limit}
		err := t.EachCount(ctx, q, best.add)
		best.order()
		return best, err
	}
	sums := &greatest{limit: -1}
	most := 0 // that a sum of sums left
	err := t.EachCount(ctx, q, func(s *engine.Series, n int64) {
		one := engine.Series{}
		if by.Source {
			one.Source = s.Source
		}
		if by.Type {
			one.Type = s.Type
		}
		if by.Subtype {
			one.Subtype, one.HasSubtype = s.Subtype, s.HasSubtype
		}
		if sums.add(&one, n); len(sums.list) >= 2*most+1<<15 {
			sums.sum()
			most = len(sums.list)
		}
	})
	sums.sum()
	sums.limit = limit
	sums.order()
	return sums, err
}

// seriesCount is how many events a series has. There may be millions: it has no pointer that a
// collection of garbage would follow.
type seriesCount struct {
	n     int64
	head  uint64 // the first 8 bytes of the source, which compare as it does
	piece uint32 // of greatest.text
	at    uint32 // where its text begins there
}

// greatest keeps the greatest counts. With a limit it holds about twice as many as that.
type greatest struct {
	limit int64 // negative: all
	list  []seriesCount
	text  [][]byte // of the series in list, in pieces
	full  bool     // the first limit ones of list are in order
}

const textPieceBytes = 1 << 18

// add keeps a copy of a count that may be one of the greatest.
func (g *greatest) add(s *engine.Series, n int64) {
	x := g.put(s, n)
	if g.full && g.compare(x, g.list[g.limit-1]) > 0 {
		g.text[x.piece] = g.text[x.piece][:x.at]
		return
	}
	if g.list = append(g.list, x); g.limit > 0 && len(g.list) >= 64 && int64(len(g.list)/2) >= g.limit {
		g.order()
		g.full = true
	}
}

// put copies the text of a series: what an earlier transaction has read is not valid any more.
func (g *greatest) put(s *engine.Series, n int64) seriesCount {
	size := len(s.Source) + len(s.Type) + len(s.Subtype) + 3*binary.MaxVarintLen64
	if last := len(g.text) - 1; last < 0 || cap(g.text[last])-len(g.text[last]) < size {
		g.text = append(g.text, make([]byte, 0, max(size, textPieceBytes)))
	}
	last := len(g.text) - 1
	x := seriesCount{n: n, piece: uint32(last), at: uint32(len(g.text[last]))}
	subtype := 0 // 1 more than its length, 0 for none
	if s.HasSubtype {
		subtype = len(s.Subtype) + 1
	}
	b := g.text[last]
	for _, length := range [...]int{len(s.Source), len(s.Type), subtype} {
		b = binary.AppendUvarint(b, uint64(length))
	}
	b = append(append(append(b, s.Source...), s.Type...), s.Subtype...)
	g.text[last] = b
	var head [8]byte
	copy(head[:], s.Source)
	x.head = binary.BigEndian.Uint64(head[:])
	return x
}

// columns returns the text of a series.
func (g *greatest) columns(x seriesCount) (source, typ, subtype []byte, hasSubtype bool) {
	b := g.text[x.piece][x.at:]
	var lengths [3]int
	for i := range lengths {
		length, n := binary.Uvarint(b)
		lengths[i], b = int(length), b[n:]
	}
	source, b = b[:lengths[0]], b[lengths[0]:]
	typ, b = b[:lengths[1]], b[lengths[1]:]
	if hasSubtype = lengths[2] > 0; hasSubtype {
		subtype = b[:lengths[2]-1]
	}
	return source, typ, subtype, hasSubtype
}

func (g *greatest) series(x seriesCount) engine.Series {
	source, typ, subtype, hasSubtype := g.columns(x)
	return engine.Series{Source: string(source), Type: string(typ), Subtype: string(subtype), HasSubtype: hasSubtype}
}

// compare orders the greatest counts first, and equal ones by their names.
func (g *greatest) compare(x, y seriesCount) int {
	if c := cmp.Compare(y.n, x.n); c != 0 {
		return c
	}
	return g.compareNames(x, y)
}

func (g *greatest) compareNames(x, y seriesCount) int {
	if c := cmp.Compare(x.head, y.head); c != 0 {
		return c
	}
	xSource, xType, xSubtype, xHas := g.columns(x)
	ySource, yType, ySubtype, yHas := g.columns(y)
	if c := cmp.Or(bytes.Compare(xSource, ySource), bytes.Compare(xType, yType), bytes.Compare(xSubtype, ySubtype)); c != 0 || xHas == yHas {
		return c
	}
	if yHas {
		return -1
	}
	return 1
}

func (g *greatest) order() {
	slices.SortFunc(g.list, g.compare)
	if g.limit >= 0 && int64(len(g.list)) > g.limit {
		g.list = g.list[:g.limit]
		g.tidy()
	}
}

// sum adds up the counts of equal series.
func (g *greatest) sum() {
	slices.SortFunc(g.list, g.compareNames)
	sums := g.list[:0]
	for _, x := range g.list {
		if last := len(sums) - 1; last >= 0 && g.compareNames(sums[last], x) == 0 {
			sums[last].n += x.n
			continue
		}
		sums = append(sums, x)
	}
	if len(sums) < len(g.list) {
		g.list = sums
		g.tidy()
	}
}

// tidy drops the text of what is not in the list any more.
func (g *greatest) tidy() {
	old := *g
	g.text = nil
	for i, x := range g.list {
		s := old.series(x)
		g.list[i] = g.put(&s, x.n)
	}
}
