//go:build !lite

package filter

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"thread/filter/internal/sqltext"
)

// TestExpr pins translations, of which users see the text in filter check.
func TestExpr(t *testing.T) {
	for _, c := range []struct{ filter, want string }{
		{"", "true"},
		{"type = 'message'", `type == "message"`},
		{"type <> 'message' OR NOT subtype = 'x'", `type != "message" || (subtype != nil && subtype != "x")`},
		{"type = 'a' AND source LIKE 'internal:%'", `type == "a" && like(source, "internal:%")`},
		{"subtype IS NULL OR subtype IS NOT 'x'", `subtype == nil || subtype != "x"`},
		{"subtype IN ('a', 'b') AND type NOT IN ('a', 'b')", `subtype in ["a", "b"] && not (type in ["a", "b"])`},
		{"subtype IN ('', 'b', NULL)", `subtype != nil && subtype in ["", "b"]`},
		{"source GLOB 'a:*' AND source GLOB '*a*'", `source startsWith "a:" && glob(source, "*a*")`},
		{"instr(content, 'x') > 0 AND instr(content, 'y') = 0", `content contains "x" && not (content contains "y")`},
		{"type NOT LIKE 'a%' AND subtype NOT LIKE 'a%'", `not like(type, "a%") && unlike(subtype, "a%")`},
		{"json_valid(content) AND content ->> 'n' >= 3", `isjson(content) && ge(json_extract(content, "$.n"), 3)`},
		{"created_at BETWEEN '2026' AND '2027'", `created_at >= "2026" && created_at <= "2027"`},
		{"created_at > datetime('now', '-1 day')", `gt(created_at, datetime("now", "-1 day"))`},
		{"coalesce(subtype, '') = ''", `eq(subtype ?? "", "")`},
		{"CASE WHEN type = 'a' THEN id % 2 ELSE 1 END", `type == "a" ? truthy(rem(id, 2)) : true`},
		{"type COLLATE NOCASE = 'A'", `eq_nocase(type, "A")`},
		{"content = 5 AND id = content", `content == "5" && eq(id, number(content))`},
		{"content + 5.0 > -9223372036854775808", `gt(add(content, real("5")), integer("-9223372036854775808"))`},
		{"(type = 'a') = 1", `eq(eq3(type, "a"), 1)`},
		{"lower(type) BETWEEN 'a' AND 'b'", `with(let v1 = lower(type); ge(v1, "a") && le(v1, "b"))`},
	} {
		if got := mustCompile(t, c.filter).Expr(); got != c.want {
			t.Errorf("%s\nis  %s\nnot %s", c.filter, got, c.want)
		}
	}
}

// hostile are filters that are as large, as deep or as wide as filters may be.
func hostile() map[string]string {
	list := func(n int, e string) string { return "(" + repeat(n, e, ",") + ")" }
	texts := make([]string, 5000)
	for i := range texts {
		texts[i] = "'text " + string(rune('a'+i%26)) + strings.Repeat("x", i%3) + "'"
	}
	return map[string]string{
		"list of texts":        "type IN (" + strings.Join(texts, ",") + ")",
		"list of ids":          "id IN " + list(5000, "12345"),
		"list of reals":        "id NOT IN " + list(5000, "1.5"),
		"list of expressions":  "content IN " + list(5000, "type||id"),
		"list that fails":      "content IN " + list(5000, "abs(id)"),
		"list that fails, not": "(content IN " + list(5000, "abs(id)") + ") IS NULL",
		"OR":                   repeat(998, "content = 'a'", " OR "),
		"AND":                  repeat(998, "subtype <> 'a'", " AND "),
		"NOT":                  strings.Repeat("NOT ", 998) + "1",
		"OR of calls":          repeat(900, "length(content) > 5", " OR "),
		"sum":                  repeat(999, "id", "+"),
		"calls":                strings.Repeat("lower(", 998) + "type" + strings.Repeat(")", 998),
		"CASE":                 strings.Repeat("CASE WHEN id THEN ", 998) + "1" + strings.Repeat(" END", 998),
		"CASE of a base":       strings.Repeat("CASE id+1 WHEN 2 THEN ", 900) + "1" + strings.Repeat(" END", 900),
		"many WHENs":           "CASE " + repeat(2900, "WHEN subtype THEN id ", "") + "END",
		"many WHENs of a base": "CASE id+1 " + repeat(3900, "WHEN 5 THEN 6 ", "") + "END",
		"coalesce":             "coalesce" + list(1000, "subtype"),
		"nested coalesce":      strings.Repeat("coalesce(", 900) + "subtype" + strings.Repeat(",subtype)", 900),
		"max":                  "max" + list(1000, "id"),
		"BETWEEN":              strings.Repeat("(id BETWEEN ", 450) + "1" + strings.Repeat(" AND 2)", 450),
		"BETWEEN of itself":    strings.Repeat("(", 450) + "id+1" + strings.Repeat(" BETWEEN 1 AND abs(id))", 450),
		"IS TRUE":              "type = 'a'" + strings.Repeat(" IS TRUE", 900),
		"comparisons":          "id" + strings.Repeat(" = 1", 900),
		"IN of itself":         "id" + strings.Repeat(" IN (1, abs(id))", 450),
		"iif":                  strings.Repeat("iif(", 500) + "id" + strings.Repeat(", type, 1)", 500),
		"pattern":              "content LIKE '" + strings.Repeat("%a_", 16000) + "'",
		"pattern of bytes":     "content GLOB char(0, 255, 42) || char(91)",
		"dates":                "datetime(created_at" + strings.Repeat(", '+1 day'", 900) + ") > 'a'",
	}
}

// TestHostilePrograms compiles filters of the largest size. None takes the memory of more
// than a few thousand nodes; a translation that doubled at each level would not return.
func TestHostilePrograms(t *testing.T) {
	const most = 64 << 20
	rows := append(nastyRows()[:2], nulRows()[5])
	for name, text := range hostile() {
		f, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %s", name, err.(*Error).What)
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f.evaluator.compile(f.root)
		runtime.ReadMemStats(&after)
		if f.evaluator.err != nil {
			t.Errorf("%s: %v", name, f.evaluator.err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > most {
			t.Errorf("%s: compiling allocates %d bytes", name, used)
		} else {
			t.Logf("%s: %d bytes of program for %d of filter", name, used, len(text))
		}
		d := &decider{f: f, m: f.Matcher()}
		if len(text) < 10_000 || os.Getenv("THREAD_FILTER_CHECKS") != "" {
			d = newDecider(f) // reads the text back
		}
		for i := range rows {
			_, _ = d.decide(&rows[i]) // panics when a way differs
		}
	}
}

// TestForgets: a Matcher keeps no text of an event, whose memory may be a file's.
func TestForgets(t *testing.T) {
	f := mustCompile(t, "content > 'a' AND created_at > 'a' AND substr(content, 2) || '' <> '' AND subtype IS NOT 'y' AND lower(content) || 1 BETWEEN 'a' AND 'z'")
	m := f.Matcher()
	if ok, err := m.Match(&Row{CreatedAt: "b", Content: "bcd", Subtype: "x", HasSubtype: true}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if m.frame.row != (Row{}) || m.machine.variables["content"] != nil || m.machine.variables["created_at"] != nil {
		t.Errorf("the row is kept: %+v %v", m.frame.row, m.machine.variables)
	}
	for _, kept := range append(m.machine.vm.Stack[:cap(m.machine.vm.Stack)], m.machine.vm.Variables...) {
		if kept != nil {
			t.Errorf("%v is kept", kept)
		}
	}
}

// TestKeepsFewTexts: what a Matcher keeps of columns that repeat is bounded.
func TestKeepsFewTexts(t *testing.T) {
	m := mustCompile(t, "source <> 'x' AND subtype <> 'y'").Matcher()
	for i := range 10_000 {
		r := Row{Source: sqltext.FormatInt(int64(i)), Subtype: sqltext.FormatInt(int64(-i)), HasSubtype: i%3 > 0}
		if ok, err := m.Match(&r); ok != r.HasSubtype || err != nil {
			t.Fatal(i, ok, err)
		}
		if n := len(m.machine.texts); n > maxTexts {
			t.Fatalf("%d texts are kept", n)
		}
	}
}
