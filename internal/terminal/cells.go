package terminal

import (
	"unicode"

	"golang.org/x/text/width"
)

// cells returns how many cells of a terminal s takes, which is printable: two for a
// wide letter, as most of Chinese, Japanese and Korean and most emoji are, none for
// a mark on the letter before. A group of emoji that is drawn as one is counted as
// all of them, so that a row is never too long.
func cells(s string) (n int) {
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

func runeCells(r rune) int {
	if r < 0x300 { // before all marks and wide letters
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// shorten returns what of s fits into that many cells, an ellipsis in place of the
// rest.
func shorten(s string, most int) string {
	if cells(s) <= most {
		return s
	}
	used := 0
	for i, r := range s {
		if used += runeCells(r); used > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}
