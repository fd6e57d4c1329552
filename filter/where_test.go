package filter

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// whereRows are the five events of testdata/facts_where.tsv.
func whereRows() []Row {
	row := func(id int64, typ string, subtype any, content string) Row {
		r := Row{ID: id, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "self", Type: typ, Content: content}
		r.Subtype, r.HasSubtype = subtype.(string)
		return r
	}
	return []Row{
		row(1, "message", nil, "hello"),
		row(2, "json", nil, `{"a":1}`),
		row(3, "text", "toolcall", "not json"),
		row(4, "json", "", `{"a":"x"}`),
		row(5, "num", "zzz", "5"),
	}
}

// acceptedThere are the filters that the reference accepts and we refuse: they
// close the query's parenthesis, hold what filters do not have, or comment the
// parenthesis away.
var acceptedThere = map[string]string{
	"W023": "ESCAPE that is not one character",
	"W020": "ESCAPE that is not one character", "W024": "ESCAPE that is not one character", "W025": "ESCAPE that is not one character",
	"W026": `near ")"`, "W027": `near ")"`, "W030": `near ")"`, "W031": `near ")"`, "W032": `near ")"`,
	"W052": "a sub-query", "W054": "a sub-query",
	"W061": "random()", "W062": "last_insert_rowid()", "W063": "changes()", "W064": "sqlite_version()",
	"W069": "a column with a schema",
	"W092": "a blob literal", "W118": "a blob literal",
}

// TestWhereFacts runs whole filters that SQLite 3.49.2 ran in the reference's own
// query. Errors must be errors here too; where the order of evaluation differs
// (an index that lets SQLite start elsewhere, a constant that it computes first)
// our rule is: from left to right.
func TestWhereFacts(t *testing.T) {
	file, err := os.Open("testdata/facts_where.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	order := map[string]string{
		"W041": "[1]",              // a comment at the end takes the reference's parenthesis away; here a newline follows
		"W004": "ERR",              // idx_events_type finds type='json' first
		"W017": "[]", "W018": "[]", // a constant is computed before the first event
	}
	count := 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		cells := strings.Split(lines.Text(), "\t")
		id, want := cells[0], cells[2]
		var text string
		if err := json.Unmarshal([]byte(cells[1]), &text); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue // no filter: see TestEmptyFilter
		}
		count++
		f, err := Compile(text)
		if what, ok := acceptedThere[id]; ok {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: Compile(%q) = %v, want %q", id, text, err, what)
			}
			continue
		}
		got := "ERR"
		if err == nil {
			var ids string
			if ids, err = ours(f, whereRows()); err == nil {
				got = "[" + strings.ReplaceAll(ids, ",", ", ") + "]"
			}
		}
		if w, ok := order[id]; ok {
			want = w
		}
		if strings.HasPrefix(want, "ERR") {
			want = "ERR"
		}
		if got != want {
			t.Errorf("%s: %q selects %s (%v), SQLite: %s", id, text, got, err, cells[2])
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if count < 140 {
		t.Errorf("only %d filters read", count)
	}
}

func TestEmptyFilter(t *testing.T) {
	f, err := Compile("")
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := ours(f, whereRows()); ids != "1,2,3,4,5" || err != nil {
		t.Errorf("the empty filter selects %s, %v", ids, err)
	}
	if v := f.Series("a", "b", "", false); v != Yes {
		t.Errorf("the empty filter says %d of a series", v)
	}
	if f.CanFail() || f.Columns() != nil {
		t.Error("the empty filter can fail or looks at columns")
	}
	for _, blank := range []string{" ", "\n", "/* */", "-- x\n"} {
		if _, err := Compile(blank); err == nil {
			t.Errorf("Compile(%q) accepts a filter without an expression", blank)
		}
	}
}

// TestClosed puts a parenthesis directly behind filters: what is closed means what it
// does with a newline of the query's own, and nothing is added that is not needed.
func TestClosed(t *testing.T) {
	o := newOracle(t, whereRows())
	for _, c := range []struct{ text, closed string }{
		{"type = 'json' -- the end", "type = 'json' -- the end\n"},
		{"type = 'json' --", "type = 'json' --\n"},
		{"type = 'json'--", "type = 'json'--\n"},
		{"type = 'json' -- a -- b /* c", "type = 'json' -- a -- b /* c\n"},
		{"type = 'json' -- the end\n", "type = 'json' -- the end\n"},
		{"type = 'json' /* -- */", "type = 'json' /* -- */"},
		{"type <> '--'", "type <> '--'"},
		{"type <> '--' -- '", "type <> '--' -- '\n"},
		{"id > 1 - -1", "id > 1 - -1"},
		{"id > 2--1", "id > 2--1\n"},
		{"", ""},
	} {
		closed := Closed(c.text)
		if closed != c.closed {
			t.Errorf("Closed(%q) = %q, want %q", c.text, closed, c.closed)
		}
		if c.text == "" {
			continue
		}
		f, err := Compile(c.text)
		if err != nil {
			t.Errorf("Compile(%q): %v", c.text, err)
			continue
		}
		got, err := ours(f, o.rows)
		if err != nil {
			t.Fatal(err)
		}
		var want sql.NullString
		if err := o.db.QueryRow("SELECT group_concat(id) FROM (SELECT id FROM events WHERE (" + closed + "))").Scan(&want); err != nil || got != want.String {
			t.Errorf("%q selects %q, in SQLite %q, %v", c.text, got, want.String, err)
		}
	}
}
