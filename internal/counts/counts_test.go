package counts

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"thread/engine"
)

// TestGreatest: a limit returns the beginning of what there is without one.
func TestGreatest(t *testing.T) {
	counts := map[engine.Series]int64{{Source: "s", Type: "t"}: 7, {Source: "s", Type: "t", HasSubtype: true}: 7, {}: 3}
	for i := range 500 {
		counts[engine.Series{Source: fmt.Sprint("source ", i), Type: "t", Subtype: "u", HasSubtype: true}] = int64(i % 7)
	}
	type count struct {
		engine.Series
		n int64
	}
	of := func(limit int64) (list []count) {
		g := greatest{limit: limit}
		for s, n := range counts {
			g.add(&s, n)
		}
		g.order()
		for _, x := range g.list {
			list = append(list, count{g.series(x), x.n})
		}
		return list
	}
	all := of(-1)
	if len(all) != len(counts) || all[0].HasSubtype || !all[1].HasSubtype || all[1].Source != "s" {
		t.Fatalf("%d of %d, %+v", len(all), len(counts), all[:2])
	}
	for i := range all[1:] {
		x, y := &all[i], &all[i+1]
		if x.n != counts[x.Series] || x.n < y.n || x.n == y.n && x.Source > y.Source {
			t.Errorf("%+v before %+v", x, y)
		}
	}
	for _, limit := range []int64{0, 1, 3, 40, 251, 503, 1000, math.MaxInt64} {
		if is := of(limit); !slices.Equal(is, all[:min(limit, int64(len(all)))]) {
			t.Errorf("limit %d: %d", limit, len(is))
		}
	}
}

// TestSums: equal series are added up, and their text is a copy: what was read is valid during
// a call only.
func TestSums(t *testing.T) {
	series := []engine.Series{{}, {Source: "s"}, {Type: "t"}, {HasSubtype: true}, {Subtype: "u", HasSubtype: true}, {Source: "s", Type: "t", Subtype: "u", HasSubtype: true},
		{Source: "a long source", Type: "t"}, {Source: "a long sourcf", Type: "t"}}
	g := greatest{limit: -1}
	for round := range 3 {
		for _, s := range series {
			read := []byte(s.Source + s.Type + s.Subtype + ".")
			all := unsafe.String(&read[0], len(read))
			source, typ := len(s.Source), len(s.Source)+len(s.Type)
			g.add(&engine.Series{Source: all[:source], Type: all[source:typ], Subtype: all[typ : len(all)-1], HasSubtype: s.HasSubtype}, int64(round+1))
			clear(read) // as the end of the transaction does
		}
		g.sum()
		if len(g.list) != len(series) {
			t.Fatalf("%d series in round %d", len(g.list), round)
		}
	}
	for _, x := range g.list {
		if s := g.series(x); x.n != 6 || !slices.Contains(series, s) {
			t.Errorf("%+v: %d", s, x.n)
		}
	}
}
