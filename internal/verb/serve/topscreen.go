package serve

import (
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"thread/internal/page"
)

// What steers a terminal, as all since the VT220 have it but the separate screen, which
// others leave out.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // a separate screen, without cursor, lines cut and not wrapped
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	restOfLine  = "\x1b[K"
	restBelow   = "\x1b[J"
	plainText   = "\x1b[m"
)

// styles are before a line of their kind.
var styles = map[topKind]string{topTitle: "\x1b[1m", topHeader: "\x1b[7m", topThreadLine: "\x1b[1m", topTrouble: "\x1b[31m"}

// screen shows the threads until a key or signal ends it. The terminal is as before then.
func (w *topWatch) screen(ctx context.Context, in, out *os.File, all []page.Seen, interval time.Duration) error {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer term.Restore(int(in.Fd()), before) //nolint:errcheck // nothing is left to do
	keys, resized := make(chan byte), make(chan os.Signal, 1)
	go readKeys(in, keys)
	notifyResize(resized)
	if _, err := out.WriteString(enterScreen); err != nil {
		return err
	}
	defer out.WriteString(leaveScreen) //nolint:errcheck // it is the end
	tick := time.NewTicker(interval)
	defer tick.Stop()
	s := topScreen{out: out, colour: os.Getenv("NO_COLOR") == ""}
	for {
		if err := s.draw(all); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-keys:
			if !ok || s.press(key) {
				return nil
			}
		case <-resized:
		case <-tick.C:
			// What is wrong with a thread stands in its row.
			if all, err = w.all(false); err != nil { // the root has none any more
				all = []page.Seen{{Dir: w.c.Root.Value, Err: err}}
			}
		}
	}
}

// readKeys sends what is typed, the arrows as j and k, and closes keys at the end.
func readKeys(in *os.File, keys chan<- byte) {
	defer close(keys)
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		if err != nil || n == 0 {
			return
		}
		typed := strings.NewReplacer("\x1b[A", "k", "\x1b[B", "j", "\x1bOA", "k", "\x1bOB", "j", "\x1b[5~", "b", "\x1b[6~", " ").Replace(string(buf[:n]))
		for _, key := range []byte(typed) {
			keys <- key
		}
	}
}

// topScreen is a part of the lines, as large as the terminal is.
type topScreen struct {
	out    *os.File
	colour bool
	first  int // of the rows, the one at the top
	page   int // how many rows fit
}

const ctrlC, ctrlD = 3, 4

// press does what a key is for, and reports whether that is to end.
func (s *topScreen) press(key byte) (end bool) {
	switch key {
	case 'q', 'Q', ctrlC, ctrlD:
		return true
	case 'j':
		s.first++
	case 'k':
		s.first--
	case ' ':
		s.first += s.page
	case 'b':
		s.first -= s.page
	}
	return false
}

// topHead is how many lines always stand at the top.
const topHead = 3

func (s *topScreen) draw(all []page.Seen) error {
	columns, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 80, 24 // a serial line does not know
	}
	_, err = s.out.WriteString(s.frame(all, time.Now(), columns, rows))
	return err
}

// frame is what the terminal shows next.
func (s *topScreen) frame(all []page.Seen, now time.Time, columns, rows int) string {
	v := topView{now: now, columns: columns}
	lines := v.lines(all)
	head, body := lines[:topHead], lines[topHead:]
	s.page = max(1, rows-topHead)
	s.first = max(0, min(s.first, len(body)-s.page))
	body = body[s.first:min(len(body), s.first+s.page)]
	var b strings.Builder
	b.WriteString(home)
	for i, l := range append(head[:topHead:topHead], body...) {
		if i == rows {
			break
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		if style := styles[l.kind]; style != "" && (s.colour || l.kind != topTrouble) {
			b.WriteString(style + l.text + plainText)
		} else {
			b.WriteString(l.text)
		}
		b.WriteString(restOfLine)
	}
	b.WriteString(restBelow)
	return b.String()
}
