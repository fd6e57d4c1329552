package filter

import (
	"math"
	"strings"
	"testing"
)

// TestRangesAreSound evaluates random filters for events outside of their
// ranges: none may match, none may fail.
func TestRangesAreSound(t *testing.T) {
	rows := append(nastyRows(), nulRows()...)
	for i, s := range []string{"internal", "INTERNAL:", "Internal:x", "a", "a\x00b", "a\x80", "ab", "b", "self\x00", "Self"} {
		rows = append(rows, Row{ID: int64(i - 5), CreatedAt: s, Source: s, Type: "t", Content: s})
	}
	bySource, byTime, byID, exacts, byPrefix, byType := 0, 0, 0, 0, 0, 0
	for _, columns := range [][]string{nil, {"id", "source"}, {"created_at", "source", "id"}, {"source", "type"}} {
		randomFilters(t, checks(t)/4, columns, func(f *Filter) {
			m := f.Matcher()
			low, high, exact := f.SourceRange()
			from, to := f.CreatedAtRange()
			first, last := f.IDRange()
			prefix := f.SourcePrefix()
			lowType, highType := f.TypeRange()
			if exact {
				exacts++
			}
			for i := range rows {
				r := &rows[i]
				var outside string
				switch {
				case r.Source < low || high != "" && r.Source >= high || exact && r.Source != low:
					bySource++
					outside = "SourceRange"
				case !strings.HasPrefix(lowerPrefix(r.Source), prefix):
					byPrefix++
					outside = "SourcePrefix"
				case r.Type < lowType || highType != "" && r.Type >= highType:
					byType++
					outside = "TypeRange"
				case r.CreatedAt < from || to != "" && r.CreatedAt >= to:
					byTime++
					outside = "CreatedAtRange"
				case r.ID < first || r.ID > last:
					byID++
					outside = "IDRange"
				default:
					continue
				}
				if got, err := m.Match(r); got || err != nil {
					t.Fatalf("%q: event %+v is outside of %s and gives %v, %v (source [%q, %q) id [%d, %d] created_at [%q, %q))",
						f.Text(), *r, outside, got, err, low, high, first, last, from, to)
				}
			}
		})
	}
	if byPrefix < 100 || byType < 1000 {
		t.Errorf("outside of a range: %d by prefix, %d by type: the test proves little", byPrefix, byType)
	}
	if bySource < 1000 || byTime < 1000 || byID < 1000 || exacts < 20 {
		t.Errorf("outside of a range: %d by source (%d exact), %d by time, %d by id: the test proves little", bySource, exacts, byTime, byID)
	}
}

func TestSourceRange(t *testing.T) {
	for _, c := range []struct {
		filter, low, high string
		exact             bool
	}{
		{"source = 'self'", "self", "self\x00", true},
		{"'self' = source", "self", "self\x00", true},
		{"source IN ('self')", "self", "self\x00", true},
		{"source IN ('b', 'a', NULL)", "a", "b\x00", false},
		{"type = 'x' AND source = 'self'", "self", "self\x00", true},
		{"source IS 'self'", "self", "self\x00", true},
		{"source = 5", "5", "5\x00", true},
		{"source GLOB 'internal:*'", "internal:", "internal;", false},
		{"source GLOB 'internal'", "internal", "internam", false}, // also "internal\x00…"
		{"source GLOB 'é*'", "", "", false},
		{"source LIKE 'internal:%'", "INTERNAL:", "internal;", false},
		{"source LIKE '123:%'", "123:", "123;", false},
		{"source LIKE '%x'", "", "", false},
		{`source LIKE 'a\_b%' ESCAPE '\'`, "A_B", "a_c", false},
		{"source >= 'a' AND source < 'b'", "a", "b", false},
		{"source BETWEEN 'a' AND 'b'", "a", "b\x00", false},
		{"source = 'a' OR source = 'c'", "a", "c\x00", false},
		{"NOT source <> 'a'", "a", "a\x00", true},
		{"source = 'a' COLLATE NOCASE", "", "", false},
		{"source = 'a' OR content = 'b'", "", "", false},
		{"content ->> 'x' = 1 AND source = 'a'", "", "", false}, // may fail before
		{"source = 'a' AND content ->> 'x' = 1", "a", "a\x00", true},
		{"source = 'a' AND source = 'b'", "\x00", "\x00", false},
		{"+source = 'a'", "", "", false},
	} {
		low, high, exact := mustCompile(t, c.filter).SourceRange()
		if low != c.low || high != c.high || exact != c.exact {
			t.Errorf("SourceRange of %q = %q, %q, %v; want %q, %q, %v", c.filter, low, high, exact, c.low, c.high, c.exact)
		}
	}
}

func TestIDRange(t *testing.T) {
	const least, most = math.MinInt64, math.MaxInt64
	for _, c := range []struct {
		filter    string
		low, high int64
	}{
		{"id > 5", 6, most},
		{"id >= 5 AND id < 9", 5, 8},
		{"5 < id", 6, most},
		{"id = '5'", 5, 5},
		{"id = ' 5.0 '", 5, 5},
		{"id > '5x'", most, least},
		{"id < '5x'", least, most},
		{"id > 5.5", 6, most},
		{"id >= 5.5", 6, most},
		{"id < 5.5", least, 5},
		{"id = 5.5", most, least},
		{"id BETWEEN 3 AND 7.5", 3, 7},
		{"id IN (9, 2, '4', 'x', NULL)", 2, 9},
		{"id > 9223372036854775807", most, least},
		{"id > 9.3e18", most, least},
		{"id > -9.3e18", least, most},
		{"id > 5 OR id = 2", 2, most},
		{"NOT id <= 5", 6, most},
		{"(id > 5) IS TRUE", 6, most},
		{"id > 5 AND content ->> 'x' = 1", 6, most},
		{"content ->> 'x' = 1 AND id > 5", least, most},
		{"id + 0 > 5", least, most},
		{"rowid = 7", 7, 7},
		{"type = 'x'", least, most},
	} {
		low, high := mustCompile(t, c.filter).IDRange()
		if low != c.low || high != c.high {
			t.Errorf("IDRange of %q = [%d, %d], want [%d, %d]", c.filter, low, high, c.low, c.high)
		}
	}
}
