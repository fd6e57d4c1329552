package filter

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// checks is how many random filters are compared with SQLite, each on the whole
// set of events: 4,000 by default, more by the environment variable
// THREAD_FILTER_CHECKS.
func checks(t testing.TB) int {
	s := os.Getenv("THREAD_FILTER_CHECKS")
	if s == "" {
		return 4000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		t.Fatalf("THREAD_FILTER_CHECKS=%q is not a number of filters", s)
	}
	return n
}

// TestSameRowsAsSQLite is the proof of the package: a random filter that we
// accept selects the events that SQLite selects.
//
// The module's SQLite is newer than 3.49, so that the generator stays within what
// both compute alike. With
//
//	go test -modfile=filter/testdata/sqlite349.mod ./filter
//
// the tests run on SQLite 3.49.2 itself, and nothing is left out.
func TestSameRowsAsSQLite(t *testing.T) {
	o, nul := newOracle(t, nastyRows()), newOracle(t, nulRows())
	if o.exact {
		rows := nulRows()
		for i, s := range []string{"5\x00", "\x005", "1.5\x00x"} {
			rows = append(rows, Row{ID: int64(100 + i), CreatedAt: s, Source: s, Type: s + s, Subtype: s, HasSubtype: true, Content: s})
		}
		nul = newOracle(t, rows)
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(checks(t))); err != nil {
		t.Fatal(err)
	}
	compared := 0
	rapid.Check(t, func(rt *rapid.T) {
		// One number seeds a filter: rapid's own drawing would take longer than
		// both evaluations.
		seed := rapid.Uint64().Draw(rt, "seed")
		random := rand.New(rand.NewPCG(seed, seed))
		g := generator{pick: random.IntN, exact: o.exact}
		rows := o
		if seed%8 == 0 {
			g.plain, rows = !o.exact, nul
		}
		filter := g.spine(3)
		if seed%4 == 1 {
			_, plain := Compile(filter)
			filter = g.dress(filter)
			if _, dressed := Compile(filter); (plain == nil) != (dressed == nil) {
				rt.Errorf("%q: %v, without other white space, comments and case: %v", filter, dressed, plain)
			}
		}
		if checkFilter(rt, rows, filter) {
			compared++
		}
	})
	t.Logf("%d comparisons", compared)
}
