package pipe

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Tail keeps the last Most bytes of what is written to it. Writing never fails. It is
// safe for concurrent use.
type Tail struct {
	Most int

	mu sync.Mutex
	b  []byte
	n  int64
}

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += int64(len(p))
	last := p[max(0, len(p)-t.Most):]
	if len(t.b)+len(last) > 4*t.Most {
		t.b = append(t.b[:0], t.b[max(0, len(t.b)-t.Most):]...)
	}
	t.b = append(t.b, last...)
	return len(p), nil
}

// Size returns how many bytes were written.
func (t *Tail) Size() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// Reset forgets what was written.
func (t *Tail) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b, t.n = t.b[:0], 0
}

// Bytes returns the last of it, at most Most bytes.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.b[max(0, len(t.b)-t.Most):])
}

// Text returns the last of it as UTF-8, at most Most bytes that begin with a whole
// character, and whether more was written. What is not UTF-8 is U+FFFD.
func (t *Tail) Text() (text string, cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := string(t.b[max(0, len(t.b)-t.Most):])
	if int64(len(last)) < t.n {
		last = wholeCharacters(last)
	}
	valid := strings.ToValidUTF8(last, "\uFFFD")
	text = Last(valid, t.Most) // a replacement is longer than what it replaces
	return text, int64(len(last)) < t.n || len(text) < len(valid)
}

// Last returns the end of s, at most that many bytes, without the half of a character at
// its beginning.
func Last(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return wholeCharacters(s[len(s)-max(0, most):])
}

// wholeCharacters returns s without the half of a character at its beginning.
func wholeCharacters(s string) string {
	for n := range utf8.UTFMax {
		if n >= len(s) || utf8.RuneStart(s[n]) {
			return s[min(n, len(s)):]
		}
	}
	return s // it is not UTF-8
}
