package sqljson

import (
	"strconv"
	"strings"
)

// Step is one step of a JSON path: a label of an object or an index of an array.
type Step struct {
	Label   *string
	Index   int
	FromEnd bool // [#-N]: N before the length
}

// ParsePath reads $ with .label, ."label", [N] and [#-N]. It refuses labels with
// a backslash, and indexes so large that SQLite's counter would overflow.
func ParsePath(s string) ([]Step, bool) {
	if s == "" || s[0] != '$' {
		return nil, false
	}
	path := []Step{}
	for s = s[1:]; s != ""; {
		var label string
		switch {
		case strings.HasPrefix(s, `."`):
			end := strings.IndexByte(s[2:], '"')
			if end < 0 {
				return nil, false
			}
			label, s = s[2:2+end], s[3+end:]
		case s[0] == '.':
			end := strings.IndexAny(s[1:], ".[")
			if end < 0 {
				end = len(s) - 1
			}
			if end == 0 {
				return nil, false
			}
			label, s = s[1:1+end], s[1+end:]
		case s[0] == '[':
			end := strings.IndexByte(s, ']')
			if end < 0 {
				return nil, false
			}
			digits, fromEnd := strings.CutPrefix(s[1:end], "#-")
			if len(digits) > 9 || strings.Trim(digits, "0123456789") != "" {
				return nil, false
			}
			n, err := strconv.Atoi(digits)
			if err != nil {
				return nil, false
			}
			path = append(path, Step{Index: n, FromEnd: fromEnd})
			s = s[end+1:]
			continue
		default:
			return nil, false
		}
		if strings.IndexByte(label, '\\') >= 0 {
			return nil, false
		}
		path = append(path, Step{Label: &label})
	}
	return path, true
}
