// Package like matches texts with the patterns of LIKE and GLOB.
package like

import (
	"strings"
	"thread/filter/internal/sqltext"
	"unicode/utf8"
)

// MaxBytes is SQLITE_MAX_LIKE_PATTERN_LENGTH: SQLite fails on a longer one.
const MaxBytes = 50000

// Pattern is a LIKE or GLOB pattern known when the filter is compiled. It is cut
// at its runs into segments, which are looked for from left to right, so that
// the time is linear in the text for '%a%a%a%b' too.
type Pattern struct {
	Text     string
	wild     Wildcards
	segments []segment
	open     bool // ends with a run: the last segment need not end the text
	never    bool // matches nothing at all: an escape character at the end, an open set
	slow     bool // has sets or odd code points: Match does the work
	ascii    bool
}

// segment is the text between two runs. The byte 0, which a pattern cannot hold,
// stands for "any one character".
type segment struct {
	body   string // without the leading ones; lower case if the pattern folds
	ones   int    // how many characters to step over before the body
	lead   int    // length of the body up to its first "any one character"
	anchor int    // offset of the byte in body[:lead] to search for
	lo, up byte   // that byte in both cases
}

// Compile returns the pattern p, of any bytes. None is refused.
func Compile(p string, w Wildcards) *Pattern {
	c := &Pattern{Text: p, wild: w, ascii: true}
	p = sqltext.UntilNUL(p)
	if w.sets && strings.IndexByte(p, '[') >= 0 {
		c.slow, c.never = true, hasOpenSet(p)
		return c
	}
	var store [2]segment
	c.segments = store[:0]
	// The body of most segments is a piece of p; buf takes it over where it is not.
	body := make([]byte, 0, len(p))
	begin := 0
	flush := func(open bool) {
		c.segments = append(c.segments, newSegment(string(body[begin:]), len(c.segments) == 0, w.fold))
		begin = len(body)
		c.open = open
	}
	for i := 0; i < len(p); {
		r, next := sqltext.ReadChar(p, i)
		literal := false
		if r == w.escape && w.escape != 0 {
			if next == len(p) {
				c.never = true
				return c
			}
			i, literal = next, true
			r, next = sqltext.ReadChar(p, i)
		}
		switch {
		case !literal && r == w.all && w.all != 0:
			flush(true)
		case !literal && r == w.one && w.one != 0:
			body = append(body, 0)
		case r < 0x80:
			b := byte(r)
			if w.fold {
				b = sqltext.LowerASCII(b)
			}
			body = append(body, b)
		default:
			c.ascii = false
			if r >= 0xFFFD && r <= 0xFFFF {
				c.slow = true // these three read alike
				return c
			}
			body = append(body, p[i:next]...)
		}
		i = next
	}
	if begin < len(body) || len(c.segments) == 0 {
		flush(false)
	}
	return c
}

// newSegment prepares a segment for searching. The first one is not searched
// for: it begins the text.
func newSegment(body string, first, fold bool) segment {
	g := segment{body: body, lead: len(body)}
	if first {
		return g
	}
	for g.ones < len(body) && body[g.ones] == 0 {
		g.ones++
	}
	g.body = body[g.ones:]
	g.lead = len(g.body)
	if i := strings.IndexByte(g.body, 0); i >= 0 {
		g.lead = i
	}
	best := -1
	for i := range g.lead {
		if r := rarity(g.body[i]); r > best {
			best, g.anchor = r, i
		}
	}
	if g.lead > 0 {
		g.lo = g.body[g.anchor]
		g.up = g.lo
		if fold {
			g.up = sqltext.UpperASCII(g.lo)
		}
	}
	return g
}

// rarity guesses how seldom a byte is in the texts that are searched; a letter
// costs a second search for its other case.
func rarity(b byte) int {
	if b == ' ' || b >= 0x80 {
		return 0
	}
	if b < 'a' || b > 'z' {
		return 20
	}
	return strings.IndexByte("etaoinsrhldcumfpgwybvkxjqz", b) + 1
}

// Match reports whether the whole of s matches.
func (c *Pattern) Match(s string) bool {
	if c.never {
		return false
	}
	s = sqltext.UntilNUL(s)
	if c.slow || !c.ascii && !utf8.ValidString(s) {
		return Match(c.Text, s, c.wild)
	}
	fold := c.wild.fold
	last := len(c.segments) - 1
	at, ok := c.segments[0].matchAt(s, 0, fold)
	if !ok {
		return false
	}
	if last == 0 {
		return c.open || at == len(s)
	}
	for k := 1; k < last || k == last && c.open; k++ {
		if at, ok = c.segments[k].find(s, at, fold); !ok {
			return false
		}
	}
	return c.open || c.segments[last].matchEnd(s, at, fold)
}

// matchAt matches the body with the text at s[at] and gives the offset after what
// did match.
func (g *segment) matchAt(s string, at int, fold bool) (int, bool) {
	for i := range len(g.body) {
		if at >= len(s) {
			return at, false
		}
		b := s[at]
		switch {
		case g.body[i] == b:
			at++
		case g.body[i] == 0:
			at = sqltext.SkipChar(s, at)
		case fold && g.body[i] == sqltext.LowerASCII(b):
			at++
		default:
			return at, false
		}
	}
	return at, true
}

// find looks for the segment from s[at] on and gives the offset after its first
// occurrence.
func (g *segment) find(s string, at int, fold bool) (int, bool) {
	for range g.ones {
		if at >= len(s) {
			return 0, false
		}
		at = sqltext.SkipChar(s, at)
	}
	if g.lead == 0 {
		return at, true
	}
	if !fold && g.lead == len(g.body) {
		i := strings.Index(s[at:], g.body)
		return at + i + len(g.body), i >= 0
	}
	// The next places of both cases are kept, so that each byte is looked at once
	// however the cases alternate.
	next := at + g.anchor
	lo, up := -1, -1
	work := 0
	for next < len(s) {
		if lo < next {
			lo = indexByteFrom(s, g.lo, next)
		}
		here := lo
		if g.up != g.lo {
			if up < next {
				up = indexByteFrom(s, g.up, next)
			}
			here = min(lo, up)
		}
		if here == len(s) {
			break
		}
		begin := here - g.anchor
		end, ok := g.matchAt(s, begin, fold)
		if ok {
			return end, true
		}
		if work += end - begin; work > 4*len(s) && g.lead == len(g.body) {
			return g.findSlowly(s, begin+1, fold)
		}
		next = here + 1
	}
	return 0, false
}

// findSlowly is find by Knuth, Morris and Pratt: linear also for a long body
// that nearly occurs everywhere. It is seldom worth its table.
func (g *segment) findSlowly(s string, at int, fold bool) (int, bool) {
	border := make([]int, len(g.body)+1) // of body[:i], the longest border
	border[0] = -1
	for i, k := 0, -1; i < len(g.body); {
		for k >= 0 && g.body[i] != g.body[k] {
			k = border[k]
		}
		i, k = i+1, k+1
		border[i] = k
	}
	for k := 0; at < len(s); at++ {
		b := s[at]
		if fold {
			b = sqltext.LowerASCII(b)
		}
		for k >= 0 && g.body[k] != b {
			k = border[k]
		}
		if k++; k == len(g.body) {
			return at + 1, true
		}
	}
	return 0, false
}

// indexByteFrom gives the offset of b in s, from s[at] on, or len(s).
func indexByteFrom(s string, b byte, at int) int {
	if i := strings.IndexByte(s[at:], b); i >= 0 {
		return at + i
	}
	return len(s)
}

// matchEnd reports whether the segment ends the text without reaching before
// s[from]. Its leading ones may be farther left than the place where it begins.
func (g *segment) matchEnd(s string, from int, fold bool) bool {
	for range g.ones {
		if from >= len(s) {
			return false
		}
		from = sqltext.SkipChar(s, from)
	}
	at := len(s)
	for i := len(g.body) - 1; i >= 0; i-- {
		if at <= from {
			return false
		}
		b := s[at-1]
		switch {
		case g.body[i] == b:
			at--
		case g.body[i] == 0:
			at = sqltext.CharBefore(s, at)
		case fold && g.body[i] == sqltext.LowerASCII(b):
			at--
		default:
			return false
		}
	}
	return at >= from
}

// Prefix returns the least and the greatest beginning of a text that matches, and false where
// none does. Only the ASCII characters before the first wildcard count: another character may
// be encoded in more than one way in a text that is not UTF-8. Where letters fold, the least
// has them all in upper case and the greatest in lower case. A pattern without a wildcard
// still matches a text that continues after a NUL.
func (c *Pattern) Prefix() (least, greatest string, ok bool) {
	if c.never {
		return "", "", false
	}
	var low, high strings.Builder
	t, w := sqltext.UntilNUL(c.Text), &c.wild
	for i := 0; i < len(t) && t[i] < 0x80; i++ {
		b := t[i]
		switch r := uint32(b); {
		case r == w.escape:
			i++
			if i == len(t) || t[i] >= 0x80 {
				return low.String(), high.String(), true
			}
			b = t[i]
		case r == w.all, r == w.one, w.sets && b == '[':
			return low.String(), high.String(), true
		}
		if w.fold {
			low.WriteByte(sqltext.UpperASCII(b))
			high.WriteByte(sqltext.LowerASCII(b))
		} else {
			low.WriteByte(b)
			high.WriteByte(b)
		}
	}
	return low.String(), high.String(), true
}
