package dispatch

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"thread/lock"
)

// The bounds of a handler's log: the file and its rotated copies.
const (
	outputMegabytes = 10
	outputCopies    = 3
	outputDays      = 28
)

// maxPipe is more than a pipe holds: 64 KiB, or what a handler asks for, which Linux
// grants up to 1 MiB.
const maxPipe = 1 << 20

// output carries what a handler prints to logs/handlers/<c>.log. The supervisor
// reads it from a pipe, so that it is the only writer of the file and can
// rotate it.
type output struct {
	writer *os.File // the handler's stdout and stderr
	reader *os.File
	log    *lumberjack.Logger
	bytes  int64         // how much the copying has written
	copied chan struct{} // closed when the copying has ended; nil before it starts
}

// OutputPath returns the log of a consumer's handler.
func OutputPath(dir, consumer string) string {
	return filepath.Join(dir, "logs", "handlers", lock.Name(consumer)+".log")
}

func (r *dispatcher) openOutput(consumer string) (*output, error) {
	path := OutputPath(r.t.Dir(), consumer)
	for _, dir := range []string{filepath.Dir(filepath.Dir(path)), filepath.Dir(path)} {
		if err := lock.Mkdir(dir); err != nil {
			return nil, err
		}
	}
	// lumberjack opens it at the first line, and then its owner is its creator's.
	if f, err := lock.Create(path, os.O_WRONLY|lock.NoFollow|lock.NoWait); err == nil {
		f.Close()
	} else {
		r.noteTrouble(err) // the handler can run without
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &output{writer: writer, reader: reader, log: outputLog(r.t.Dir(), consumer)}, nil
}

func outputLog(dir, consumer string) *lumberjack.Logger {
	return &lumberjack.Logger{Filename: OutputPath(dir, consumer), MaxSize: outputMegabytes, MaxBackups: outputCopies, MaxAge: outputDays}
}

// started is called when the handler has its own copy of the writer.
func (o *output) started() {
	o.writer.Close()
	o.begin()
}

// begin begins the copying.
func (o *output) begin() {
	o.copied = make(chan struct{})
	go func() {
		defer close(o.copied)
		o.copy(o.reader)
	}()
}

// copy reads until the pipe ends, the deadline passes or there is nothing to
// read. It goes on reading when the log cannot be written, or the handler would
// stop at a full pipe.
func (o *output) copy(from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			_, _ = o.log.Write(buf[:n]) // a full disk must not stop the handler
			o.bytes += int64(n)
		}
		if err != nil {
			return
		}
	}
}

// close writes what the handler has printed and closes the log. A process that
// the handler left behind may have the pipe open for ever, so the end of the
// pipe is not waited for: the copying is stopped, and then what is in the pipe is
// read. Such a process gets SIGPIPE or EPIPE when it prints later.
func (o *output) close() {
	if o.copied == nil {
		o.writer.Close()
	} else {
		_ = o.reader.SetReadDeadline(time.Unix(1, 0))
		<-o.copied
		_ = o.reader.SetReadDeadline(time.Time{})
		o.copyRest(ready{o.reader})
	}
	o.reader.Close()
	o.log.Close()
	// Otherwise the log has not been rotated.
	if info, err := os.Stat(o.log.Filename); err == nil && info.Size() <= o.bytes {
		removeCopies(o.log.Filename)
	}
}

// removeCopies removes all but the newest of the rotated copies of a log. lumberjack
// does so on a goroutine that nobody can wait for, and this process may end before.
func removeCopies(path string) {
	prefix := strings.TrimSuffix(filepath.Base(path), ".log") + "-"
	entries, _ := os.ReadDir(filepath.Dir(path)) // by name, so the oldest first
	var copies []string
	for _, e := range entries {
		at, ours := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".log"), prefix)
		if _, err := time.Parse(lumberjackTime, at); ours && err == nil {
			copies = append(copies, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	for _, name := range copies[:max(len(copies)-outputCopies, 0)] {
		_ = os.Remove(name) // it may be gone
	}
}

// lumberjackTime is how lumberjack names a copy.
const lumberjackTime = "2006-01-02T15-04-05.000"

// copyRest is copy of what a pipe held when its handler ended. What a process that
// was left behind goes on to print may have no end.
func (o *output) copyRest(from io.Reader) { o.copy(io.LimitReader(from, maxPipe)) }

var errNothingReady = errors.New("nothing to read")

// ready reads what a pipe holds at the moment and does not wait for more.
type ready struct{ f *os.File }

func (r ready) Read(p []byte) (n int, err error) {
	conn, err := r.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := conn.Read(func(fd uintptr) bool {
		n, err = readNow(fd, p)
		return true
	}); cerr != nil {
		return 0, cerr
	}
	if err == nil && n <= 0 {
		err = io.EOF
	}
	return max(n, 0), err
}
