package spans

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"thread/internal/programs"
)

const (
	// maxWaiting is how many spans wait for the exporting program at most. Further ones
	// are dropped and counted: a delivery never waits for a trace.
	maxWaiting = 4096
	// closeTime bounds how long Close waits until the program has taken what waits.
	closeTime = 2 * time.Second
)

// Ready is what the exporting program prints when it takes spans.
const Ready = "ready"

// Sink passes spans to the program that exports them, each as a line of JSON. The program
// lives until it has exported what it got, also when this process is killed.
type Sink struct {
	spans   chan Span
	ended   chan struct{}
	dropped atomic.Int64

	mu     sync.Mutex
	closed bool
}

// RefusedError is the error of an exporting program that did not start.
type RefusedError struct {
	Code      int // its exit code
	What, Fix string
}

func (e *RefusedError) Error() string { return e.What + " - " + e.Fix }

// Open starts the exporting program for an OTLP endpoint. With thread, the program also
// exports the runs that are recorded in the thread at that address. It returns a [*RefusedError] with
// what the program says.
func Open(endpoint, thread string) (*Sink, error) {
	name := programs.Serve
	if strings.Contains(thread, "://") {
		name = programs.Net
	}
	path := programs.Find(name)
	if path == "" {
		path = programs.Thread() // in one file with the others, or it says what is missing
	}
	if path == "" {
		return nil, &RefusedError{1, "the exporter of traces is the program " + name + ", which is not installed", "install the package thread"}
	}
	args := []string{"serve", "--spans", "--otlp", endpoint}
	if thread != "" {
		args = append(args, "--thread", thread)
	}
	cmd := exec.Command(path, args...)
	// In a separate session, Ctrl-C does not end it, and without the variables of a run it
	// is not taken for a part of the run.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "THREAD_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != Ready+"\n" {
		in.Close()
		_ = cmd.Wait()
		text, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		what, fix, _ := strings.Cut(strings.TrimPrefix(text, "Error: "), " - ")
		return nil, &RefusedError{max(1, cmd.ProcessState.ExitCode()), what, fix}
	}
	s := &Sink{spans: make(chan Span, maxWaiting), ended: make(chan struct{})}
	go func() { _ = cmd.Wait() }()
	go s.write(in)
	return s, nil
}

func (s *Sink) write(in io.WriteCloser) {
	defer close(s.ended)
	w := bufio.NewWriter(in)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for span := range s.spans {
		err := enc.Encode(&span)
		if err == nil && len(s.spans) == 0 {
			err = w.Flush()
		}
		if err != nil { // the program was killed
			s.dropped.Add(1)
		}
	}
	_ = errors.Join(w.Flush(), in.Close())
}

// Send passes spans on, except those that are not to be kept. It never waits. A nil Sink
// takes nothing.
func (s *Sink) Send(list ...Span) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range list {
		if span.Unkept {
			continue
		}
		if s.closed {
			s.dropped.Add(1)
			continue
		}
		select {
		case s.spans <- span:
		default:
			s.dropped.Add(1)
		}
	}
}

// Close ends the sink. It returns an error that says how many spans were dropped, nil for
// none.
func (s *Sink) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.spans)
	}
	s.mu.Unlock()
	select {
	case <-s.ended:
	case <-time.After(closeTime):
		s.dropped.Add(int64(len(s.spans)))
	}
	if n := s.dropped.Load(); n > 0 {
		return fmt.Errorf("%d spans of traces are dropped: the exporter did not take them", n)
	}
	return nil
}
