package filter

import (
	"math"
	"testing"
	"thread/filter/internal/sqltext"
	"unicode/utf8"
)

func seeds(f *testing.F) {
	for _, c := range typicalFilters {
		f.Add(c.text)
	}
	for _, s := range []string{"", "type=message", "id IN (1,2,", "'", "/*", "--", "0x", "1e", "\xff", "CASE WHEN 1 THEN 2 END", "((((", "NOT NOT 1", "a.b.c",
		"[type] LIKE \"x\"", "json_extract(content,'$.a[#-1].\"b c\"')", "date('now','-1 day')", "x IS NOT DISTINCT FROM y", "type COLLATE NOCASE IN ('a')",
		"id BETWEEN 1 AND 2 OR 'é' GLOB '[^a-z]*'", "CAST(id AS NUMERIC) -> 'a'", "like('a%','b','%')"} {
		f.Add(s)
	}
}

// FuzzParse: no text makes the compiler panic or point outside of the text, and a
// filter that we accept is one that SQLite accepts.
func FuzzParse(f *testing.F) {
	seeds(f)
	o := newOracle(f, nil)
	f.Fuzz(func(t *testing.T, text string) {
		flt, err := Compile(text)
		if err != nil {
			e := err.(*Error)
			if e.Offset < 0 || e.Offset > len(text) || e.Line < 1 || e.Column < 1 || e.What == "" {
				t.Fatalf("Compile(%q): %+v", text, e)
			}
			_, _ = e.Error(), e.Excerpt()
			return
		}
		if text == "" {
			return
		}
		for _, p := range flt.Explain().Parts {
			if p.Offset < 0 || p.Offset+len(p.Text) > len(text) || p.Text == "" || !utf8.ValidString(p.Text) {
				t.Fatalf("Explain(%q): part %+v", text, p)
			}
		}
		if _, err := o.selects(text); err != nil && !flt.CanFail() {
			t.Fatalf("%q is accepted here, SQLite: %v", text, err)
		}
	})
}

// FuzzRows: an accepted filter selects the rows that SQLite selects. Texts in
// which versions of SQLite differ are left out.
func FuzzRows(f *testing.F) {
	seeds(f)
	g := generator{}
	for n := range 200 {
		i := n
		g.pick = func(m int) int { i = i*1103515245 + 12345; return (i >> 16 & 0x7fff) % m }
		f.Add(g.spine(3))
	}
	o := newOracle(f, nastyRows())
	f.Fuzz(func(t *testing.T, text string) {
		flt, err := Compile(text)
		if err != nil || text == "" || flt.root.now || !o.exact && !stable(flt.root) {
			return
		}
		checkFilter(t, o, text)
	})
}

// stable reports whether a filter means the same in SQLite 3.49 and in the newer
// version that the tests run: no REAL of many digits that may become a text, no
// clock, no 24:00, and no numbers from texts that end in a NUL.
func stable(n *node) bool {
	if n == nil {
		return true
	}
	switch n.op {
	case opAdd, opSub, opMul, opDiv, opRem, opNegate:
		return false
	case opCast:
		if n.aff == affReal || n.aff == affNumeric {
			return false
		}
	case opLiteral:
		if n.lit.k == real && (math.Abs(n.lit.f) >= 1e14 || sqltext.ParseReal(sqltext.FormatReal(n.lit.f)) != n.lit.f) {
			return false
		}
	case opCall:
		switch n.fn {
		case fnAbs, fnJulianDay, fnStrftime, fnChar, fnReplace, fnTrim, fnLTrim, fnRTrim, fnDate, fnDateTime, fnTime, fnUnixEpoch:
			return false
		}
	}
	if n.fails || n.now {
		return false
	}
	for _, a := range n.args {
		if !stable(a) {
			return false
		}
	}
	if n.aux != nil && !stable(n.aux.high) {
		return false
	}
	return stable(n.left) && stable(n.right)
}
