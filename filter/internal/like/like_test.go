package like

import (
	"strings"
	"testing"
	"thread/filter/internal/sqltext"
)

// naive is the definition of LIKE and GLOB as a recursion: SQLite's
// patternCompare without its shortcuts.
func naive(p, s string, w Wildcards) bool {
	if p == "" {
		return s == ""
	}
	c, i := sqltext.ReadChar(p, 0)
	if c == w.all && w.all != 0 {
		for j := 0; ; j = sqltext.SkipChar(s, j) {
			if naive(p[i:], s[j:], w) {
				return true
			}
			if j == len(s) {
				return false
			}
		}
	}
	if c == '[' && w.sets && endOfSet(p, i) < 0 || s == "" {
		return false
	}
	i, j, ok := w.step(p, 0, s, 0)
	return ok && naive(p[i:], s[j:], w)
}

// TestLikeExhaustively compares the compiled pattern, the matcher for patterns
// from events, and the definition, for every short pattern and text over small
// alphabets that hold each kind of character.
func TestLikeExhaustively(t *testing.T) {
	type language struct {
		w              Wildcards
		pattern, texts []string
	}
	texts := []string{"a", "A", "b", "_", "é", "\x80", "\xc3", "😀"}
	for _, l := range []language{
		{LIKE(0), []string{"a", "B", "%", "_", "é", "😀"}, texts},
		{LIKE('_'), []string{"a", "%", "_", "é"}, texts},
		{LIKE('%'), []string{"a", "%", "_"}, []string{"a", "A", "%", "_"}},
		{LIKE('a'), []string{"a", "A", "%", "_", "b"}, []string{"a", "A", "%", "_"}},
		{GLOB, []string{"a", "*", "?", "[", "]", "^", "-", "b"}, []string{"a", "b", "]", "-", "é"}},
	} {
		for p := range words(l.pattern, 5) {
			c := Compile(p, l.w)
			for s := range words(l.texts, 4) {
				want := naive(p, s, l.w)
				if got := c.Match(s); got != want {
					t.Fatalf("pattern %q (%+v) on %q: compiled %v, by definition %v", p, l.w, s, got, want)
				}
				if got := Match(p, s, l.w); got != want {
					t.Fatalf("pattern %q (%+v) on %q: Match %v, by definition %v", p, l.w, s, got, want)
				}
			}
		}
	}
}

// words yields every word of at most n letters; for the longest words only some.
func words(alphabet []string, n int) func(func(string) bool) {
	return func(yield func(string) bool) {
		count := 0
		var extend func(prefix string, n int) bool
		extend = func(prefix string, n int) bool {
			if count++; count%len(alphabet) == 0 || n > 1 {
				if !yield(prefix) {
					return false
				}
			}
			if n == 0 {
				return true
			}
			for _, a := range alphabet {
				if !extend(prefix+a, n-1) {
					return false
				}
			}
			return true
		}
		extend("", n)
	}
}

// TestLikeLongSegment drives find into its slow path: nearly-occurrences
// everywhere.
func TestLikeLongSegment(t *testing.T) {
	near := strings.Repeat("ab", 200)
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"%" + near + "aab%", strings.Repeat(near+"b", 50), false},
		{"%" + near + "aab%", strings.Repeat(near+"b", 50) + strings.ToUpper(near) + "AaB", true},
		{"%" + near + "b" + near + "b%", strings.Repeat(near, 20) + "b" + near + "bb", true},
		{"%" + near + "b" + near + "b%", strings.Repeat(near, 20) + "b" + near + "a", false},
	} {
		w := LIKE(0)
		g := Compile(c.pattern, w).segments[1]
		if _, got := g.find(c.text, 0, true); got != c.want {
			t.Errorf("find %.40q in %.40q: %v", c.pattern, c.text, got)
		}
		if _, got := g.findSlowly(c.text, 0, true); got != c.want {
			t.Errorf("findSlowly %.40q in %.40q: %v", c.pattern, c.text, got)
		}
		if got := Match(c.pattern, c.text, w); got != c.want {
			t.Errorf("Match %.40q in %.40q: %v", c.pattern, c.text, got)
		}
	}
}
