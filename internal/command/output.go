package command

import (
	"context"
	"io"
	"os"
	"sync/atomic"

	"thread/internal/pipe"
)

// Output is a pipe that a command prints into. What the command prints is passed on, and the
// end of it kept.
type Output struct {
	Writer *os.File // the command's
	Tail   *pipe.Tail
	reader *os.File
	copy   *pipe.Copy
	broken atomic.Bool
}

// NewOutput returns an output that is passed on to a writer, if that is not nil. When the
// writer fails, as one that is not read any more does, the rest is kept only.
func NewOutput(tail *pipe.Tail, to io.Writer) (*Output, error) { return newOutput(tail, to, false) }

// NewTee is NewOutput for a command that is to notice that its output is not read any more:
// when the writer fails, the pipe ends, and the command gets SIGPIPE as if the writer were its
// own.
func NewTee(tail *pipe.Tail, to io.Writer) (*Output, error) { return newOutput(tail, to, true) }

func newOutput(tail *pipe.Tail, to io.Writer, ends bool) (*Output, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o := &Output{Writer: writer, Tail: tail, reader: reader}
	o.copy = pipe.Start(reader, passOn{o, to, ends})
	return o, nil
}

// passOn writes for as long as that is read.
type passOn struct {
	*Output
	to   io.Writer
	ends bool
}

func (p passOn) Write(b []byte) (int, error) {
	_, _ = p.Tail.Write(b) // it never fails
	if p.to == nil || p.broken.Load() {
		return len(b), nil
	}
	if _, err := p.to.Write(b); err != nil {
		p.broken.Store(true)
		if p.ends {
			p.reader.Close()
		}
	}
	return len(b), nil
}

// Started is called when the command has its own copy of the writer, or has none.
func (o *Output) Started() { o.Writer.Close() }

// CatchUp returns when what was printed by now is passed on and kept.
func (o *Output) CatchUp() { o.copy.CatchUp() }

// Ended reports whether nothing can print into the pipe any more, after CatchUp.
func (o *Output) Ended() bool { return o.copy.Ended() }

// Close is CatchUp and the end of the copying: what is left of the command gets SIGPIPE.
func (o *Output) Close() { o.copy.Close() }

// HandOver is Close that leaves what is printed later to another process: it copies that to
// the file for as long as something that the command has left behind has the pipe open.
func (o *Output) HandOver(to *os.File) error {
	defer o.copy.Close()
	if o.copy.Stop(); o.copy.Ended() || o.broken.Load() {
		return nil
	}
	p, err := Start(Spec{Argv: []string{"cat"}, Stdin: o.reader, Stdout: to})
	if err != nil {
		return err
	}
	go p.Wait(context.Background())
	return nil
}
