// Package similar finds the word that was meant by a mistyped one.
//
// The package is internal to this program and makes no promise to library users.
package similar

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Unknown returns the words of an error about a name that is not one of known.
func Unknown(kind, name string, known []string) string {
	text := fmt.Sprintf("the %s %q is not known: ", kind, name)
	if meant := To(name, known); meant != "" {
		return text + "did you mean " + meant + "?"
	}
	if len(known) == 0 {
		return text + "there are none here"
	}
	return text + "use one of " + strings.Join(known, ", ")
}

// UnknownParameter returns the words of an error about the first parameter of a query that is
// not one of known, "" for none: left out, a parameter would change the answer.
func UnknownParameter(query map[string][]string, known []string) string {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			return Unknown("parameter", name, known)
		}
	}
	return ""
}

// To returns the word that was probably meant by typed, "" when none is near
// enough: a third of its letters may be wrong, and of short words one.
func To(typed string, words []string) string {
	best, nearest := "", max(1, len(typed)/3)+1
	for _, word := range words {
		if d := distance(typed, word); d < nearest && d < len(word) {
			best, nearest = word, d
		}
	}
	return best
}

// distance counts the bytes to insert, delete, replace or swap with their
// neighbour that make b of a (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
