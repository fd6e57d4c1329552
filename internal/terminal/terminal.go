package terminal

import "os"

// plainColumns is how wide text for people is where no terminal says otherwise.
const plainColumns = 80

// IsTerminal reports whether what is written to w is seen as it is written.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	if ok {
		_, ok = terminalColumns(f)
	}
	return ok
}

// TableColumns returns how wide the terminal is that w is, 0 when it is none.
func TableColumns(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, ok := terminalColumns(f)
	switch {
	case !ok:
		return 0
	case columns == 0:
		return plainColumns
	}
	return columns
}

// TextColumns returns how wide lines of text on w should be at most. On a wide
// terminal that is less than there is: long lines are hard to read.
func TextColumns(w any) int {
	columns := TableColumns(w)
	if columns == 0 {
		return plainColumns
	}
	return min(max(columns, 30), 100)
}
