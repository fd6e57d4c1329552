package filter

import (
	"strconv"
	"strings"
)

// generator writes random filters of the language in which all versions of
// SQLite agree (docs/spec/filter.md, section 15). pick gives a number in [0, n).
//
// plain leaves out what builds new texts, risky adds what fails on some events,
// exact adds what only SQLite 3.49 computes as we do, and columns, if given, are
// the only ones.
type generator struct {
	pick                func(n int) int
	plain, risky, exact bool
	columns             []string
}

func (g generator) column() string {
	if g.columns != nil {
		return g.of(g.columns...)
	}
	return g.of(genColumns...)
}

func (g generator) of(choices ...string) string { return choices[g.pick(len(choices))] }

var (
	genColumns = []string{"id", "created_at", "source", "type", "subtype", "content",
		"subtype", "content", "TYPE", `"subtype"`, "[content]", "`id`", "events.type", "rowid"}
	genTexts = []string{"", "a", "A", "abc", "message", "MESSAGE", "self", "5", "5.0", " 5 ", "5x", "0x10", "-5", "+5",
		".5", "1e3", "0", "-0", "it's", "\n", "%", "_", "é", "É", "😀", "日本語", "null", "true", "internal:",
		"9223372036854775807", "9223372036854775808", "9007199254740993", "2026-03-18", "hello world", "  ", "K",
		"\uFFFD", "ab ab", "{\"a\":1}", "[1,2]", "K"}
	genNumbers = []string{"0", "1", "2", "3", "5", "17", "-1", "-5", "5.0", "0.5", ".5", "5.", "1e3", "-0.0", "0.1", "2.5",
		"9223372036854775807", "-9223372036854775808", "9007199254740993", "0x10",
		"0xFFFFFFFFFFFFFFFF", "64", "-64", "1e14", "12", "100"}
	genPatterns = []string{"%", "_", "a", "%a%", "a%", "%a", "_%", "%_", "__", "%a%b%", "A_C", "%:%", "internal:%", "%é%",
		"%É_", "_😀%", "%\\%%", "a\\_b", "%\n%", "", "%ab %end", "%ab_ab%", "mess_ge", "%message%", "%%%", "%_%_%", "\uFFFD%", "%\uFFFD%"}
	genGlobs = []string{"*", "?", "a", "*a*", "a*", "[a-c]*", "[^a]*", "[]a]*", "[a", "[!a]*", "*[0-9]*", "[a-]*", "[-a]*",
		"[c-a]", "*[é-日]*", "[^]]*", "[[]*", "*?*", "??", "[😀]*", "*:*:*", "internal:*", "[a^]*", "*[a-c]", "*[ -~]"}
)

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func (g generator) text() string { return quote(genTexts[g.pick(len(genTexts))]) }

func (g generator) literal() string {
	switch g.pick(10) {
	case 0:
		return "NULL"
	case 1:
		return g.of("TRUE", "FALSE")
	case 2, 3, 4:
		return g.of(genNumbers...)
	}
	return g.text()
}

// leafValue is a column or a literal.
func (g generator) leafValue() string {
	if g.pick(5) < 3 {
		return g.column()
	}
	return g.literal()
}

// number is an expression that may be a REAL of more than 15 digits. The text of
// that REAL is not the same in all versions, so that a number only meets what
// does not turn it into text: other numbers, CAST AS INTEGER, typeof, truth.
func (g generator) number(depth int) string {
	if depth <= 0 {
		if g.exact && g.pick(3) == 0 {
			return g.of("1e15", "1e18", "1e-5", "123456789.123456789", "1e400", "9007199254740992.0", "9223372036854775808")
		}
		return g.of(g.of(genNumbers...), g.of(genNumbers...), "id", "+id")
	}
	v := func() string { return g.of(g.value(depth-1), g.value(depth-1), g.number(depth-1)) }
	switch g.pick(8) {
	case 0:
		return "(- " + v() + ")"
	case 1:
		return "CAST(" + v() + " AS " + g.of("REAL", "NUMERIC") + ")"
	case 2:
		return "abs(" + v() + ")"
	case 3:
		return "julianday(created_at)"
	case 4:
		return g.of(genNumbers...)
	}
	return "(" + v() + " " + g.of("+", "-", "*", "/", "%", "&", "|", "<<", ">>") + " " + v() + ")"
}

// value is a value expression in parentheses where it needs some.
func (g generator) value(depth int) string {
	if depth <= 0 || g.pick(3) == 0 {
		return g.leafValue()
	}
	v := func() string { return g.value(depth - 1) }
	which := g.pick(22)
	if g.plain && (which < 2 || which == 10 || which == 12) {
		which = 20
	}
	switch which {
	case 0, 1:
		return "(" + v() + " || " + v() + ")"
	case 2, 3:
		n := g.number(depth)
		if g.exact && g.pick(3) > 0 {
			return n
		}
		return g.of("CAST("+n+" AS INTEGER)", "typeof("+n+")", "("+n+" > "+g.number(depth-1)+")", "("+n+" IN ("+g.of(genNumbers...)+", "+n+"))")
	case 4:
		return "(" + g.of("+ ", "~ ") + v() + ")"
	case 5:
		return "CAST(" + v() + " AS " + g.of("INTEGER", "INT", "TEXT") + ")"
	case 6:
		return g.of("coalesce", "ifnull", "nullif", "min", "max") + "(" + v() + ", " + v() + ")"
	case 7:
		return "iif(" + g.condition(depth-1) + ", " + v() + ", " + v() + ")"
	case 8, 9:
		return g.of("length", "lower", "upper", "trim", "ltrim", "rtrim", "hex", "typeof", "unicode") + "(" + v() + ")"
	case 10:
		return g.of("trim", "ltrim", "rtrim") + "(" + v() + ", " + v() + ")"
	case 11:
		return "instr(" + v() + ", " + v() + ")"
	case 12:
		return "replace(" + v() + ", " + g.of(v(), "''") + ", " + g.of(v(), g.text(), "NULL") + ")"
	case 13:
		return g.of("substr", "substring") + "(" + v() + ", " + g.small() + g.of("", ", "+g.small()) + ")"
	case 14:
		s := "CASE "
		for range g.pick(2) + 1 {
			s += "WHEN " + g.condition(depth-1) + " THEN " + v() + " "
		}
		return s + g.of("", "ELSE "+v()+" ") + "END"
	case 15:
		return "CASE " + v() + " WHEN " + v() + " THEN " + v() + g.of("", " ELSE "+v()) + " END"
	case 16:
		return "(" + g.condition(depth-1) + ")"
	case 17:
		if g.exact {
			return "char(" + v() + ", " + v() + " & 127)"
		}
		return "char(" + strconv.Itoa(1+g.pick(300)) + ", " + strconv.Itoa(1+g.pick(70000)%0xD7FF) + ")"
	case 18:
		return g.date(v)
	case 19:
		return "json_valid(" + v() + ")"
	case 20:
		return g.json()
	}
	return "max(" + v() + ", " + v() + ", " + v() + ")"
}

// small is a position or a length, now and then one far outside of every text.
func (g generator) small() string {
	if g.pick(8) == 0 {
		return g.of("NULL", "'2'", "'-1x'", "1.9", "-id", "9223372036854775807", "-9223372036854775808",
			"-999999999", "-1000000001", "2147483648", "-4294967297", "length(type)")
	}
	return strconv.Itoa(g.pick(12) - 6)
}

func (g generator) date(v func() string) string {
	mods := ""
	for range g.pick(3) {
		mods += ", " + quote(g.of("+1 day", "-1 days", "+1 month", "-3 months", "+2 years", "+1.5 hours", "-90 minutes",
			"+30 seconds", "start of day", "start of month", "start of year", "-0.5 day"))
	}
	t := g.of("created_at", "created_at", "type", "subtype", "content", quote("2026-03-18 10:30:00"), v())
	if g.pick(6) == 0 {
		t = g.of("id", "1773829800", "2461117.5")
		mods = g.of("", ", 'unixepoch'") + mods
	}
	switch g.pick(3) {
	case 0:
		if g.exact && g.pick(8) == 0 {
			return g.of("julianday(", "strftime('%J', ") + t + mods + ")"
		}
		return "strftime(" + quote(g.of("%Y-%m-%d", "%H:%M:%S", "%f", "%s", "%j", "%w", "%%", "x")) + ", " + t + mods + ")"
	}
	return g.of("date", "time", "datetime", "unixepoch") + "(" + t + mods + ")"
}

// json is a JSON expression that is guarded, as users have to write it.
func (g generator) json() string {
	x := g.of("content", "subtype", "type")
	path := quote(g.of("$", "$.a", "$.b", "$.d", "$.d[2].e", "$.h.i", "$[0]", "$[1]", "$[#-1]", `$."n.m"`, "$.zz", "$[5].a"))
	e := g.of("json_extract("+x+", "+path+")", "json_type("+x+", "+path+")", "json_array_length("+x+", "+path+")",
		x+" -> "+path, x+" ->> "+path, x+" ->> 'a'", x+" -> 'd' ->> 0", x+" ->> 1", "json_type("+x+")", "json_array_length("+x+")")
	return "CASE WHEN json_valid(" + x + ") THEN " + e + " END"
}

// condition is a condition without COLLATE.
func (g generator) condition(depth int) string {
	if depth > 0 && g.pick(3) == 0 {
		switch g.pick(7) {
		case 0, 1:
			return "(" + g.condition(depth-1) + " AND " + g.condition(depth-1) + ")"
		case 2, 3:
			return "(" + g.condition(depth-1) + " OR " + g.condition(depth-1) + ")"
		case 4, 5:
			return "NOT " + g.condition(depth-1)
		}
		return "(" + g.condition(depth-1) + ") IS " + g.of("", "NOT ") + g.of("TRUE", "FALSE", "NULL")
	}
	return g.predicate(depth-1, "")
}

// spine is a condition whose comparisons may carry COLLATE.
func (g generator) spine(depth int) string {
	if depth > 0 && g.pick(2) == 0 {
		switch g.pick(8) {
		case 0, 1, 2:
			return g.spine(depth-1) + " AND " + g.spine(depth-1)
		case 3, 4:
			return "(" + g.spine(depth-1) + " OR " + g.spine(depth-1) + ")"
		case 5:
			return g.spine(depth-1) + " OR " + g.spine(depth-1)
		case 6:
			return "NOT (" + g.spine(depth-1) + ")"
		}
		return "(" + g.spine(depth-1) + ") IS " + g.of("", "NOT ") + g.of("TRUE", "FALSE", "NULL")
	}
	collate := ""
	if g.pick(4) == 0 {
		collate = " COLLATE " + g.of("NOCASE", "BINARY", "RTRIM", "nocase", `"NoCase"`, "'rtrim'", "[binary]", "RTRIM COLLATE NOCASE")
	}
	return g.predicate(depth-1, collate)
}

// predicate is a leaf of the condition grammar.
func (g generator) predicate(depth int, collate string) string {
	if g.risky && g.pick(6) == 0 {
		return g.of("content ->> 'a' = 1", "json_extract(subtype, '$') IS NOT NULL", "abs(id) > 3", "json_type(type) = 'object'",
			"content LIKE subtype", "json_array_length(content) > 1")
	}
	x := g.column()
	if g.pick(3) == 0 {
		x = g.value(depth)
	}
	not := g.of("", "", "NOT ")
	if g.pick(14) == 0 && (g.columns == nil || g.pick(4) == 0) {
		return g.chain(depth)
	}
	switch g.pick(14) {
	case 12:
		return g.number(depth) + " " + not + "BETWEEN " + g.number(0) + " AND " + g.number(depth)
	case 13:
		return g.number(depth) + g.of(" = ", " < ", " >= ", " IS ", " <> ") + g.of(g.number(0), g.number(depth), "9007199254740992.0", "1e18", "9223372036854775808")
	case 0, 1, 2, 3:
		op := " " + g.of("=", "==", "<>", "!=", "<", "<=", ">", ">=", "IS", "IS NOT", "IS DISTINCT FROM", "IS NOT DISTINCT FROM") + " "
		right := g.literal()
		if g.pick(3) == 0 {
			right = g.value(depth)
		}
		switch {
		case collate != "" && g.pick(2) == 0:
			return x + op + right + collate
		case g.pick(5) == 0:
			return right + collate + op + x
		}
		return x + collate + op + right
	case 4:
		return x + g.of(" IS NULL", " IS NOT NULL", " ISNULL", " NOTNULL", " NOT NULL")
	case 5, 6:
		n := g.pick(4)
		if g.pick(6) == 0 {
			n += 9
		}
		list := make([]string, n)
		for i := range list {
			if list[i] = g.literal(); g.pick(6) == 0 {
				list[i] = g.value(depth)
			}
		}
		return x + collate + " " + not + "IN (" + strings.Join(list, ", ") + ")"
	case 7:
		return x + collate + " " + not + "BETWEEN " + g.leafValue() + " AND " + g.leafValue()
	case 8, 9:
		p := quote(genPatterns[g.pick(len(genPatterns))])
		if g.pick(8) == 0 {
			p = g.leafValue()
		}
		switch g.pick(6) {
		case 0:
			return x + " " + not + "LIKE " + p + " ESCAPE " + quote(g.of("\\", "%", "_", "a", "é", "!"))
		case 1:
			return "like(" + p + ", " + x + g.of("", ", 'é'", ", '_'") + ")"
		}
		return x + " " + not + "LIKE " + p
	case 10:
		p := quote(genGlobs[g.pick(len(genGlobs))])
		if g.pick(8) == 0 {
			p = g.leafValue()
		}
		if g.pick(6) == 0 {
			return "glob(" + p + ", " + x + ")"
		}
		return x + " " + not + "GLOB " + p
	case 11:
		return g.value(depth)
	}
	return g.leafValue()
}
