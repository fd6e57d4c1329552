package filter

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrRuntime is wrapped by the errors of Match.
var ErrRuntime = errors.New("filter failed")

// Error says where and why a text is not a filter.
type Error struct {
	Text   string // the whole filter
	Offset int    // byte offset of the fault, in [0, len(Text)]
	Line   int    // from 1
	Column int    // from 1, in code points
	What   string // without the place, "no such column: foo"
	Hint   string // how to fix it, may be empty
}

// newError fills in line and column. offset is held within text.
func newError(text string, offset int, what, hint string) *Error {
	offset = max(0, min(offset, len(text)))
	before := text[:offset]
	line := strings.Count(before, "\n")
	begin := strings.LastIndexByte(before, '\n') + 1
	return &Error{
		Text: text, Offset: offset, Line: line + 1,
		Column: utf8.RuneCountInString(before[begin:]) + 1,
		What:   what, Hint: hint,
	}
}

// Error is one line: what is wrong, where, and after a dash how to fix it.
// Control characters of the filter are shown as spaces.
func (e *Error) Error() string {
	s := fmt.Sprintf("filter: %s at offset %d (line %d, column %d)", e.What, e.Offset, e.Line, e.Column)
	if e.Hint != "" {
		s += " - " + e.Hint
	}
	return withoutControls(s)
}

func withoutControls(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// excerptChars is how much of a long line an excerpt shows on each side.
const excerptChars = 60

// Excerpt is the line of the filter with the fault and a line with a caret under
// it, each ending in a newline. Control characters are shown as spaces, bytes
// that are not UTF-8 as U+FFFD, and of a long line only the part around the
// fault.
func (e *Error) Excerpt() string {
	begin := strings.LastIndexByte(e.Text[:e.Offset], '\n') + 1
	end := len(e.Text)
	if i := strings.IndexByte(e.Text[e.Offset:], '\n'); i >= 0 {
		end = e.Offset + i
	}
	before, after := []rune(e.Text[begin:e.Offset]), []rune(e.Text[e.Offset:end])
	if len(before) > excerptChars {
		before = append([]rune("…"), before[len(before)-excerptChars:]...)
	}
	if len(after) > excerptChars {
		after = append(after[:excerptChars:excerptChars], '…')
	}
	line := withoutControls(string(before) + string(after))
	return line + "\n" + strings.Repeat(" ", len(before)) + "^\n"
}
