package bolt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/store/bolt"
)

// plannerFilters is how many random filters TestPlanner compares.
func plannerFilters() int {
	if os.Getenv("THREAD_SOAK") != "" {
		return 500
	}
	return 50
}

// longThread is a thread of that many blocks and series that a search asks about all
// series at once, next to its events as rows.
type longThread struct {
	t    *engine.Thread
	rows []filter.Row
	rand *rand.Rand
}

// newLongThread imports events: ids have gaps, some times go back or have another
// form, a few series are rare.
func newLongThread(t *testing.T) *longThread {
	p := &longThread{rand: rand.New(rand.NewPCG(1, 2))}
	dir := filepath.Join(t.TempDir(), "t")
	r, err := bolt.StartRestore(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	id, ms := int64(0), int64(1773829800123)
	for range 10 * 1024 {
		if id++; p.rand.IntN(300) == 0 {
			id += p.rand.Int64N(3000)
		}
		if ms += p.rand.Int64N(5000); p.rand.IntN(100) == 0 {
			ms -= p.rand.Int64N(50_000_000)
		}
		e := event.Event{
			ID: id, CreatedAt: string(event.AppendTime(nil, ms)), Source: fmt.Sprintf("external:c%d:user%d", p.rand.IntN(3), p.rand.IntN(25)),
			Type: []string{"message", "record", "Tick", "5"}[p.rand.IntN(4)], Content: []string{"", "abc", `{"a":1}`, "5", " 12 ", "é"}[p.rand.IntN(6)],
		}
		if s := p.rand.IntN(6); s > 0 {
			e.Subtype = event.Text([]string{"", "toolcall", "A", "a", "5"}[s-1])
		}
		if p.rand.IntN(500) == 0 {
			e.Source, e.CreatedAt = []string{"self", "SELF ", "", "é", "5", "a\x00b"}[p.rand.IntN(6)], []string{"", "2026-03-18 10:30:00", "5", "x"}[p.rand.IntN(4)]
		}
		if err := r.Event(&e); err != nil {
			t.Fatal(err)
		}
		row := filter.Row{ID: id, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content}
		if e.Subtype != nil {
			row.Subtype, row.HasSubtype = *e.Subtype, true
		}
		p.rows = append(p.rows, row)
	}
	if err := errors.Join(r.Finish(id, 0), r.Publish()); err != nil {
		t.Fatal(err)
	}
	if p.t, err = engine.Open(dir); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *longThread) of(choices ...string) string { return choices[p.rand.IntN(len(choices))] }

func (p *longThread) row() *filter.Row { return &p.rows[p.rand.IntN(len(p.rows))] }

// condition writes a random condition over what a search is planned with.
func (p *longThread) condition(depth int) string {
	c := func() string { return p.condition(depth - 1) }
	if depth > 0 {
		switch p.rand.IntN(8) {
		case 0, 1, 2:
			return "(" + c() + " AND " + c() + ")"
		case 3, 4:
			return "(" + c() + " OR " + c() + ")"
		case 5:
			return "NOT (" + c() + ")"
		case 6:
			return "CASE WHEN " + c() + " THEN " + c() + " ELSE " + c() + " END"
		}
		return "(" + c() + ") IS " + p.of("TRUE", "NOT TRUE", "FALSE", "NULL", "NOT NULL")
	}
	r := p.row()
	quote := func(s string) string {
		s = strings.ReplaceAll(s, "\x00", "")
		if p.rand.IntN(3) == 0 {
			s = string([]rune(s)[:p.rand.IntN(len([]rune(s))+1)])
		}
		return "'" + s + "'"
	}
	column, text := "source", r.Source
	switch p.rand.IntN(5) {
	case 0:
		n := fmt.Sprint(r.ID + p.rand.Int64N(3) - 1)
		n = p.of(n, n, "'"+n+"'", "' "+n+".0'", n+".5", "'"+n+"x'", "NULL", "9223372036854775807", "-1", "1e3")
		return p.of("id", "id", "+id", "id + 0", "rowid") + p.of(" = ", " < ", " <= ", " > ", " >= ", " <> ", " IS ", " IS NOT ", " IN (7, NULL, ", " NOT BETWEEN 5000 AND (", " BETWEEN 9 AND (") + "(" + n + ")"
	case 1:
		column, text = "created_at", r.CreatedAt
	case 2:
		column, text = "type", r.Type
	case 3:
		column, text = "subtype", r.Subtype
	}
	s := quote(text)
	x := p.of(column, column, column, "("+column+")", "+"+column, "lower("+column+")", "coalesce("+column+", 'a')")
	switch p.rand.IntN(10) {
	case 0:
		return x + p.of(" IN (", " NOT IN (") + s + ", " + quote(p.row().Source) + p.of("", ", NULL", ", 5", ", 'message', 'record'") + ")"
	case 1:
		return x + p.of(" BETWEEN ", " NOT BETWEEN ") + s + " AND " + quote(p.row().CreatedAt)
	case 2:
		return x + p.of(" LIKE ", " NOT LIKE ") + s + " || " + p.of("'%'", "''", "'_'")
	case 3:
		return x + p.of(" GLOB '", " NOT GLOB '") + strings.Trim(s, "'") + p.of("*'", "'", "?'", "[a-m]*'")
	case 4:
		return p.of("content = '5'", "json_valid(content)", "content + 0 > 3", "source < type", "id % 7 = 3", "json_valid(content) AND content ->> 'a' = 1", "json_extract(content, '$.a') = 1", "1", "0", "NULL")
	case 5:
		return x + " COLLATE " + p.of("NOCASE", "RTRIM") + p.of(" = ", " < ", " >= ") + s
	case 6:
		return s + p.of(" = ", " < ", " <= ", " > ", " >= ", " IS ") + x
	}
	return x + p.of(" = ", " = ", " < ", " <= ", " > ", " >= ", " <> ", " IS ", " IS NOT ") + s
}

// closed closes the parentheses that a random operator opened.
func closed(s string) string {
	return s + strings.Repeat(")", strings.Count(s, "(")-strings.Count(s, ")"))
}

// TestPlanner compares every way in which the engine answers a filter with an
// evaluation of each event: series, ranges of ids, times and sources, and what was
// remembered of an earlier look may only save work.
func TestPlanner(t *testing.T) {
	p := newLongThread(t)
	compared, failed, most := 0, 0, plannerFilters()
	for compared+failed < most {
		where := closed(p.condition(p.rand.IntN(4)))
		f, err := filter.Compile(where)
		if err != nil {
			continue // COLLATE where it would leak, or a list that a filter cut short
		}
		after, limit := int64(0), p.rand.Int64N(200)
		if p.rand.IntN(2) == 0 {
			after = p.row().ID - p.rand.Int64N(2)
		}
		var all []int64
		m, bad := f.Matcher(), false
		for i := range p.rows {
			ok, err := m.Match(&p.rows[i])
			bad = bad || err != nil
			if ok {
				all = append(all, p.rows[i].ID)
			}
		}
		if bad {
			failed++
			if es, err := p.t.Peek(ctx, engine.Query{Filter: where}); !errors.Is(err, filter.ErrRuntime) || len(es) > 0 {
				t.Errorf("%q fails on an event; Peek gives %d events, %v", where, len(es), err)
			}
			continue
		}
		compared++
		first, _ := slices.BinarySearch(all, after+1)
		want := all[first:]
		p.peek(t, engine.Query{After: after, Limit: limit, Filter: where}, want)
		p.peek(t, engine.Query{After: after, Limit: limit, Filter: where, Reverse: true}, want)
		p.subscribed(t, where, after, all)
	}
	if compared < most/2 || failed == 0 {
		t.Errorf("%d filters compared, %d failed on an event: the test proves little", compared, failed)
	}
}

func (p *longThread) peek(t *testing.T, q engine.Query, want []int64) {
	t.Helper()
	want = slices.Clone(want)
	if q.Reverse {
		slices.Reverse(want)
	}
	if q.Limit > 0 {
		want = want[:min(q.Limit, int64(len(want)))]
	}
	es, err := p.t.Peek(ctx, q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	got := make([]int64, len(es))
	for i := range es {
		got[i] = es[i].ID
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v:\ngot  %v\nwant %v", q, got, want)
	}
}

// subscribed asks what a consumer of where has to do, twice: the second look may
// use what the first one remembered.
func (p *longThread) subscribed(t *testing.T, where string, after int64, all []int64) {
	t.Helper()
	s := engine.Subscription{Consumer: "c", Handler: "true", Filter: &where}
	if err := p.t.Subscribe(ctx, s); err != nil {
		t.Fatalf("%q: %v", where, err)
	}
	for range 2 {
		for _, from := range []int64{0, after} {
			want := int64(0)
			if i, _ := slices.BinarySearch(all, from+1); i < len(all) {
				want = all[i]
			}
			if due, err := p.t.DueFor(ctx, "c", from); err != nil || due.Err != nil || due.First != want {
				t.Errorf("%q after %d: first %d, %v, %v; want %d", where, from, due.First, due.Err, err, want)
			}
		}
	}
	if n, _, err := p.t.Backlog(ctx, "c"); err != nil || n != int64(len(all)) {
		t.Errorf("%q: backlog %d, %v; want %d", where, n, err, len(all))
	}
	if err := p.t.Unsubscribe(ctx, "c"); err != nil {
		t.Fatal(err)
	}
}
