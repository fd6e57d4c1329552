package consume

import (
	"strings"

	"thread/engine"
	"thread/internal/command"
	"thread/internal/pipe"
)

// stderr passes on what a command prints on its stderr, and keeps the end of it for
// the dead letter.
type stderr struct{ *command.Output }

func (r *run) newStderr() (*stderr, error) {
	o, err := command.NewOutput(&pipe.Tail{Most: engine.MaxErrorBytes}, r.Stderr)
	return &stderr{o}, err
}

// said is an error with the end of what the command has printed until now, as much as
// is kept with an event.
func (s *stderr) said(what string) string {
	s.CatchUp()
	text, _ := s.Tail.Text()
	text = strings.TrimSpace(text)
	if text == "" {
		return what
	}
	what += ": "
	return what + pipe.Last(text, engine.MaxErrorBytes-len(what))
}

// forget begins again, for the next event of a worker.
func (s *stderr) forget() {
	s.CatchUp()
	s.Tail.Reset()
}

// maxLeft is how many commands may have left something behind that still has their
// stderr, before the first of them is cut off.
const maxLeft = 16

// leave is called when the command has ended. What it has left behind may continue
// printing for as long as this process is there.
func (r *run) leave(s *stderr) {
	if s.CatchUp(); s.Ended() {
		s.Close()
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
		first.Close()
	}
}

// closeLeft passes on what was printed, and no more.
func (r *run) closeLeft() {
	for _, s := range r.left {
		s.Close()
	}
	r.left = nil
}
