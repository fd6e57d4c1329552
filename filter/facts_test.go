package filter

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// fact is one line of testdata/facts.tsv: what SQLite 3.49.2 (the reference)
// makes of an expression over one event.
type fact struct {
	id, expr, want string
	row            Row
}

func facts(t *testing.T) []fact {
	file, err := os.Open("testdata/facts.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []fact
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "\t")
		f := fact{id: cells[0], want: cells[3], row: Row{
			ID: 5, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "internal:dm:default:warden",
			Type: "message", Content: "hello",
		}}
		if err := json.Unmarshal([]byte(cells[1]), &f.expr); err != nil {
			t.Fatalf("%s: %v", f.id, err)
		}
		if cells[2] != "" {
			override(t, &f.row, cells[2])
		}
		all = append(all, f)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func override(t *testing.T, r *Row, text string) {
	var cells map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&cells); err != nil {
		t.Fatal(err)
	}
	for name, cell := range cells {
		s, isText := cell.(string)
		switch name {
		case "id":
			r.ID, _ = cell.(json.Number).Int64()
		case "created_at":
			r.CreatedAt = s
		case "source":
			r.Source = s
		case "type":
			r.Type = s
		case "subtype":
			r.Subtype, r.HasSubtype = s, isText
		case "content":
			r.Content = s
		default:
			t.Fatalf("no column %s", name)
		}
	}
}

// T-67: TestFacts evaluates every expression for its value. An expression that SQLite
// has and we refuse is allowed; one that we accept must agree.
func TestFacts(t *testing.T) {
	refused := 0
	for _, f := range facts(t) {
		flt, err := Compile(f.expr)
		failsThere := strings.HasPrefix(f.want, "ERR")
		if err != nil {
			if !failsThere {
				refused++
				t.Logf("%s refused: %s: %v", f.id, f.expr, err)
			}
			continue
		}
		m := flt.Matcher()
		m.frame.row = f.row
		v := m.frame.value(flt.root)
		if m.frame.err != nil {
			if !failsThere {
				t.Logf("%s: %s failed: %v, want %s", f.id, f.expr, m.frame.err, f.want)
				refused++
			}
			continue
		}
		if !sameValue(v, f.want) {
			t.Errorf("%s: %q with %+v = %s, SQLite: %s", f.id, f.expr, f.row, show(v), f.want)
		}
		if v, err := valueByExpr(flt, f.row, m.frame.now); err != nil || !sameValue(v, f.want) {
			t.Errorf("%s: %q with %+v by expr = %s, %v; SQLite: %s", f.id, f.expr, f.row, show(v), err, f.want)
		}
		got, err := newDecider(flt).decide(&f.row)
		if want := v.truth() == isTrue; err != nil || got != want {
			t.Errorf("%s: %q matches: %v, %v; want %v", f.id, f.expr, got, err, want)
		}
	}
	t.Logf("%d refused", refused)
}

// show writes a value as the table does, where tabs and newlines are escaped and
// NUL is missing.
func show(v value) string {
	switch v.k {
	case null:
		return "NULL"
	case text:
		return "'" + strings.NewReplacer("'", "''", "\t", `\t`, "\n", `\n`, "\x00", "").Replace(v.s) + "'"
	case integer:
		return strconv.FormatInt(v.i, 10)
	}
	return strconv.FormatFloat(v.f, 'g', -1, 64) + " (REAL)"
}

// sameValue compares with a value as the table prints it. It prints REAL with an
// exponent or a point, and infinities as 9.0e+999.
func sameValue(v value, want string) bool {
	if v.k != real {
		return show(v) == want
	}
	if !strings.ContainsAny(want, ".eI") {
		return false
	}
	f, _ := strconv.ParseFloat(want, 64)
	return f == v.f || math.Abs(f-v.f) < 1e-15*math.Abs(f)
}
