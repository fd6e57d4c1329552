package filter

import (
	"strconv"
	"thread/filter/internal/sqltext"
)

// word is a keyword, matched without regard to ASCII case.
type word uint8

const (
	noWord word = iota
	wordAnd
	wordAs
	wordBetween
	wordCase
	wordCast
	wordCollate
	wordDistinct
	wordElse
	wordEnd
	wordEscape
	wordExists
	wordFalse
	wordFilter
	wordFrom
	wordGlob
	wordIn
	wordIs
	wordIsNull
	wordLike
	wordMatch
	wordNot
	wordNotNull
	wordNull
	wordOr
	wordOver
	wordRegexp
	wordSelect
	wordThen
	wordTrue
	wordWhen
	wordOther // a keyword of SQL that has no place in a filter
)

// wordOf finds the keyword a name is. Among the rest of SQLite's keywords only
// those that can never be identifiers count (keywords with a fallback are names).
func wordOf(name string) word {
	if len(name) < 2 || len(name) > 10 {
		return noWord
	}
	var lower [10]byte
	for i := range len(name) {
		lower[i] = sqltext.LowerASCII(name[i])
	}
	switch string(lower[:len(name)]) {
	case "and":
		return wordAnd
	case "as":
		return wordAs
	case "between":
		return wordBetween
	case "case":
		return wordCase
	case "cast":
		return wordCast
	case "collate":
		return wordCollate
	case "distinct":
		return wordDistinct
	case "else":
		return wordElse
	case "end":
		return wordEnd
	case "escape":
		return wordEscape
	case "exists":
		return wordExists
	case "false":
		return wordFalse
	case "filter":
		return wordFilter
	case "from":
		return wordFrom
	case "glob":
		return wordGlob
	case "in":
		return wordIn
	case "is":
		return wordIs
	case "isnull":
		return wordIsNull
	case "like":
		return wordLike
	case "match":
		return wordMatch
	case "not":
		return wordNot
	case "notnull":
		return wordNotNull
	case "null":
		return wordNull
	case "or":
		return wordOr
	case "over":
		return wordOver
	case "regexp":
		return wordRegexp
	case "select":
		return wordSelect
	case "then":
		return wordThen
	case "true":
		return wordTrue
	case "when":
		return wordWhen
	case "add", "alter", "check", "commit", "constraint", "create", "default",
		"deferrable", "delete", "drop", "foreign", "group", "having", "index",
		"insert", "into", "join", "limit", "nothing", "on", "order", "primary",
		"references", "returning", "set", "table", "to", "transaction", "union",
		"unique", "update", "using", "values", "where", "except", "intersect":
		return wordOther
	}
	return noWord
}

// clipBytes bounds what an error quotes of the filter.
const clipBytes = 40

// clip shortens s for an error, at a code point.
func clip(s string) string {
	if len(s) <= clipBytes {
		return s
	}
	end := clipBytes
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}

func quoteRune(r rune) string {
	if strconv.IsPrint(r) {
		return string(r)
	}
	return strconv.QuoteRune(r)
}
