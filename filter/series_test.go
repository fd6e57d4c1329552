package filter

import (
	"math/rand/v2"
	"testing"
)

// randomFilters calls check with accepted random filters, n of them.
func randomFilters(t *testing.T, n int, columns []string, check func(f *Filter)) {
	randomTexts(n, columns, false, func(text string) {
		if f, err := Compile(text); err == nil {
			check(f)
		}
	})
}

// randomTexts calls check with n random texts, most of them filters.
func randomTexts(n int, columns []string, exact bool, check func(text string)) {
	random := rand.New(rand.NewPCG(3, uint64(n)))
	g := generator{pick: random.IntN, risky: true, exact: exact, columns: columns}
	for range n {
		check(g.spine(3))
	}
}

// seriesRows are events of the series of r: with every id, time and content.
func seriesRows(r Row, rows []Row) []Row {
	all := make([]Row, len(rows))
	for i, other := range rows {
		all[i] = r
		all[i].ID, all[i].CreatedAt, all[i].Content = other.ID, other.CreatedAt, other.Content
	}
	return all
}

// TestSeriesIsSound asks for the verdict on a series and then evaluates the
// filter for events of it: No must not match or fail on any, Yes match all.
func TestSeriesIsSound(t *testing.T) {
	rows := append(nastyRows(), nulRows()...)
	said, ofTypes := map[Verdict]int{}, 0
	for _, columns := range [][]string{nil, {"source", "type", "subtype", "content"}} {
		randomFilters(t, checks(t)/8, columns, func(f *Filter) {
			m := f.Matcher()
			for _, r := range rows {
				v := f.Series(r.Source, r.Type, r.Subtype, r.HasSubtype)
				said[v]++
				if byType := f.Type(r.Type, r.Subtype, r.HasSubtype); byType != Depends && byType != v {
					t.Fatalf("%q: verdict %d for the type of series (%q, %q, %q, %v), %d for the series", f.Text(), byType, r.Source, r.Type, r.Subtype, r.HasSubtype, v)
				} else if byType == No {
					ofTypes++
				}
				if v == Depends {
					continue
				}
				for _, e := range seriesRows(r, rows[:12]) {
					got, err := m.Match(&e)
					if err != nil || got != (v == Yes) {
						t.Fatalf("%q: verdict %d for series (%q, %q, %q, %v), but event %+v gives %v, %v",
							f.Text(), v, r.Source, r.Type, r.Subtype, r.HasSubtype, e, got, err)
					}
				}
			}
		})
	}
	if ofTypes < 1000 {
		t.Errorf("a type was ruled out only %d times: the test proves little", ofTypes)
	}
	for _, v := range []Verdict{Depends, No, Yes} {
		if said[v] < 1000 {
			t.Errorf("verdict %d was given only %d times: the test proves little", v, said[v])
		}
	}
}

// TestSeriesDecides pins verdicts that the index relies on.
func TestSeriesDecides(t *testing.T) {
	for _, c := range []struct {
		filter string
		want   Verdict // for series ("internal:dm:a", "message", NULL)
	}{
		{"type = 'message'", Yes},
		{"type = 'record'", No},
		{"source LIKE 'internal:%' AND type = 'message'", Yes},
		{"source LIKE 'external:%' AND content LIKE '%x%'", No},
		{"content LIKE '%x%' AND source LIKE 'external:%'", No},
		{"content LIKE '%x%' AND type = 'message'", Depends},
		{"content LIKE '%x%' OR type = 'message'", Yes},
		{"subtype = 'x'", No},
		{"NOT subtype = 'x'", No},
		{"subtype IS NOT 'x'", Yes},
		{"subtype IS NULL", Yes},
		{"type = 'record' AND json_extract(content, '$.a') = 1", No},
		{"json_extract(content, '$.a') = 1 AND type = 'record'", Depends}, // fails on an event that is not JSON
		{"json_valid(content) AND type = 'record'", No},
		{"json_extract(source, '$.a') = 1", Depends}, // fails
		{"CASE WHEN type = 'record' THEN content = 'x' ELSE 0 END", No},
		{"iif(type = 'message', 1, content)", Yes},
		{"id > 5 AND type IN ('a', 'b')", No},
		{"created_at > '2026' OR 1", Yes},
		{"date('now') > '2000' AND type = 'message'", Depends},
		{"date('now') > '2000' AND type = 'record'", No},
		{"lower(type) = 'message'", Yes},
		{"0", No},
		{"content IN ()", No},
	} {
		f := mustCompile(t, c.filter)
		if got := f.Series("internal:dm:a", "message", "", false); got != c.want {
			t.Errorf("Series for %q = %d, want %d", c.filter, got, c.want)
		}
	}
}

func mustCompile(t testing.TB, text string) *Filter {
	t.Helper()
	f, err := Compile(text)
	if err != nil {
		t.Fatalf("Compile(%q): %v", text, err)
	}
	return f
}
