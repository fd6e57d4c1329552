package filter

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// T-68, T-69: TestRefusals pins what is refused, where, and what the user is told to write.
// The caret stands under offset in Excerpt.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		filter string
		offset int
		what   string
		hint   string
	}{
		{"type=message", 5, "no such column: message", "type = 'message'"},
		{"type = message AND source = 'self'", 7, "no such column: message", "type = 'message'"},
		{`type = "message"`, 7, `no such column: "message" - should this be a string literal in single-quotes?`, "type = 'message'"},
		{`"message" = type`, 0, "single-quotes", "'message'"},
		{"source = internal:dm:x", 17, "unrecognized token: :", "'internal:dm:x'"},
		{"source = external-x", 9, "no such column: external", "'external-x'"},
		{"source LIKE internal", 12, "no such column: internal", "source LIKE 'internal'"},
		{"tpye = 'x'", 0, "no such column: tpye", "did you mean type?"},
		{"other = 'x'", 0, "no such column: other", "id, created_at, source, type, subtype, content"},
		{"main.events.type = 'x'", 0, "a column with a schema", "the column name alone"},
		{"e.type = 'x'", 0, "no such column: e.type", "events"},
		{"type = 'a' && id > 1", 11, "unrecognized token: &&", "AND"},
		{"!id", 0, "unrecognized token: !", "NOT"},
		{"id === 1", 5, `near "=": syntax error`, ""},
		{"type = 'a';", 10, "a semicolon", "remove the ;"},
		{"type = ?", 7, "a parameter: ?", "the value itself"},
		{"type = :a", 7, "a parameter: :", "the value itself"},
		{"type = @a", 7, "a parameter: @", ""},
		{"type = $a", 7, "a parameter: $", ""},
		{"type = 'a", 7, "an unterminated string", "''"},
		{"type = 'a' 'b'", 11, "syntax error", "AND"},
		{"type type", 5, `near "type": syntax error`, "AND"},
		{"1) OR (1=1", 1, `near ")": syntax error`, "one whole expression"},
		{"(1=1", 0, "an unclosed parenthesis", "close it"},
		{"type = -- note", 14, "incomplete filter: an operand is missing", "complete the expression"},
		{"-- note", 7, "the filter is empty", "leave the filter out"},
		{"type = 'a' /* note", 11, "an unterminated /* comment", "*/"},
		{"id IN (SELECT 1)", 7, "a sub-query", "not supported"},
		{"(SELECT 1)", 1, "a sub-query", "not supported"},
		{"EXISTS (SELECT 1)", 0, "EXISTS", "not supported"},
		{"NOT EXISTS (SELECT 1)", 4, "EXISTS", "not supported"},
		{"id IN events", 6, "IN without a list", "IN ('a', 'b')"},
		{"(1, 2) = (1, 2)", 2, "a row value", "AND"},
		{"count(*) > 0", 0, "an aggregate", "not supported"},
		{"sum(id) > 0", 0, "sum() is an aggregate", "not supported"},
		{"max(id) = 3", 0, "max() of one argument is an aggregate", "max(a, b)"},
		{"row_number() OVER () = 1", 13, "a window or aggregate call", ""},
		{"type REGEXP 'x'", 5, "no such function: REGEXP", "GLOB"},
		{"type MATCH 'x'", 5, "no such function: MATCH", "LIKE"},
		{"regexp('x', type)", 0, "no such function: regexp", "GLOB"},
		{"nosuch(1)", 0, "no such function: nosuch", "docs/reference/filter.md"},
		{"length()", 0, "wrong number of arguments to function length()", "it takes 1"},
		{"iif(1, 2)", 0, "wrong number of arguments to function iif()", "it takes 3"},
		{"round(1.5)", 0, "round() is not supported in filters", ""},
		{"random() > 0", 0, "random() is not supported in filters", ""},
		{"x'00' < type", 0, "a blob literal", ""},
		{"CAST(id AS BLOB)", 11, "CAST to a type", "INTEGER, REAL, NUMERIC or TEXT"},
		{"lower(type COLLATE NOCASE) = 'x'", 11, "COLLATE", "directly on an operand"},
		{"type = 'x' COLLATE german", 19, "no such collation sequence: german", "NOCASE"},
		{"type LIKE 'a' ESCAPE 'xx'", 21, "ESCAPE that is not one character", "one character"},
		{"type LIKE 'a' ESCAPE subtype", 21, "ESCAPE that is not one character", "one character"},
		{"type GLOB 'a' ESCAPE 'x'", 14, "GLOB with ESCAPE", "[*]"},
		{"json_extract(content, 'a')", 22, "a JSON path", "$.name"},
		{"json_extract(content, type)", 22, "a JSON path", "$.name"},
		{"content ->> 'a.b'", 12, "the right side of an arrow", `'$."a.b"'`},
		{"content ->> -1", 12, "the right side of an arrow", "$[#-1]"},
		{"datetime(created_at, 'localtime')", 21, "a date modifier", "-1 day"},
		{"strftime('%e', created_at)", 9, "the strftime conversion %e", "%Y"},
		{"id = 1_000", 5, "unrecognized token: 1_000", ""},
		{"id = 12abc", 5, "unrecognized token: 12abc", "'12abc'"},
		{"id = 0x12345678901234567", 5, "hex literal too big", "16"},
		{"id = -0x8000000000000000", 5, "hex literal too big", "-9223372036854775808"},
		{"1 IS (id IN ())", 9, "an empty IN list", "FALSE"},
		{"\ufefftype = 'x'", 0, "a byte order mark", "U+FEFF"},
		{"type = '\x00'", 8, "a NUL character", "char(0)"},
		{"type = '\xff'", 8, "bytes that are not UTF-8", "UTF-8"},
		{"  ", 2, "the filter is empty", "every event"},
		{"type =", 6, "incomplete filter", "complete"},
		{"CASE WHEN 1 THEN 2", 0, "CASE without END", "END"},
		{"type IN ('a',)", 13, `near ")"`, ""},
		{"TRUE.x", 4, "syntax error", ""},
		{"1 'a\nb'", 2, "syntax error", "AND"},
		{"main\r\n.events\n.id = 1", 0, "a column with a schema", "alone"},
		{"type = \"a\nb\"", 7, "no such column", "did you mean type = 'a\nb'"},
	} {
		_, err := Compile(c.filter)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Compile(%q) = %v, want an *Error", c.filter, err)
			continue
		}
		if e.Offset != c.offset || !strings.Contains(e.What, c.what) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("Compile(%q): offset %d, %q, hint %q; want offset %d, %q, hint %q",
				c.filter, e.Offset, e.What, e.Hint, c.offset, c.what, c.hint)
		}
		if strings.ContainsAny(e.Error(), "\n\r") {
			t.Errorf("Compile(%q): the error has more than one line: %q", c.filter, e)
		}
	}
}

func TestErrorPlace(t *testing.T) {
	_, err := Compile("type = 'a' AND\n\tsource = 'é' AND sorce = 'x'")
	e := err.(*Error)
	if e.Line != 2 || e.Column != 19 {
		t.Errorf("line %d, column %d, want 2, 19", e.Line, e.Column)
	}
	if got, want := e.Excerpt(), " source = 'é' AND sorce = 'x'\n                  ^\n"; got != want {
		t.Errorf("excerpt\n%q, want\n%q", got, want)
	}
	if got, want := e.Error(), "filter: no such column: sorce at offset 34 (line 2, column 19) - did you mean source?"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	_, err = Compile("type = 'a' AND " + strings.Repeat("id = 1 OR ", 100) + "nosuch OR " + strings.Repeat("id = 2 OR ", 100) + "1")
	lines := strings.Split(err.(*Error).Excerpt(), "\n")
	if n := utf8.RuneCountInString(lines[0]); n > 2*excerptChars+2 {
		t.Errorf("the excerpt of a long line has %d characters", n)
	}
	caret := strings.IndexByte(lines[1], '^')
	if got := string([]rune(lines[0])[caret:]); !strings.HasPrefix(got, "nosuch") {
		t.Errorf("the caret stands at %q", got)
	}
}
