package filter

import (
	"strings"
	"testing"
)

func repeat(n int, unit, separator string) string {
	return strings.Repeat(unit+separator, n-1) + unit
}

// TestLimits pins the last filter that is accepted and the first that is not; the
// limits of depth and pattern are SQLite's.
func TestLimits(t *testing.T) {
	row := Row{ID: 1, Type: "message", Content: strings.Repeat("a", 100)}
	for _, c := range []struct {
		name string
		last string // accepted
		want bool   // what it says of row
		over string // refused
		what string
	}{
		{"OR chain", repeat(998, "id = 1", " OR "), true, repeat(999, "id = 1", " OR "), "too deep"},
		{"OR chain that fails early", repeat(998, "id = 2", " OR "), false, repeat(999, "id = 2", " OR "), "too deep"},
		{"AND chain", repeat(998, "id = 1", " AND "), true, repeat(999, "id = 1", " AND "), "too deep"},
		{"sum", repeat(999, "1", "+"), true, repeat(1000, "1", "+"), "too deep"},
		{"NOT", strings.Repeat("NOT ", 998) + "1", true, strings.Repeat("NOT ", 999) + "1", "too deep"},
		{"minus", strings.Repeat("- ", 998) + "1", true, strings.Repeat("- ", 999) + "1", "too deep"},
		{"CASE", strings.Repeat("CASE WHEN 1 THEN ", 998) + "1" + strings.Repeat(" END", 998), true,
			strings.Repeat("CASE WHEN 1 THEN ", 999) + "1" + strings.Repeat(" END", 999), "too deep"},
		{"calls", strings.Repeat("lower(", 998) + "1" + strings.Repeat(")", 998), true,
			strings.Repeat("lower(", 999) + "1" + strings.Repeat(")", 999), "too deep"},
		{"IS TRUE", "1" + strings.Repeat(" IS TRUE", 998), true, "1" + strings.Repeat(" IS TRUE", 999), "too deep"},
		{"parentheses", strings.Repeat("(", 15000) + "1" + strings.Repeat(")", 15000), true,
			strings.Repeat("(", 25000) + "1" + strings.Repeat(")", 25000), "nested more than"},
		{"bytes", "1" + strings.Repeat(" ", MaxBytes-1), true, "1" + strings.Repeat(" ", MaxBytes), "longer than 65536 bytes"},
		{"pattern", "content LIKE '" + strings.Repeat("a", 50000) + "'", false,
			"content LIKE '" + strings.Repeat("a", 50001) + "'", "a pattern longer than 50000 bytes"},
		{"list", "id IN (" + repeat(MaxList, "1", ",") + ")", true, "id IN (" + repeat(MaxList+1, "1", ",") + ")", "an IN list of more than 10000"},
		{"arguments", "coalesce(" + repeat(1000, "NULL", ",") + ") IS NULL", true, "coalesce(" + repeat(1001, "NULL", ",") + ")", "wrong number of arguments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := newDecider(mustCompile(t, c.last)).decide(&row)
			if err != nil || got != c.want {
				t.Errorf("the last accepted filter gives %v, %v; want %v", got, err, c.want)
			}
			_, err = Compile(c.over)
			if err == nil || !strings.Contains(err.Error(), c.what) {
				t.Errorf("the first refused filter gives %v, want %q", err, c.what)
			}
		})
	}
}

// TestHostileNesting feeds what would overflow a parser that recurses freely.
func TestHostileNesting(t *testing.T) {
	for _, unit := range []string{"(", "-", "~", "+", "NOT ", "abs(", "CASE ", "CASE WHEN ", "CAST(", "1 IN (", "1 = ", "1 BETWEEN ", "[a](", "x IS NOT "} {
		if f, err := Compile(strings.Repeat(unit, MaxBytes/len(unit))); err == nil {
			t.Errorf("%q repeated is accepted: %v", unit, f)
		}
	}
}

// TestRuntimeLimits are the errors that an event can cause.
func TestRuntimeLimits(t *testing.T) {
	for _, c := range []struct {
		filter string
		row    Row
		what   string
	}{
		{"content LIKE type", Row{Type: strings.Repeat("a", 50001)}, "longer than 50000 bytes"},
		{"content LIKE type", Row{Type: strings.Repeat("a", 50000)}, ""},
		{"abs(id) > 1", Row{ID: -1 << 63}, "integer overflow"},
		{"content ->> 'a' = 1", Row{Content: "x"}, "malformed JSON"},
		{"content ->> 'a' = 1", Row{Content: strings.Repeat("[", 1001) + strings.Repeat("]", 1001)}, "malformed JSON"},
		{"content -> '$[0]' IS NULL", Row{Content: strings.Repeat("[", 1000) + strings.Repeat("]", 1000)}, ""},
		{"length(replace(replace(content, 'a', content), 'a', content)) > 0", Row{Content: strings.Repeat("a", 1001)}, "grows beyond 1000000000 bytes"},
	} {
		f := mustCompile(t, c.filter)
		_, err := newDecider(f).decide(&c.row)
		switch {
		case c.what == "" && err != nil:
			t.Errorf("%q: %v", c.filter, err)
		case c.what != "" && (err == nil || !strings.Contains(err.Error(), c.what)):
			t.Errorf("%q: %v, want %q", c.filter, err, c.what)
		case err != nil && !f.CanFail():
			t.Errorf("%q fails, but CanFail says it cannot", c.filter)
		}
	}
}
