package like

import (
	"thread/filter/internal/sqltext"
)

// Wildcards says how a pattern is written. A zero character stands for nothing:
// patterns end at their first NUL.
type Wildcards struct {
	all, one uint32
	escape   uint32 // LIKE … ESCAPE, takes precedence over all and one
	sets     bool   // GLOB: […]
	fold     bool   // LIKE: ASCII letters fold
}

// LIKE returns the wildcards of LIKE with an escape character, 0 for none.
func LIKE(escape uint32) Wildcards {
	w := Wildcards{all: '%', one: '_', escape: escape, fold: true}
	switch escape {
	case '%':
		w.all = 0
	case '_':
		w.one = 0
	}
	return w
}

// GLOB has the wildcards of GLOB.
var GLOB = Wildcards{all: '*', one: '?', sets: true}

// Match reports whether the whole of s matches the pattern p. It decodes
// both as it goes, so that it holds for any bytes. Only the latest run of any
// length is ever retried: the time is at most len(p) times len(s), never
// exponential.
func Match(p, s string, w Wildcards) bool {
	p, s = sqltext.UntilNUL(p), sqltext.UntilNUL(s)
	if w.sets && hasOpenSet(p) {
		return false
	}
	i, j := 0, 0
	retryP, retryS := -1, 0
	for {
		if i < len(p) {
			c, next := sqltext.ReadChar(p, i)
			if c == w.all {
				if next == len(p) {
					return true
				}
				retryP, retryS = next, j
				i = next
				continue
			}
			if j < len(s) {
				if pNext, sNext, ok := w.step(p, i, s, j); ok {
					i, j = pNext, sNext
					continue
				}
			}
		} else if j == len(s) {
			return true
		}
		if retryP < 0 || retryS >= len(s) {
			return false
		}
		retryS = sqltext.SkipChar(s, retryS)
		i, j = retryP, retryS
	}
}

// step matches one element of the pattern, at p[i] and not a run, with one
// character of s, and gives the offsets after both.
func (w *Wildcards) step(p string, i int, s string, j int) (int, int, bool) {
	pc, i := sqltext.ReadChar(p, i)
	sc, j := sqltext.ReadChar(s, j)
	switch {
	case pc == w.escape && w.escape != 0:
		if i == len(p) {
			return 0, 0, false
		}
		pc, i = sqltext.ReadChar(p, i)
	case pc == '[' && w.sets:
		in, i := inSet(p, i, sc)
		return i, j, in
	case pc == w.one && w.one != 0:
		return i, j, true
	}
	return i, j, pc == sc || w.fold && pc < 0x80 && sc < 0x80 && sqltext.LowerASCII(byte(pc)) == sqltext.LowerASCII(byte(sc))
}

// inSet reports whether c is in the GLOB set whose text begins at p[i], after
// its bracket, and gives the offset after the set. The set must be closed. This
// is patternCompare in SQLite's func.c: ^ negates, a bracket that comes first is
// a member, a range is by code point, and nothing escapes.
func inSet(p string, i int, c uint32) (bool, int) {
	in, invert := false, false
	m, i := sqltext.ReadChar(p, i)
	if m == '^' {
		invert = true
		m, i = sqltext.ReadChar(p, i)
	}
	if m == ']' {
		in = c == ']'
		m, i = sqltext.ReadChar(p, i)
	}
	prior := uint32(0)
	for m != ']' {
		if m == '-' && p[i] != ']' && prior > 0 {
			m, i = sqltext.ReadChar(p, i)
			in = in || c >= prior && c <= m
			prior = 0
		} else {
			in = in || c == m
			prior = m
		}
		m, i = sqltext.ReadChar(p, i)
	}
	return in != invert, i
}

// hasOpenSet reports whether a set in the GLOB pattern p is never closed. This
// pattern matches nothing.
func hasOpenSet(p string) bool {
	for i := 0; i < len(p); i++ {
		if p[i] != '[' {
			continue
		}
		if i = endOfSet(p, i+1); i < 0 {
			return true
		}
	}
	return false
}

// endOfSet gives the offset of the bracket that closes the set whose text begins
// at p[i], or -1. All characters that matter are ASCII, so bytes are enough.
func endOfSet(p string, i int) int {
	if i < len(p) && p[i] == '^' {
		i++
	}
	if i < len(p) && p[i] == ']' {
		i++
	}
	for ; i < len(p); i++ {
		if p[i] == ']' {
			return i
		}
	}
	return -1
}
