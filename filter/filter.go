// Package filter compiles SQL WHERE fragments over one event, with exactly the
// meaning they have in SQLite 3.49 (compiled with SQLITE_DQS=0).
//
// [Compile] parses and checks a text. A [Matcher] evaluates the tree for an event;
// [Filter.Series], [Filter.SourceRange] and [Filter.IDRange] say what can be known without an event. What a
// filter cannot do exactly as SQLite is refused by [Compile], with the place and the
// reason. docs/reference/filter.md is the language for users.
package filter

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"thread/filter/internal/sqldate"
)

// The bounds of a filter; MaxDepth is the third.
const (
	MaxBytes = 64 << 10 // length of the text
	MaxList  = 10_000   // elements of one IN list
)

// Filter is a compiled filter. It is immutable and safe for concurrent use.
type Filter struct {
	text string
	root *node // nil: the empty filter

	evaluator evaluator
}

// Compile parses and checks text. The empty text is the filter that matches
// everything. The error is always an *Error.
func Compile(text string) (*Filter, error) {
	f := &Filter{text: text}
	if text == "" {
		return f, nil
	}
	if err := checkText(text); err != nil {
		return nil, err
	}
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	c := checker{src: text}
	c.condition(root)
	if c.err != nil {
		return nil, c.err
	}
	f.root = root
	return f, nil
}

// checkText refuses what cannot be the text of a filter.
func checkText(text string) *Error {
	if len(text) > MaxBytes {
		return newError(text, MaxBytes, "the filter is longer than "+strconv.Itoa(MaxBytes)+" bytes", "shorten it, or split it into several subscriptions")
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		return newError(text, i, "a NUL character", "remove it; char(0) stands for one")
	}
	if !utf8.ValidString(text) {
		i := 0
		for {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			i += size
		}
		return newError(text, i, "bytes that are not UTF-8", "write the filter in UTF-8")
	}
	return nil
}

// Text returns the text the filter was compiled from.
func (f *Filter) Text() string { return f.text }

// Closed returns text with a newline after it where it ends in a -- comment, so that
// what is written behind it, as the parenthesis of a query, is not a part of the comment.
// Any other text is returned unchanged.
func Closed(text string) string {
	if !strings.Contains(text, "--") {
		return text
	}
	l := lexer{src: text}
	for l.next().kind != tokEnd {
	}
	if l.open && l.err == nil {
		return text + "\n"
	}
	return text
}

// CanFail reports whether evaluating the filter can end in an error (malformed
// JSON, abs overflow, a pattern or a text that grows too long). If not, a reader
// may pass results on while it evaluates.
func (f *Filter) CanFail() bool { return f.root != nil && f.root.fails }

// UsesClock reports whether the answer for an event can change with the time.
func (f *Filter) UsesClock() bool { return f.root != nil && f.root.now }

// Columns names the columns that the filter reads, in the order of the table.
func (f *Filter) Columns() []string {
	var names []string
	for c, name := range columnNames {
		if f.root != nil && f.root.uses&column(c).set() != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Matcher evaluates a filter. It must not be shared between goroutines. "now" is
// fixed when the Matcher is made.
type Matcher struct {
	filter  *Filter
	frame   frame
	machine machine
}

// Matcher returns a new evaluator with the present time as "now".
func (f *Filter) Matcher() *Matcher { return f.MatcherAt(time.Now()) }

// MatcherAt returns a new evaluator for which "now" is t, in milliseconds.
func (f *Filter) MatcherAt(t time.Time) *Matcher {
	m := &Matcher{filter: f}
	m.frame.now = t.UnixMilli() + sqldate.UnixZero
	return m
}

// Match reports whether r matches, that is whether the filter is true for it and not
// false or NULL. The error wraps [ErrRuntime]. Match does not keep r or its strings.
func (m *Matcher) Match(r *Row) (matches bool, err error) {
	root := m.filter.root
	if root == nil {
		return true, nil
	}
	m.frame.row, m.frame.err = *r, nil
	defer func() {
		m.frame.row = Row{}
		if fault := recover(); fault != nil { // while r was read, whose memory may be a file's
			matches, err = false, asError(fault)
		}
	}()
	return m.match(root)
}

// walk decides the frame's row by walking the tree.
func (m *Matcher) walk(root *node) (bool, error) {
	matches := m.frame.holds(root, true)
	if m.frame.err != nil {
		return false, m.frame.err
	}
	return matches, nil
}

func asError(fault any) error {
	if err, ok := fault.(error); ok {
		return fmt.Errorf("%w: %w", ErrRuntime, err)
	}
	return fmt.Errorf("%w: %v", ErrRuntime, fault)
}

// Version numbers what filters mean. It is raised whenever an accepted filter can
// answer otherwise for some event than it did before: answers that were stored with
// another Version are not used any more. A filter that was refused and is not any
// more needs no new number.
const Version = 1
