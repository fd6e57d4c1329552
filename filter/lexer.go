package filter

import (
	"strings"
	"unicode/utf8"

	"thread/filter/internal/sqltext"
)

// tokenKind says what a token is. Keywords are names until the parser asks.
type tokenKind uint8

const (
	tokEnd     tokenKind = iota
	tokName              // unquoted: keyword, column or function
	tokQuoted            // "…", `…` or […]: always an identifier
	tokString            // '…'
	tokInteger           // decimal digits
	tokHex               // 0x…
	tokReal              // with a point or an exponent
	tokOp
)

// token is one token; text is the name, the decoded string, the digits or the
// operator.
type token struct {
	text     string
	pos, end int
	kind     tokenKind
	word     word // of a tokName
}

// lexer cuts a filter into tokens (docs/spec/filter.md, section 2).
type lexer struct {
	src string
	pos int
	err *Error // the first fault; after it there are only tokEnd tokens

	open bool // the text ends in a -- comment
}

func (l *lexer) fail(pos int, what, hint string) token {
	if l.err == nil {
		l.err = newError(l.src, pos, what, hint)
	}
	l.pos = len(l.src)
	return token{pos: l.pos, end: l.pos}
}

func isNameStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}

func isNameByte(c byte) bool { return isNameStart(c) || sqltext.IsDigit(c) || c == '$' }

const byteOrderMark = "\uFEFF"

// next gives the next token, at the end of the text or after a fault a tokEnd.
func (l *lexer) next() token {
	if !l.skipSpace() {
		return token{pos: len(l.src), end: len(l.src)}
	}
	begin := l.pos
	c := l.src[begin]
	switch {
	case (c == 'x' || c == 'X') && strings.HasPrefix(l.src[begin+1:], "'"):
		return l.fail(begin, "a blob literal", "events hold no blobs; compare with a text in single quotes")
	case isNameStart(c):
		if strings.HasPrefix(l.src[begin:], byteOrderMark) {
			return l.fail(begin, "a byte order mark", "remove U+FEFF from the filter")
		}
		for l.pos < len(l.src) && isNameByte(l.src[l.pos]) {
			l.pos++
		}
		t := token{kind: tokName, text: l.src[begin:l.pos], pos: begin, end: l.pos}
		t.word = wordOf(t.text)
		return t
	case sqltext.IsDigit(c), c == '.' && begin+1 < len(l.src) && sqltext.IsDigit(l.src[begin+1]):
		return l.number()
	case c == '\'':
		return l.quoted(tokString, '\'')
	case c == '"' || c == '`':
		return l.quoted(tokQuoted, c)
	case c == '[':
		i := strings.IndexByte(l.src[begin:], ']')
		if i < 0 {
			return l.fail(begin, "an unterminated [identifier", "close it with ]")
		}
		l.pos = begin + i + 1
		return token{kind: tokQuoted, text: l.src[begin+1 : l.pos-1], pos: begin, end: l.pos}
	}
	return l.operator()
}

// skipSpace passes over white space and comments; false is the end of the text.
func (l *lexer) skipSpace() bool {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r':
			l.pos++
		case c == '-' && strings.HasPrefix(rest, "--"):
			i := strings.IndexByte(rest, '\n')
			if i < 0 {
				l.pos, l.open = len(l.src), true
				return false
			}
			l.pos += i + 1
		case c == '/' && strings.HasPrefix(rest, "/*"):
			i := strings.Index(rest[2:], "*/")
			if i < 0 {
				l.fail(l.pos, "an unterminated /* comment", "close it with */")
				return false
			}
			l.pos += i + 4
		default:
			return true
		}
	}
	return false
}

// quoted reads '…', "…" or `…`, where the doubled quote stands for one.
func (l *lexer) quoted(kind tokenKind, quote byte) token {
	begin := l.pos
	doubled := false
	for i := begin + 1; i < len(l.src); i++ {
		j := strings.IndexByte(l.src[i:], quote)
		if j < 0 {
			break
		}
		i += j
		if i+1 < len(l.src) && l.src[i+1] == quote {
			doubled = true
			i++
			continue
		}
		l.pos = i + 1
		t := token{kind: kind, text: l.src[begin+1 : i], pos: begin, end: l.pos}
		if doubled {
			q := string(quote)
			t.text = strings.ReplaceAll(t.text, q+q, q)
		}
		return t
	}
	if kind == tokString {
		return l.fail(begin, "an unterminated string", "close it with ', and write a quote inside as ''")
	}
	return l.fail(begin, "an unterminated quoted identifier", "close it with "+string(quote))
}

func (l *lexer) number() token {
	begin := l.pos
	kind := tokInteger
	digits := func() {
		for l.pos < len(l.src) && sqltext.IsDigit(l.src[l.pos]) {
			l.pos++
		}
	}
	at := func(i int) byte {
		if i < len(l.src) {
			return l.src[i]
		}
		return 0
	}
	if at(begin) == '0' && (at(begin+1) == 'x' || at(begin+1) == 'X') && sqltext.IsHexDigit(at(begin+2)) {
		kind = tokHex
		for l.pos = begin + 2; sqltext.IsHexDigit(at(l.pos)); l.pos++ {
		}
	} else {
		digits()
		if at(l.pos) == '.' {
			kind = tokReal
			l.pos++
			digits()
		}
		if c := at(l.pos); c == 'e' || c == 'E' {
			sign := 1
			if s := at(l.pos + 1); s == '+' || s == '-' {
				sign = 2
			}
			if sqltext.IsDigit(at(l.pos + sign)) {
				kind = tokReal
				l.pos += sign
				digits()
			}
		}
	}
	if l.pos < len(l.src) && isNameByte(l.src[l.pos]) {
		end := l.pos
		for end < len(l.src) && isNameByte(l.src[end]) {
			end++
		}
		return l.fail(begin, "unrecognized token: "+clip(l.src[begin:end]),
			"put a space after the number, or quote a text as '"+clip(l.src[begin:end])+"'")
	}
	return token{kind: kind, text: l.src[begin:l.pos], pos: begin, end: l.pos}
}

// operators, longest first, so that the first prefix is the token.
var operators = [...]string{
	"->>", "||", "->", "<<", ">>", "<=", ">=", "<>", "!=", "==",
	"=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "~", "(", ")", ",", ".",
}

func (l *lexer) operator() token {
	begin := l.pos
	rest := l.src[begin:]
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			if op == "&" && strings.HasPrefix(rest, "&&") {
				return l.fail(begin, "unrecognized token: &&", "write AND")
			}
			l.pos += len(op)
			return token{kind: tokOp, text: op, pos: begin, end: l.pos}
		}
	}
	switch c := rest[0]; c {
	case ':', '@', '#', '\\', '{':
		if word := l.wordAround(begin); begin > 0 && isNameByte(l.src[begin-1]) {
			return l.fail(begin, "unrecognized token: "+string(c), "did you mean '"+clip(word)+"'?")
		}
	}
	switch c := rest[0]; c {
	case '!':
		return l.fail(begin, "unrecognized token: !", "write NOT, or != for unequal")
	case ';':
		return l.fail(begin, "a semicolon", "a filter is one expression; remove the ;")
	case '?', ':', '@', '$', '#':
		return l.fail(begin, "a parameter: "+string(c), "write the value itself; nothing is bound to a filter")
	case '{', '}':
		return l.fail(begin, "unrecognized token: "+string(c), "put a text in single quotes")
	case '\\':
		return l.fail(begin, `unrecognized token: \`, "put a text in single quotes; a quote inside is written ''")
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return l.fail(begin, "unrecognized token: "+quoteRune(r), "remove it, or put a text in single quotes")
}

// wordAround is what stands without white space or quotes around offset at: most
// often a text that lacks its quotes.
func (l *lexer) wordAround(at int) string {
	begin := strings.LastIndexAny(l.src[:at], " \t\r\n\f,()'\"=<>") + 1
	return bareText(l.src[begin:])
}

// bareText is what a text without quotes probably was meant to reach: up to
// white space or something that closes.
func bareText(s string) string {
	if i := strings.IndexAny(s, " \t\r\n,)'\""); i >= 0 {
		return s[:i]
	}
	return s
}
