// Package terminal writes what a command prints: text, lines of JSON, tables and bars, as wide as
// the terminal is, or for a pipe.
package terminal

import (
	"errors"
	"fmt"
	"io"

	"thread/event"
)

// ErrReaderGone says that no process reads stdout any more, as in `thread peek … |
// head -1`. The command then ends with exit code 0 (T-10).
var ErrReaderGone = errors.New("the reader of stdout is gone")

// ErrStdout is wrapped by every other error of writing to stdout.
var ErrStdout = errors.New("cannot write to stdout")

// flushBytes is how much output is collected before it is written.
const flushBytes = 64 << 10

// Output collects stdout and writes it in large pieces. Callers append whole
// lines to buf and then call more.
type Output struct {
	Thread string // the thread that an object is about, of several; a member thread says it then

	W    io.Writer
	Buf  []byte
	wide bool // much is written: a pipe has been made large
}

// reserve makes room for all that is collected, so that a page is not copied from
// one doubled buffer to the next. Memory that is not written to costs nothing.
func (o *Output) reserve() {
	if o.Buf == nil {
		o.Buf = make([]byte, 0, flushBytes+flushBytes/4)
	}
}

// Text adds s.
func (o *Output) Text(s string) error {
	o.Buf = append(o.Buf, s...)
	return o.More()
}

// More writes buf out when it has grown large.
func (o *Output) More() error {
	if len(o.Buf) < flushBytes {
		return nil
	}
	if !o.wide {
		o.wide = true
		widenPipe(o.W)
	}
	return o.Flush()
}

// Event adds the line of e.
func (o *Output) Event(e *event.Event) (err error) {
	if len(e.Content) < flushBytes {
		o.reserve()
		o.Buf = append(e.AppendJSON(o.Buf), '\n')
		return o.More()
	}
	if err = o.Flush(); err == nil {
		o.Buf, err = e.WriteLine(o.W, o.Buf)
		o.Buf = o.Buf[:0]
	}
	return stdoutError(err)
}

// Flush writes buf out.
func (o *Output) Flush() error {
	if len(o.Buf) == 0 {
		return nil
	}
	_, err := o.W.Write(o.Buf)
	o.Buf = o.Buf[:0]
	return stdoutError(err)
}

func stdoutError(err error) error {
	switch {
	case err == nil || errors.Is(err, ErrReaderGone) || errors.Is(err, ErrStdout):
		return err
	case isReaderGone(err):
		return ErrReaderGone
	default:
		return fmt.Errorf("%w: %w", ErrStdout, err)
	}
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.Buf = append(o.Buf, p...)
	return len(p), o.More()
}
