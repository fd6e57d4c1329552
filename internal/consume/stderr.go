package consume

import (
	"io"
	"os"
	"strings"

	"thread/engine"
	"thread/internal/pipe"
)

// stderr passes on what a command prints on its stderr, and keeps the end of it for
// the dead letter.
type stderr struct {
	writer *os.File // the command's, until it is started
	copy   *pipe.Copy
	tail   pipe.Tail
}

func (r *run) newStderr() (*stderr, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &stderr{writer: writer, tail: pipe.Tail{Most: engine.MaxErrorBytes}}
	to := io.Writer(&s.tail)
	if r.Stderr != nil {
		to = io.MultiWriter(&s.tail, passOn{r.Stderr})
	}
	s.copy = pipe.Start(reader, to)
	return s, nil
}

// passOn writes for as long as somebody reads. That nobody does is no reason to keep
// nothing.
type passOn struct{ io.Writer }

func (p passOn) Write(b []byte) (int, error) {
	_, _ = p.Writer.Write(b)
	return len(b), nil
}

// started is called when the command has its own copy of the writer, or has none.
func (s *stderr) started() { s.writer.Close() }

// said is an error with the end of what the command has printed until now, as much as
// is kept with an event.
func (s *stderr) said(what string) string {
	s.copy.CatchUp()
	text, _ := s.tail.Text()
	text = strings.TrimSpace(text)
	if text == "" {
		return what
	}
	what += ": "
	return what + pipe.Last(text, engine.MaxErrorBytes-len(what))
}

// forget begins anew, for the next event of a worker.
func (s *stderr) forget() {
	s.copy.CatchUp()
	s.tail.Reset()
}

// maxLeft is how many commands may have left something behind that still has their
// stderr, before the first of them is cut off.
const maxLeft = 16

// leave is called when the command has ended. What it has left behind may go on
// printing for as long as this process is there.
func (r *run) leave(s *stderr) {
	if s.copy.CatchUp(); s.copy.Ended() {
		s.copy.Close()
		return
	}
	r.mu.Lock()
	r.left = append(r.left, s)
	var first *stderr
	if len(r.left) > maxLeft {
		first, r.left = r.left[0], r.left[1:]
	}
	r.mu.Unlock()
	if first != nil {
		first.copy.Close()
	}
}

// closeLeft passes on what was printed, and no more.
func (r *run) closeLeft() {
	for _, s := range r.left {
		s.copy.Close()
	}
	r.left = nil
}
