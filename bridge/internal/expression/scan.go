package expression

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	end tokenKind = iota
	name
	number
	text
	sign // an operator, a bracket or a word that is one
)

type token struct {
	kind tokenKind
	s    string // of a text its value
	at   int    // in bytes
}

// signs are found longest first.
var signs = []string{"?.", "??", "**", "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", ":", "?", ".",
	"+", "-", "*", "/", "%", "^", "<", ">", "!"}

var words = map[string]bool{"and": true, "or": true, "not": true, "in": true, "contains": true, "startsWith": true, "endsWith": true, "matches": true}

func letter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// scan cuts an expression into tokens, the last of which is end.
func scan(s string) (list []token) {
	if !utf8.ValidString(s) {
		panic(fault("it is not valid UTF-8"))
	}
	for i := 0; ; {
		for i < len(s) && strings.IndexByte(" \t\r\n", s[i]) >= 0 {
			i++
		}
		if i == len(s) {
			return append(list, token{end, "", i})
		}
		t := token{at: i}
		switch c := s[i]; {
		case letter(c):
			for i < len(s) && (letter(s[i]) || digit(s[i])) {
				i++
			}
			t.kind, t.s = name, s[t.at:i]
			if words[t.s] {
				t.kind = sign
			}
		case digit(c), c == '.' && i+1 < len(s) && digit(s[i+1]):
			i = numberEnd(s, i)
			t.kind, t.s = number, s[t.at:i]
		case c == '"', c == '\'', c == '`':
			t.kind = text
			t.s, i = quoted(s, i)
		default:
			t.kind = sign
			for _, x := range signs {
				if x == "?." && i+2 < len(s) && digit(s[i+2]) {
					continue // a ?.5 : b is a condition
				}
				if strings.HasPrefix(s[i:], x) {
					t.s = x
					break
				}
			}
			if t.s == "" {
				r, _ := utf8.DecodeRuneInString(s[i:])
				panic(fault(fmt.Sprintf("%q at byte %d is not of the language", r, i)))
			}
			i += len(t.s)
		}
		list = append(list, t)
	}
}

// numberEnd returns where the number that begins at i ends.
func numberEnd(s string, i int) int {
	digits := func() {
		for i < len(s) && digit(s[i]) {
			i++
		}
	}
	digits()
	if i+1 < len(s) && s[i] == '.' && digit(s[i+1]) {
		i++
		digits()
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		back := i
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		if i == len(s) || !digit(s[i]) {
			return back
		}
		digits()
	}
	return i
}

// quoted reads the text in quotes that begins at i, and returns it and what is
// behind it. Escapes are those of Go; in backquotes there are none.
func quoted(s string, i int) (string, int) {
	quote, at := s[i], i
	var b strings.Builder
	for i++; i < len(s); {
		switch {
		case s[i] == quote:
			return b.String(), i + 1
		case quote == '`', s[i] != '\\':
			b.WriteByte(s[i])
			i++
		default:
			r, multi, rest, err := strconv.UnquoteChar(s[i:], quote)
			if err != nil {
				panic(fault(fmt.Sprintf("the escape at byte %d is not known", i)))
			}
			if r < utf8.RuneSelf || !multi {
				if r >= utf8.RuneSelf {
					panic(fault(fmt.Sprintf("the escape at byte %d is not UTF-8", i)))
				}
				b.WriteByte(byte(r))
			} else {
				b.WriteRune(r)
			}
			i = len(s) - len(rest)
		}
	}
	panic(fault(fmt.Sprintf("the text at byte %d has no end", at)))
}
