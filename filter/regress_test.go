package filter

import "testing"

// TestRegressions are differences from SQLite that were found on the way, by the
// random comparison unless it says otherwise. Each filter is compared with SQLite
// on all events.
func TestRegressions(t *testing.T) {
	o, nul := newOracle(t, nastyRows()), newOracle(t, nulRows())
	for _, c := range []struct{ name, filter string }{
		{"COLLATE behind FALSE leaves IS a truth test", "source IS NOT DISTINCT FROM FALSE COLLATE nocase"},
		{"arguments of like() were checked twice, their date modifiers applied twice",
			`like("subtype", strftime('%j', id, 'unixepoch')) AND 1`},
		{"an unbounded side of OR bounded SourceRange (soundness test)", "NOT (id GLOB '[-a]*' AND NOT (source IN (0x10, 'abc')))"},
		{"AND with a literal 0 does not evaluate the other side (facts F1218)", "content ->> 'a' AND 0"},
		{"an empty IN does not evaluate its left side", "content ->> 'a' NOT IN ()"},
		{"AND with an empty IN evaluates the other side", "id IN () OR abs(id) IS NULL AND id IN ()"},
		{"trim reads its set up to a NUL", "trim(content, 'a' || char(0) || 'b') = content"},
		{"a lead byte 0xFF carries no bits (byte test)", "content LIKE '%\uFFFD%'"},
		{"strftime('%f') rounds a tie up (authority run)", "strftime('%f', '2026-03-18 10:30:12.0625') = '12.063'"},
		{"replace of nothing does not look at a NULL replacement (generated)", "replace(content, '', NULL) = content"},
		{"replace of nothing does not look at a NULL replacement (generated)", "replace(source, char(0, 65), subtype) = source"},
		{"replace of NULL is NULL (generated)", "replace(subtype, '', 'x') IS NULL"},
		{"substr from more than SQLITE_MAX_LENGTH before the end is empty (generated)", "substr(content, -999999999) = content"},
		{"substr from more than SQLITE_MAX_LENGTH before the end is empty (generated)", "substr(content, -1000000005) = ''"},
		{"substr from more than SQLITE_MAX_LENGTH before the end is empty (generated)", "substr(source, -9223372036854775808) = ''"},
		{"digits that a uint64 does not hold do not count (generated)", "9007199254740993.000000000000000000001 = 9007199254740992"},
		{"digits that a uint64 does not hold do not count (generated)", "'0009999999999999825.000000000000000000001' + 0 = 9999999999999824"},
		{"digits that a uint64 does not hold do not count (generated)", "CAST('-4221000000000000000255' AS REAL) = -4221e18"},
		{"digits that a uint64 does not hold do not count (generated)", "92233720368547758080000000000e-10 = 9223372036854775808 AND 1e0000000000000000001 = 10 AND '1e99999999999999999999' = 1e400 || ''"},
		{"digits that a uint64 does not hold do not count (generated)", "'1e-99999999999999999999' + 0 = 0 AND '0.00000000000000000000000000000000015e33' + 0 = 0.15"},
		{"replace of nothing keeps a text", "typeof(replace(id, '', 'x')) = 'text'"},
	} {
		for _, oracle := range []*oracle{o, nul} {
			if !checkFilter(t, oracle, c.filter) {
				t.Errorf("%s: %q was not compared", c.name, c.filter)
			}
		}
	}
}

// TestRealText pins texts of REALs that newer versions print with 17 digits. All
// were computed by SQLite 3.49.2.
func TestRealText(t *testing.T) {
	for _, c := range []struct {
		expr, want string
	}{
		{"1e15 + 25", "1.00000000000003e+15"}, // a tie: strconv would round to even
		{"1e15 + 15", "1.00000000000002e+15"},
		{"1234567890123.125", "1234567890123.13"},
		{"1234567890123.375", "1234567890123.38"},
		{"0.1 + 0.2", "0.3"},
		{"1.0 / 3", "0.333333333333333"},
		{"2.0 / 3", "0.666666666666667"},
		{"99999999999999.95", "100000000000000.0"},
		{"999999999999999.9", "1.0e+15"},
		{"0.0001", "0.0001"},
		{"0.00001", "1.0e-05"},
		{"5e-324", "4.94065645841247e-324"},
		{"1.7976931348623157e308", "1.79769313486232e+308"},
		{"1e400", "Inf"},
		{"-1e400", "-Inf"},
		{"-0.0", "0.0"},
		{"100 * 1.1", "110.0"},
		{"9223372036854775807 + 1", "9.22337203685478e+18"},
	} {
		o := newOracle(t, nil)
		if o.exact {
			var got string
			if err := o.db.QueryRow("SELECT CAST(" + c.expr + " AS TEXT)").Scan(&got); err != nil || got != c.want {
				t.Errorf("SQLite: %s is %q, %v; the table says %q", c.expr, got, err, c.want)
			}
		}
		f := mustCompile(t, "CAST("+c.expr+" AS TEXT) = '"+c.want+"'")
		if ok, err := newDecider(f).decide(&Row{}); !ok || err != nil {
			t.Errorf("%s is not %q: %v", c.expr, c.want, err)
		}
	}
}

// TestBytesAsSQLite compares the functions that look inside texts on every byte
// string of length 3 over bytes that matter to a UTF-8 decoder.
func TestBytesAsSQLite(t *testing.T) {
	var rows []Row
	letters := []byte{'a', 'A', 0x80, 0xA9, 0xBF, 0xC0, 0xC3, 0xE0, 0xED, 0xEF, 0xF0, 0xF8, 0xFC, 0xFE, 0xFF, ' '}
	for _, a := range letters {
		for _, b := range letters {
			for _, c := range letters {
				s := string([]byte{a, b, c})
				rows = append(rows, Row{ID: int64(len(rows) + 1), CreatedAt: "é", Source: s[:2], Type: s[1:], Content: s})
			}
		}
	}
	o := newOracle(t, rows)
	for _, filter := range []string{
		"content LIKE '_'", "content LIKE '__'", "content LIKE '%_a%'", "content LIKE '_%_%_'", "content LIKE 'a_%'", "content LIKE '%_'",
		"content LIKE '%é%'", "content LIKE 'é'", "content LIKE '%©'", "content LIKE '%\uFFFD%'", "content LIKE '%\uFFFE%'",
		"content LIKE type", "content LIKE '%' || type", "content LIKE source || '%'", "content GLOB '[' || type || ']*'",
		"content GLOB '[©é]*'", "content GLOB '?[^a]'", "content GLOB '*[\uFFFD]'", "content GLOB '?'",
		"length(content) = 1", "length(content) = 2", "length(content) = 3",
		"unicode(content) > 127", "unicode(content) = 65533", "unicode(content) = 169", "unicode(content) & 1",
		"substr(content, 2, 1) = type", "substr(content, -1) = type", "hex(substr(content, 1, 1)) = hex(content)", "substr(content, -2, 1) = 'a'",
		"instr(content, type) = 2", "instr(content, type) = 1", "instr(content, type) = 0", "instr(content, substr(type, 2)) > 1",
		"upper(content) = content", "lower(content) <> content", "content COLLATE NOCASE = upper(content)",
		"trim(content, type) = ''", "length(trim(content, source)) = 1", "ltrim(content, source) = content", "rtrim(content) = content",
		"content COLLATE RTRIM = source || ' '", "content < type", "content || type > type || content",
		"replace(content, type, 'x') = content", "replace(content, source, '') = type",
	} {
		if !checkFilter(t, o, filter) {
			t.Errorf("%q was not compared", filter)
		}
	}
}

// TestJSONAsSQLite compares JSON functions on texts around the edges of JSON.
func TestJSONAsSQLite(t *testing.T) {
	texts := []string{
		`{}`, `[]`, `""`, `0`, `-0`, `-`, `1.5`, `1.`, `.5`, `01`, `1e5`, `1E+5`, `1e`, `true`, `false`, `null`, `tru`, ` 1 `, `1 2`, ``, ` `,
		`{"a":1}`, `{"a":1,}`, `{"a":1 "b":2}`, `{"a"}`, `{a:1}`, `{"a":}`, `[1,2`, `[1,,2]`, `[,1]`, `"a`, `"\q"`, `"\u12"`, `"\u1234"`, `"\ud83d\ude00"`,
		`"\ud83d"`, `"\ude00\ud83d"`, "\"a\nb\"", "\"\x7f\"", `"\/"`, `{"\u0061":1}`, `{"a":1,"a":2}`, `{"A":1}`, `{"a":{"a":[1,{"a":"x"}]}}`, `[[1,2],[3,4]]`,
		`{"a":"x\ty"}`, `{"a": [ 1 , "b  c" , { "d" : null } ] }`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `{"a":1.0}`, `{"a":100e-2}`,
		"\ufeff1", "1\x00", `{"a.b":1}`, `{"":1}`, `{"a":""}`, `[null]`, `[true,false]`, "\t[\r\n1]", "\v1", "{\"é\":1}", `"\u0000"`, `{"a":-0}`, `{"a":-0.0}`,
	}
	var rows []Row
	for i, s := range texts {
		rows = append(rows, Row{ID: int64(i + 1), CreatedAt: s, Source: s, Type: s, Content: s})
	}
	o := newOracle(t, rows)
	for _, e := range []string{
		"json_type(content)", "json_type(content, '$.a')", "json_extract(content, '$')", "json_extract(content, '$.a')", "json_extract(content, '$.a.a[1].a')",
		"json_extract(content, '$[0]')", "json_extract(content, '$[#-1]')", "json_extract(content, '$[#-2]')", "json_extract(content, '$.\"a.b\"')", "json_extract(content, '$.\"\"')",
		"json_extract(content, '$.é')", "content -> '$'", "content ->> '$'", "content -> 'a'", "content ->> 'a'", "content -> 0", "content ->> 1",
		"json_array_length(content)", "json_array_length(content, '$.a')", "content -> 'a' -> 'a' ->> 0", "json_extract(content, '$[1][0]')",
	} {
		guarded := "CASE WHEN json_valid(content) THEN " + e + " END"
		for _, filter := range []string{
			guarded + " IS NULL", "typeof(" + guarded + ") = 'text'", "typeof(" + guarded + ") = 'integer'", guarded + " = 1", guarded + " = '1'", guarded,
			"length(" + guarded + ") > 4", guarded + " > 'a'", guarded + " < '{'", "hex(" + guarded + ") LIKE '%ED%'", "instr(" + guarded + ", ' ') > 0",
		} {
			if !checkFilter(t, o, filter) {
				t.Errorf("%q was not compared", filter)
			}
		}
	}
	if !checkFilter(t, o, "json_valid(content)") {
		t.Error("json_valid was not compared")
	}
}

// TestDatesAsSQLite compares date functions on texts around the edges of dates.
func TestDatesAsSQLite(t *testing.T) {
	texts := []string{
		"2026-03-18", "2026-03-18T10:30:00.123Z", "2026-03-18 10:30", "2026-03-18  T 10:30:59.9999", "2026-03-18T", "2026-03-18 ", " 2026-03-18", "2026-3-18",
		"2026-02-29", "2024-02-29", "2026-02-31", "2026-13-01", "2026-00-10", "2026-01-00", "2026-01-32", "0000-01-01", "9999-12-31", "9999-12-31 23:59:59.999",
		"-0001-01-01", "-4713-11-24", "-4713-11-25 00:00:00", "10:30", "10:30:59.5", "1:30", "25:00", "10:60", "2026-03-18 10:30:60", "2026-03-18Z", "2026-03-18 10:30Z", "2026-03-18 10:30z  ",
		"2026-03-18 10:30+02:00", "2026-03-18 10:30 -14:59", "2026-03-18 10:30+15:00", "2026-03-18 10:30+2:00", "2026-03-18 00:30+01:00", "10:30-05:00", "2461117.5", "0", "5", "-1", "5373484.4", "5373484.5", "1e6", " 2461117 ",
		"", "x", "2026-03-18x", "2026-03-18 10:30:00.", "2026-03-18 10:30:00.5.5", "1969-12-31 23:59:59.500", "1900-03-01", "2000-12-31 23:59:59.999", "1582-10-10",
	}
	var rows []Row
	for i, s := range texts {
		rows = append(rows, Row{ID: int64(i * 1_000_000), CreatedAt: s, Source: "s", Type: "t", Content: s})
	}
	o := newOracle(t, rows)
	mods := []string{"", ", '+1 day'", ", '-1 month'", ", '+13 months'", ", '-100 years'", ", '+0.5 month'", ", '+1.5 days', 'start of day'", ", 'start of month', '-1 second'",
		", 'start of year', '+1 minute'", ", 'unixepoch'", ", 'unixepoch', '+1 hour'", ", '-11 months', '+31 days'", ", '+4000 days', '-4000 days'", ", '+999999 hours'", ", '-7999 years'", ", '10 days'"}
	for _, x := range []string{"content", "id", "id / 1000.0", "CAST(content AS REAL)"} {
		for _, m := range mods {
			for _, fn := range []string{"date", "time", "datetime", "unixepoch"} {
				e := fn + "(" + x + m + ")"
				for _, filter := range []string{e + " IS NULL", "length(" + e + ") & 1", e + " % 3 = 0", e + " > '1'", "substr(" + e + ", 6) < '03'", "substr(" + e + ", -1) IN ('1','3','5','7','9')",
					"substr(" + e + ", -2) < '15'", "substr(" + e + ", -5) < '15:30'"} {
					if !checkFilter(t, o, filter) {
						t.Errorf("%q was not compared", filter)
					}
				}
			}
			for _, e := range []string{"strftime('%Y|%m|%d', " + x + m + ")", "strftime('%j', " + x + m + ")", "strftime('%w', " + x + m + ")",
				"strftime('%f', " + x + m + ")", "strftime('%s', " + x + m + ")", "CAST(julianday(" + x + m + ") * 1000 AS INTEGER)"} {
				for _, filter := range []string{e + " % 2", "substr(" + e + ", -1) < '5'", "substr(" + e + ", -2, 1) < '5'", "length(" + e + ") & 1", e + " IS NULL"} {
					if !checkFilter(t, o, filter) {
						t.Errorf("%q was not compared", filter)
					}
				}
			}
		}
	}
}
