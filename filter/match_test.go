package filter

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMatchSeldomAllocates: what is allocated for an event is an interface value for
// each of id, created_at and content that operators of expr read, and for each number
// above 255 or text that a function returns. The tree and Series allocate nothing.
func TestMatchSeldomAllocates(t *testing.T) {
	rows := nastyRows()
	for _, c := range []struct {
		text string
		most int // allocations for an event
	}{
		{"type = 'message'", 0},
		{"type <> 'message' AND id > 5 AND id <= '7' OR created_at >= '2026'", 2},
		{"source LIKE 'internal:%' AND NOT content LIKE '%wor_d%'", 0},
		{"source GLOB 'external:*' OR source GLOB '[a-c]*'", 0},
		{"subtype IN ('toolcall', 'decision')", 0},
		{"subtype IN ('a','b','c','d','e','f','g','h','i','j')", 0},
		{"id IN (1,2,3,4,5,6,7,8,9,10)", 1},
		{"subtype IS NULL OR subtype IS NOT 'x'", 0},
		{"id BETWEEN 3 AND 9", 1},
		{"NOT (type = 'a' AND (subtype = 'b' OR content = 'c')) IS TRUE", 1},
		{"CASE WHEN type = 'message' THEN source = 'self' ELSE 0 END", 0},
		{"length(content) > 5 AND instr(content, 'x') = 0", 2},
		{"type COLLATE NOCASE = 'MESSAGE'", 0},
		{"coalesce(subtype, '') = ''", 0},
		{"json_valid(content) AND content ->> 'a' = 1", 1},
	} {
		text := c.text
		f := mustCompile(t, text)
		m := f.Matcher()
		if n := testing.AllocsPerRun(20, func() {
			for i := range rows {
				if _, err := m.Match(&rows[i]); err != nil {
					t.Fatal(err)
				}
			}
		}); int(n) > c.most*len(rows) {
			t.Errorf("%q: %v allocations for %d events", text, n, len(rows))
		}
		tree := f.Matcher()
		if n := testing.AllocsPerRun(20, func() {
			for i := range rows {
				tree.frame.row = rows[i]
				if _, err := tree.walk(f.root); err != nil {
					t.Fatal(err)
				}
			}
		}); n != 0 {
			t.Errorf("%q: the tree allocates %v times for %d events", text, n, len(rows))
		}
		if n := testing.AllocsPerRun(20, func() {
			for i := range rows {
				f.Series(rows[i].Source, rows[i].Type, rows[i].Subtype, rows[i].HasSubtype)
			}
		}); n != 0 {
			t.Errorf("%q: Series allocates %v times for %d series", text, n, len(rows))
		}
	}
}

// TestCanFail: a filter that says it cannot fail does not.
func TestCanFail(t *testing.T) {
	rows := append(nastyRows(), nulRows()...)
	randomFilters(t, checks(t)/2, nil, func(f *Filter) {
		m := f.Matcher()
		for i := range rows {
			if _, err := m.Match(&rows[i]); err != nil && !f.CanFail() {
				t.Fatalf("%q fails with %v, but CanFail says it cannot", f.Text(), err)
			}
		}
	})
}

// TestOrderOfEvaluation: conditions are evaluated from left to right, and no
// further than needed.
func TestOrderOfEvaluation(t *testing.T) {
	row := Row{ID: 1, Type: "message", Content: "not json"}
	for _, c := range []struct {
		filter string
		want   string
	}{
		{"type = 'record' AND content ->> 'a' = 1", "no"},
		{"content ->> 'a' = 1 AND type = 'record'", "error"},
		{"type = 'message' OR content ->> 'a' = 1", "yes"},
		{"NOT (type = 'record' AND content ->> 'a' = 1)", "yes"},
		{"json_valid(content) AND content ->> 'a' = 1", "no"},
		{"CASE WHEN json_valid(content) THEN content ->> 'a' = 1 ELSE 1 END", "yes"},
		{"iif(json_valid(content), content ->> 'a', 1)", "yes"},
		{"coalesce(type, content ->> 'a') = 'message'", "yes"},
		{"(json_valid(content) AND content ->> 'a') = 1", "error"}, // a value: SQLite computes both sides
		{"(json_valid(content) AND content ->> 'a') IS TRUE", "no"},
		{"id BETWEEN 5 AND content ->> 'a'", "no"},
		{"0 AND content ->> 'a'", "no"},
		{"content ->> 'a' AND 0", "no"}, // SQLite's parser makes it 0
		{"content ->> 'a' IN ()", "no"},
		{"content ->> 'a' AND id IN ()", "error"},
		{"abs(-9223372036854775808) < 5 AND id IN ()", "error"},
		{"NULL AND content ->> 'a'", "no"},
	} {
		got, err := newDecider(mustCompile(t, c.filter)).decide(&row)
		s := map[bool]string{true: "yes", false: "no"}[got]
		if err != nil {
			s = "error"
			if !errors.Is(err, ErrRuntime) {
				t.Errorf("%q: %v does not wrap ErrRuntime", c.filter, err)
			}
		}
		if s != c.want {
			t.Errorf("%q: %s (%v), want %s", c.filter, s, err, c.want)
		}
	}
}

// TestFailureDoesNotStick: the next event is evaluated as if nothing had been.
func TestFailureDoesNotStick(t *testing.T) {
	m := mustCompile(t, "content ->> 'a' = 1").Matcher()
	if _, err := m.Match(&Row{Content: "{"}); !errors.Is(err, ErrRuntime) {
		t.Fatalf("error %v", err)
	}
	if ok, err := m.Match(&Row{Content: `{"a":1}`}); !ok || err != nil {
		t.Fatalf("after a failure: %v, %v", ok, err)
	}
}

func TestNowIsFixed(t *testing.T) {
	at := time.Date(2026, 3, 18, 10, 30, 0, 123e6, time.UTC)
	for _, c := range []struct {
		filter string
		want   bool
	}{
		{"datetime('now') = '2026-03-18 10:30:00'", true},
		{"date() = '2026-03-18' AND time('NOW') = '10:30:00'", true},
		{"strftime('%f', 'now') = '00.123'", true},
		{"unixepoch() = 1773829800", true},
		{"datetime(created_at) > datetime('now', '-1 day')", true},
		{"datetime(created_at) > datetime('now')", false},
		{"created_at > datetime('now')", true}, // as texts: T is greater than a space
	} {
		m := mustCompile(t, c.filter).MatcherAt(at)
		if got, err := m.Match(&Row{CreatedAt: "2026-03-18T08:00:00.000Z"}); got != c.want || err != nil {
			t.Errorf("%q = %v, %v; want %v", c.filter, got, err, c.want)
		}
	}
}

// TestConcurrentMatchers shares one filter among goroutines that start it.
func TestConcurrentMatchers(t *testing.T) {
	f := mustCompile(t, "id IN (1,2,3,4,5,6,7,8,9,10) AND content LIKE '%a%'")
	rows := nastyRows()
	want, err := ours(f, rows)
	if err != nil {
		t.Fatal(err)
	}
	fresh := mustCompile(t, f.Text())
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if got, err := ours(fresh, rows); got != want || err != nil {
				t.Errorf("%s, %v; want %s", got, err, want)
			}
		})
	}
	wait.Wait()
}

func TestExplain(t *testing.T) {
	e := mustCompile(t, "(source LIKE 'internal:%' AND id > 5) AND (type = 'a' OR content LIKE '%x%') AND content ->> 'n' IN (1, 2) AND created_at > datetime('now', '-1 day')").Explain()
	var parts []string
	for _, p := range e.Parts {
		parts = append(parts, p.Index+": "+p.Text)
	}
	want := "series: source LIKE 'internal:%'|id: id > 5|none: type = 'a' OR content LIKE '%x%'|none: content ->> 'n' IN (1, 2)|none: created_at > datetime('now', '-1 day')"
	if got := strings.Join(parts, "|"); got != want {
		t.Errorf("parts\n%s, want\n%s", got, want)
	}
	e2 := mustCompile(t, "created_at >= '2026' AND created_at LIKE '2026-03%' AND NOT created_at <> 'x' AND length(created_at) > 3").Explain()
	for i, want := range []string{IndexTime, IndexTime, IndexTime, IndexNone} {
		if got := e2.Parts[i].Index; got != want {
			t.Errorf("%s: %s, want %s", e2.Parts[i].Text, got, want)
		}
	}
	if got := strings.Join(e.Columns, ","); got != "id,created_at,source,type,content" || !e.CanFail {
		t.Errorf("columns %s, can fail %v", got, e.CanFail)
	}
	if len(e.Warnings) != 2 || !strings.Contains(e.Warnings[0], "json_valid") || !strings.Contains(e.Warnings[1], "datetime(created_at)") {
		t.Errorf("warnings %q", e.Warnings)
	}
}

// TestLikeIsLinear needs no clock: a matcher that goes back into earlier runs does
// not return from these on 1 MB.
func TestLikeIsLinear(t *testing.T) {
	r := Row{Content: strings.Repeat("a", 1<<20)}
	for _, text := range []string{
		"content LIKE '%a%a%a%a%b'",
		"content LIKE '%a%a%a%a%a%a%a%a%b%'",
		"content LIKE '" + strings.Repeat("%a", 1000) + "%b'",
		"content LIKE '" + strings.Repeat("%a_", 200) + "%b'",
		"content GLOB '" + strings.Repeat("*a", 1000) + "*b'",
		"content GLOB '*[a]*[a]*[a]*[a]*[b]'",
		"content LIKE type || '%a%a%a%a%b'",
		"content LIKE '%" + strings.Repeat("a", 20000) + "B" + strings.Repeat("a", 20000) + "%'",
	} {
		if ok, err := mustCompile(t, text).Matcher().Match(&r); ok || err != nil {
			t.Errorf("%s on 1 MB of a: %v, %v", clip(text), ok, err)
		}
	}
}
