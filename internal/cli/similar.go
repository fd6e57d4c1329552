package cli

// Similar returns the word that was probably meant by typed, "" when none is near
// enough: a third of its letters may be wrong, and of short words one.
func Similar(typed string, words []string) string {
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
