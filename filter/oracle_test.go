package filter

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// oracle asks SQLite which of a set of events a filter selects.
type oracle struct {
	db    *sql.DB
	rows  []Row
	exact bool // it is SQLite 3.49, the version that filters follow
}

// newOracle makes a table like the reference's, without its secondary indexes,
// so that SQLite evaluates conditions in the order they are written.
func newOracle(t testing.TB, rows []Row) *oracle {
	if !slices.Contains(sql.Drivers(), "sqlite") {
		t.Skip("built without SQLite (-tags nooracle)")
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	_, err = db.Exec(`CREATE TABLE events (
		id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL, source TEXT NOT NULL,
		type TEXT NOT NULL, subtype TEXT, content TEXT NOT NULL)`)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		var subtype any
		if r.HasSubtype {
			subtype = r.Subtype
		}
		if _, err := db.Exec(`INSERT INTO events VALUES (?,?,?,?,?,?)`,
			r.ID, r.CreatedAt, r.Source, r.Type, subtype, r.Content); err != nil {
			t.Fatal(err)
		}
	}
	var version string
	if err := db.QueryRow("SELECT sqlite_version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return &oracle{db: db, rows: rows, exact: strings.HasPrefix(version, "3.49.")}
}

// selects gives the ids in order. The filter stands in the query as the
// reference puts it there.
func (o *oracle) selects(filter string) (string, error) {
	var ids sql.NullString
	err := o.db.QueryRow("SELECT group_concat(id) FROM (SELECT id FROM events WHERE id > -1e19 AND (" +
		filter + "\n) ORDER BY id ASC)").Scan(&ids)
	return ids.String, err
}

// ours is what our own evaluation selects, in each of its ways.
func ours(f *Filter, rows []Row) (string, error) {
	d := newDecider(f)
	var ids []string
	for i := range rows {
		ok, err := d.decide(&rows[i])
		if err != nil {
			return "", err
		}
		if ok {
			ids = append(ids, fmt.Sprint(rows[i].ID))
		}
	}
	return strings.Join(ids, ","), nil
}

// nastyRows are events that have gone wrong somewhere before, or could.
func nastyRows() []Row {
	var rows []Row
	add := func(source, typ string, subtype any, content string) {
		r := Row{ID: int64(len(rows) + 1), CreatedAt: "2026-03-18T10:30:00.123Z", Source: source, Type: typ, Content: content}
		r.Subtype, r.HasSubtype = subtype.(string)
		rows = append(rows, r)
	}
	add("internal:dm:default:warden", "message", nil, "hello")
	add("self", "record", "toolcall", "Hello, World")
	add("external:telegram:main:dm:u-42", "Message", "", "")
	add("internal:group:ops", "MESSAGE", "message", "5")
	add("5", "5.0", " 5 ", "5.0")
	add("a", "b", "c", "abc")
	add("A", "B", "C", "ABC")
	add("%", "_", "%_", "100%")
	add("a_b", "a%b", `\`, `a\%b`)
	add("'", `"`, "''", "it's \"quoted\"")
	add("line", "two", "x", "first\nsecond\r\n\tthird\v")
	add("é", "É", "ß", "日本語 straße É é")
	add("😀", "😀a", "K", "a😀b😀c \U0001F600")
	add("bad", "\xff", "\xc3", "a\x80\x80b\xe6\x97c\xed\xa0\x80")
	add("overlong", "\xc0\x80", "\xe0\x83\xa9", "\xf8\x88\x80\x80\x80 \xa9 \xfe\xff")
	add("json", "json", nil, `{"a":1,"b":"x","c":null,"d":[1,2,{"e":5}],"f":true,"g":1.5,"h":{"i":"j"},"n.m":7}`)
	add("json", "json", "arr", ` [1, "two", 3.0, null, false, {"a" : [ ] }] `)
	add("json", "json", "str", `"aA\n\ud83d\ude00"`)
	add("json", "num", "num", "-12.5e3")
	add("num", "-5", "+5", " 12abc")
	add("num", "1e3", "0x10", ".5")
	add("num", "9223372036854775807", "9223372036854775808", "-9223372036854775809")
	add("num", "0", "-0", "0.0")
	add("num", "1e400", "-1e400", "nan")
	add("date", "2026-03-18", "10:30", "2026-02-30 12:34:56.789")
	add("date", "2461117.5", "2026-03-18T10:30:00+02:00", "1773829800")
	add("spaces", "  ", "a  ", "  padded  ")
	add("long", strings.Repeat("a", 300), strings.Repeat("é", 100), strings.Repeat("ab ", 2000)+"end")
	add("self", "message", "text", `{"a":1`)
	add("self", "message", "TEXT", "]")
	add("self", "-", "^", "[a-c]*?")
	rows[5].CreatedAt, rows[6].CreatedAt = "2026-03-18 10:30:00", "2025-12-31T23:59:59.999Z"
	rows[7].CreatedAt, rows[8].CreatedAt = "", "not a date"
	rows[29].ID = 9007199254740993
	rows[30].ID = 9223372036854775807
	return rows
}

// nulRows hold U+0000, never after a digit: newer versions of SQLite read a
// number that a NUL follows otherwise than 3.49.
func nulRows() []Row {
	texts := []string{"\x00", "n\x00l", "N\x00L", "n", "a\x00", "a\x00b", "a", "", "abc\x00def", "\xc3\x00\xa9", "é\x00%", "%\x00%"}
	var rows []Row
	for i, s := range texts {
		next := texts[(i+1)%len(texts)]
		rows = append(rows, Row{ID: int64(i + 1), CreatedAt: "2026-03-18T10:30:00.123Z", Source: s, Type: next,
			Subtype: texts[(i+5)%len(texts)], HasSubtype: i%4 != 0, Content: s + next})
	}
	return rows
}

// checkFilter compares one filter with SQLite and reports whether it was a
// comparison: a filter that we refuse, or that fails on some event, is none.
func checkFilter(t interface {
	Errorf(string, ...any)
	Helper()
}, o *oracle, text string) bool {
	t.Helper()
	f, err := Compile(text)
	if err != nil {
		return false
	}
	got, err := ours(f, o.rows)
	if err != nil {
		return false
	}
	want, err := o.selects(text)
	if err != nil {
		if f.CanFail() {
			return false // SQLite computes constants before it looks at events
		}
		t.Errorf("filter %q: we select [%s], SQLite fails: %v", text, got, err)
		return true
	}
	if got != want {
		t.Errorf("filter %q:\nwe select     [%s]\nSQLite selects [%s]\ndifferent      %v", text, got, want, difference(got, want))
	}
	return true
}

func difference(a, b string) []string {
	var d []string
	as, bs := strings.Split(a, ","), strings.Split(b, ",")
	for _, id := range as {
		if !slices.Contains(bs, id) {
			d = append(d, "ours only: "+id)
		}
	}
	for _, id := range bs {
		if !slices.Contains(as, id) {
			d = append(d, "SQLite only: "+id)
		}
	}
	return d
}
