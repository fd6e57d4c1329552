package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Bar shows on a terminal how far a long job is, at what rate, and how long it
// will take yet. It is thirty lines here because the libraries for it cost
// every command, push included, 0.6 MB and a tenth of a millisecond.
type Bar struct {
	w           io.Writer
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
	now := time.Now()
	if b.next.IsZero() || now.Before(b.next) {
		return
	}
	b.next, b.drawn = now.Add(barEvery), true
	rate := float64(done) / now.Sub(b.start).Seconds()
	line := fmt.Sprintf("%s %d, %.0f/s", b.what, done, rate)
	if done = min(done, total); total > 0 && done > 0 {
		full := int(barWidth * done / total)
		left := time.Duration(float64(total-done) / rate * float64(time.Second)).Round(time.Second)
		line = fmt.Sprintf("%s [%s%s] %d%%, %d of %d, %.0f/s, %v left", b.what,
			strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), 100*done/total, done, total, rate, left)
	}
	fmt.Fprint(b.w, "\r\x1b[K"+line)
}

// End takes the bar off the terminal.
func (b *Bar) End() {
	if b.drawn {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
