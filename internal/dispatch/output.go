package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"thread/internal/pipe"
	"thread/lock"
)

// The bounds of a handler's log: the file and its rotated copies.
const (
	outputMegabytes = 10
	outputCopies    = 3
	outputDays      = 28
)

// OutputPath returns the log of a consumer's handler.
func OutputPath(dir, consumer string) string {
	return filepath.Join(dir, "logs", "handlers", lock.Name(consumer)+".log")
}

func (r *dispatcher) openOutput(consumer string) (*output, error) {
	path := OutputPath(r.t.Dir(), consumer)
	if err := r.makeOutputDir(); err != nil {
		return nil, err
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
	o := newOutput(reader, r.t.Dir(), consumer)
	o.writer = writer
	return o, nil
}

func newOutput(reader *os.File, dir, consumer string) *output {
	return &output{reader: reader, dir: dir, log: outputLog(dir, consumer), closed: make(chan struct{})}
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
func (o *output) begin() { o.copy = pipe.Start(o.reader, o) }

// Write is for the copying.
func (o *output) Write(p []byte) (int, error) {
	o.bytes += int64(len(p))
	if _, err := os.Stat(o.dir); err == nil { // lumberjack would bring a deleted thread back
		_, _ = o.log.Write(p) // a full disk must not stop the handler
	}
	return len(p), nil
}

// close writes what the handler has printed and closes the log. A process that
// the handler left behind may have the pipe open for ever, so the end of the
// pipe is not waited for. That process gets SIGPIPE or EPIPE when it prints later.
func (o *output) close() {
	defer close(o.closed)
	if o.copy == nil {
		o.writer.Close()
		o.reader.Close()
	} else {
		o.copy.Close()
	}
	o.log.Close()
	// Otherwise the log has not been rotated.
	if info, err := os.Stat(o.log.Filename); err == nil && info.Size() <= o.bytes {
		removeCopies(o.log.Filename, outputCopies)
	}
}

// awaitClosed waits for an end of the copying that is near.
func (o *output) awaitClosed() {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-o.closed:
	case <-timer.C:
	}
}

// removeCopies removes all but the newest of the rotated copies of a log. lumberjack
// does so on a goroutine that no process can wait for, and this process may end before.
func removeCopies(path string, keep int) {
	prefix := strings.TrimSuffix(filepath.Base(path), ".log") + "-"
	entries, _ := os.ReadDir(filepath.Dir(path)) // by name, so the oldest first
	var copies []string
	for _, e := range entries {
		at, ours := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".log"), prefix)
		if _, err := time.Parse(lumberjackTime, at); ours && err == nil {
			copies = append(copies, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	for _, name := range copies[:max(len(copies)-keep, 0)] {
		_ = os.Remove(name) // it may be gone
	}
}

// lumberjackTime is how lumberjack names a copy.
const lumberjackTime = "2006-01-02T15-04-05.000"

const (
	// keepUnsubscribed is how long the files of a consumer stay after it was unsubscribed.
	keepUnsubscribed = 7 * 24 * time.Hour
	forgetEvery      = 24 * time.Hour
	// goneEnding is of an empty file in run/ that is made when the consumer is first seen
	// to be unsubscribed.
	goneEnding = ".gone"
)

// Endings of a consumer's files in run/. The locks are also taken by programs that have not
// read the subscription.
var (
	lockEndings = []string{".lock", ".busy", ".tree", ".turn", ".feed"}
	runEndings  = append([]string{".json", ".popped", goneEnding}, lockEndings...)
)

// subscribedNames returns the names of the files of subscribed consumers, in lower case, as
// some directories do not tell the cases apart.
func (r *dispatcher) subscribedNames(ctx context.Context) (map[string]bool, error) {
	info, err := r.t.Info(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range info.Subscriptions {
		names[strings.ToLower(lock.Name(info.Subscriptions[i].Consumer))] = true
	}
	return names, nil
}

// consumerFiles returns the names of which there are files, without endings.
func (r *dispatcher) consumerFiles() (names []string) {
	entries, _ := os.ReadDir(r.run)
	for _, e := range entries {
		ending := filepath.Ext(e.Name())
		if slices.Contains(runEndings, ending) && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, strings.TrimSuffix(e.Name(), ending))
		}
	}
	entries, _ = os.ReadDir(filepath.Dir(OutputPath(r.t.Dir(), "c")))
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".log")
		if !ok {
			continue
		}
		at := name[max(0, len(name)-len(lumberjackTime)):]
		if _, err := time.Parse(lumberjackTime, at); err != nil {
			names = append(names, name) // no copy of another log
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// remove removes the files of a consumer for which no process works, and reports whether it
// did.
func (r *dispatcher) remove(name string) bool {
	logs := filepath.Dir(OutputPath(r.t.Dir(), "c"))
	locks := []string{filepath.Join(logs, name+".run")}
	for _, ending := range lockEndings {
		locks = append(locks, filepath.Join(r.run, name+ending))
	}
	for _, path := range locks {
		l, err := lock.Try(path, lock.Exclusive)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the directory of logs
			return false
		}
		defer release(l)
	}
	output := filepath.Join(logs, name+".log")
	removeCopies(output, 0)
	_ = os.Remove(output)
	for _, ending := range runEndings {
		_ = os.Remove(filepath.Join(r.run, name+ending))
	}
	_ = os.Remove(locks[0])
	return true
}
