package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Bar shows on a terminal how far a long job is, at what rate, and how long it
// will take yet. It is a few lines here because the libraries for it cost
// every command, push included, 0.6 MB and a tenth of a millisecond.
type Bar struct {
	w io.Writer

	mu          sync.Mutex
	what        string
	start, next time.Time // next: when to draw again
	drawn       bool
}

// The bar is drawn at most ten times a second, first after half a second, so that
// short jobs do not flicker.
const (
	barFirst = 500 * time.Millisecond
	barEvery = 100 * time.Millisecond
	barWidth = 24
)

// NewBar returns a bar for a job that is called what, as in "exporting".
func NewBar(w io.Writer, what string) *Bar {
	b := &Bar{w: w, what: what, start: time.Now()}
	if IsTerminal(w) {
		b.next = b.start.Add(barFirst)
	}
	return b
}

// Set tells that done of total rows are written; total 0 is not known.
func (b *Bar) Set(done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(done, total)
}

// Show is Set for a job of several parts, each with a name, a rate and a rest.
func (b *Bar) Show(what string, done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); what != b.what && !b.next.IsZero() {
		b.what, b.start = what, now
		if soon := now.Add(barEvery); b.next.Before(soon) {
			b.next = soon
		}
	}
	b.set(done, total)
}

func (b *Bar) set(done, total int64) {
	now := time.Now()
	if b.next.IsZero() || now.Before(b.next) {
		return
	}
	b.next, b.drawn = now.Add(barEvery), true
	fmt.Fprint(b.w, "\r\x1b[K"+barLine(b.what, done, total, now.Sub(b.start), TableColumns(b.w)))
}

// barLine is the line of a bar for a terminal that is so wide, which it may not fill: a
// line that is wrapped is not taken off again.
func barLine(what string, done, total int64, since time.Duration, columns int) string {
	rate := float64(done) / since.Seconds()
	line := fmt.Sprintf("%s %d, %.0f/s", what, done, rate)
	if done = min(done, total); total > 0 && done > 0 {
		full := int(barWidth * done / total)
		left := time.Duration(float64(total-done) / rate * float64(time.Second)).Round(time.Second)
		short := fmt.Sprintf("%s %d%%, %.0f/s, %v left", what, 100*done/total, rate, left)
		line = fmt.Sprintf("%s [%s%s] %d%%, %d of %d, %.0f/s, %v left", what,
			strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), 100*done/total, done, total, rate, left)
		if columns > 0 && len(line) >= columns {
			line = short
		}
	}
	if columns > 0 && len(line) >= columns {
		line = line[:max(0, columns-1)]
	}
	return line
}

// End takes the bar off the terminal.
func (b *Bar) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
}

func (b *Bar) clear() {
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.drawn = false
	}
}

// Write writes to what the bar is drawn on, in its place.
func (b *Bar) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	return b.w.Write(p)
}
