package pipe

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// most is more than a pipe holds: 64 KiB, or what a process asks for, which Linux
// grants up to 1 MiB.
const most = 1 << 20

// Copy is the copying of a pipe to a writer, which continues until the pipe ends. A
// writer that fails is written to no more; reading continues, or the process that prints would
// stop at a full pipe.
type Copy struct {
	reader *os.File
	to     io.Writer
	buf    []byte
	ended  atomic.Bool   // the pipe has: no process can print into it
	copied chan struct{} // closed when the copying stops
}

// Start begins to copy what is printed into the pipe. reader is the copying's own.
func Start(reader *os.File, to io.Writer) *Copy {
	c := &Copy{reader: reader, to: to, buf: make([]byte, 32<<10)}
	c.start()
	return c
}

func (c *Copy) start() {
	c.copied = make(chan struct{})
	go func() {
		defer close(c.copied)
		c.ended.Store(errors.Is(c.copy(c.reader), io.EOF))
	}()
}

// copy reads until that fails, and returns why.
func (c *Copy) copy(from io.Reader) error {
	for {
		n, err := from.Read(c.buf)
		if n > 0 {
			_, _ = c.to.Write(c.buf[:n])
		}
		if err != nil {
			return err
		}
	}
}

// CatchUp returns when what has been printed by now is copied. It does not wait for
// the end of the pipe, which a process that was left behind may have open for ever.
func (c *Copy) CatchUp() {
	if c.stop(); !c.ended.Load() {
		c.start()
	}
}

// Stop is CatchUp that leaves the pipe to another reader. CatchUp continues.
func (c *Copy) Stop() { c.stop() }

// Close is CatchUp, and the end of the copying. What is printed later gets SIGPIPE.
func (c *Copy) Close() {
	c.stop()
	c.reader.Close()
}

// Ended reports whether no process is left that has the pipe open, after CatchUp or Close.
func (c *Copy) Ended() bool { return c.ended.Load() }

func (c *Copy) stop() {
	_ = c.reader.SetReadDeadline(time.Unix(1, 0))
	<-c.copied
	_ = c.reader.SetReadDeadline(time.Time{})
	if !c.ended.Load() {
		c.rest(ready{c.reader})
	}
}

// rest copies what a pipe holds. What a process that was left behind continues to print
// may have no end.
func (c *Copy) rest(from io.Reader) {
	limited := &io.LimitedReader{R: from, N: most}
	c.ended.Store(errors.Is(c.copy(limited), io.EOF) && limited.N > 0)
}
