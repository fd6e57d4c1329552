package main

import (
	"errors"
	"fmt"
	"io"
)

// errReaderGone says that nobody reads stdout any more, as in `thread peek … |
// head -1`. The command then ends with exit code 0 (contract T-10).
var errReaderGone = errors.New("the reader of stdout is gone")

// errStdout is wrapped by every other error of writing to stdout.
var errStdout = errors.New("cannot write to stdout")

// flushBytes is how much output is collected before it is written.
const flushBytes = 64 << 10

// output collects stdout and writes it in large pieces. Callers append whole
// lines to buf and then call more.
type output struct {
	w   io.Writer
	buf []byte
}

// reserve makes room for all that is collected, so that a page is not copied from
// one doubled buffer to the next. Memory that is not written to costs nothing.
func (o *output) reserve() {
	if o.buf == nil {
		o.buf = make([]byte, 0, flushBytes+flushBytes/4)
	}
}

// text adds s.
func (o *output) text(s string) error {
	o.buf = append(o.buf, s...)
	return o.more()
}

// more writes buf out when it has grown large.
func (o *output) more() error {
	if len(o.buf) < flushBytes {
		return nil
	}
	return o.flush()
}

// flush writes buf out.
func (o *output) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	switch {
	case err == nil:
		return nil
	case isReaderGone(err):
		return errReaderGone
	default:
		return fmt.Errorf("%w: %w", errStdout, err)
	}
}
