package consume

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/command"
	"thread/internal/duration"
	"thread/internal/pipe"
)

// workers are programs that are started once, one in each slot, read one event per
// line on stdin, as JSON, and write one result per line on stdout:
//
//	{"id":7,"ok":true}
//	{"id":7,"error":"no such user"}              counts an attempt
//	{"id":7,"error":"no such user","dead":true}  makes a dead letter at once
//	{"id":7,"delay":"5s"}                        tried again later, nothing is counted
//
// A worker has one event at a time. One that dies, or writes anything else, fails its
// own event and is started again with back-off.
type workers struct {
	r     *run
	slots []worker
	over  chan struct{} // closed: no caller waits for a start any more
	once  sync.Once
	all   sync.WaitGroup
}

type worker struct {
	process *command.Process // nil: there is none
	in      io.WriteCloser
	stdout  *os.File
	out     *bufio.Reader // of stdout
	err     *stderr
	line    []byte // memory for a line
	append  func(b []byte, e *event.Event) []byte
	pause   time.Duration // before the next start
}

// keptLine is up to which length the memory for a line is used again.
const keptLine = 64 << 10

func newWorkers(r *run, n int) *workers {
	return &workers{r: r, slots: make([]worker, n), over: make(chan struct{})}
}

func (w *workers) run(slot int, d *engine.Delivery, turn Turn) (result engine.Result, rest func(), err error) {
	w.all.Add(1)
	defer w.all.Done()
	s := &w.slots[slot]
	if s.process == nil {
		if err := s.start(w.r, turn); err != nil {
			return engine.Result{}, nil, err
		}
	}
	testPoint("running")
	traced := w.r.begin(d)
	said := s.err
	until, over := w.r.until(turn, s.process)
	gone := make(chan struct{})
	process := s.process
	stop := context.AfterFunc(until, func() {
		defer close(gone)
		process.End()
	})
	result, err = s.ask(d)
	if !stop() {
		<-gone
	}
	over()
	if err == nil {
		s.pause = 0
		if result.Verdict == engine.Failed || result.Verdict == engine.Rejected {
			result.Error = said.said(result.Error)
		}
		traced.end(&result)
		return result, nil, nil
	}
	state := s.kill(w.r)
	result = engine.Result{Verdict: engine.Failed, ExitCode: -1, Error: err.Error()}
	if errors.Is(err, errEnded) {
		result.Error, result.ExitCode = "the worker ended without a result: "+state, -1
		if (state == killedByInterrupt || state == "exit 130") && w.r.Signals.interrupted() {
			result.Verdict = engine.Returned
		}
	}
	if w.r.isLost() {
		result.Verdict = engine.Returned
	}
	result.Error = said.said(result.Error)
	traced.end(&result)
	w.r.leave(said)
	s.pause = min(max(firstPause, 2*s.pause), longestPause)
	return result, func() {
		timer := time.NewTimer(s.pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.over:
		}
	}, nil
}

func (s *worker) start(r *run, turn Turn) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrCommand, err)
		}
	}()
	if s.err, err = r.newStderr(); err != nil {
		return err
	}
	defer s.err.Started()
	stdin, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		in.Close()
		return err
	}
	defer writer.Close()
	spec := r.spec(turn, r.baseEnvironment())
	spec.Stdin, spec.Stdout, spec.Stderr = stdin, writer, s.err.Writer
	p, err := command.Start(spec)
	if err != nil {
		in.Close()
		reader.Close()
		r.leave(s.err)
		return err
	}
	s.process, s.in, s.stdout, s.append = p, in, reader, r.AppendEvent
	s.out = bufio.NewReaderSize(pipe.UntilStopped(reader), 64<<10)
	// What the worker has left behind may have its stdin and its stdout for as long as
	// it likes: once the worker has ended, nothing waits for either.
	go func() {
		<-p.Ended()
		pipe.Stop(reader)
		in.Close()
	}()
	r.Signals.attach(p.Process)
	return nil
}

var errEnded = errors.New("the worker ended")

// ask gives an event to the worker and returns its answer. After an error the worker
// is of no use any more.
func (s *worker) ask(d *engine.Delivery) (engine.Result, error) {
	e := &d.Events[0]
	s.err.forget()
	if cap(s.line) > keptLine {
		s.line = nil
	}
	s.line = append(s.append(s.line[:0], e), '\n')
	// A worker that prints before it has read a long event is not waited for. One that
	// has ended is noticed when its answer is read.
	given := make(chan struct{})
	go func() {
		defer close(given)
		_, _ = s.in.Write(s.line)
	}()
	result, err := s.answer(e.ID)
	if err != nil {
		s.in.Close()
	}
	<-given
	return result, err
}

// answer reads what the worker answers to the event.
func (s *worker) answer(id int64) (engine.Result, error) {
	var line []byte
	for {
		part, err := s.out.ReadSlice('\n')
		if err == nil && line == nil {
			line = part // valid until the next is read
			break
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return engine.Result{}, errEnded
		}
		if len(line) > maxLineBytes {
			return engine.Result{}, fmt.Errorf("the worker wrote a line of more than %d bytes, not a result", maxLineBytes)
		}
	}
	return parseAnswer(line, id)
}

// answerLine is a line that a worker writes.
type answerLine struct {
	ID    *int64  `json:"id"`
	OK    bool    `json:"ok"`
	Error *string `json:"error"`
	Dead  bool    `json:"dead"`
	Delay *string `json:"delay"`
}

// isOK reports whether a line is the answer that is nearly every one, with or without a
// space behind colon and comma.
func isOK(line []byte, id int64) bool {
	var number [20]byte
	for _, part := range [...][]byte{[]byte(`{"id":`), strconv.AppendInt(number[:0], id, 10), []byte(`,`), []byte(`"ok":`), []byte(`true}`)} {
		rest, found := bytes.CutPrefix(bytes.TrimPrefix(line, []byte(" ")), part)
		if !found {
			return false
		}
		line = rest
	}
	return len(bytes.TrimSpace(line)) == 0
}

func parseAnswer(line []byte, id int64) (r engine.Result, err error) {
	if isOK(line, id) {
		return engine.Result{Verdict: engine.Succeeded}, nil
	}
	var a answerLine
	refuse := func(why string) error {
		shown := strings.TrimSpace(string(line))
		if len(shown) > 100 {
			shown = shown[:100] + "…"
		}
		return fmt.Errorf("the worker wrote %q, which is not a result: %s", shown, why)
	}
	if json.Unmarshal(line, &a) != nil {
		return r, refuse(`a line such as {"id":7,"ok":true} is`)
	}
	given := 0
	for _, is := range []bool{a.OK, a.Error != nil, a.Delay != nil} {
		if is {
			given++
		}
	}
	switch {
	case a.ID == nil || *a.ID != id:
		return r, refuse(fmt.Sprintf("it has event %d", id))
	case given != 1 || a.Dead && a.Error == nil:
		return r, refuse("it has one of ok, error and delay, and dead only with error")
	case a.OK:
		return engine.Result{Verdict: engine.Succeeded}, nil
	case a.Delay != nil:
		delay, err := duration.Parse(*a.Delay)
		if err != nil || delay <= 0 {
			return r, refuse("the delay is a duration such as 5s")
		}
		return engine.Result{Verdict: engine.Deferred, ExitCode: -1, Error: "delayed by " + *a.Delay, Delay: min(delay, MaxWorkerDelay)}, nil
	}
	r = engine.Result{Verdict: engine.Failed, ExitCode: -1, Error: *a.Error}
	if r.Error == "" {
		r.Error = "error"
	}
	if a.Dead {
		r.Verdict = engine.Rejected
	}
	return r, nil
}

// MaxWorkerDelay bounds the delay that a worker may ask for.
const MaxWorkerDelay = 24 * time.Hour

// kill ends a worker that is of no use any more, and says how it ended.
func (s *worker) kill(r *run) string {
	s.in.Close()
	// What wrote something that is not a result is not asked twice.
	timer := time.AfterFunc(killGrace, s.process.Kill)
	defer timer.Stop()
	return s.wait(r)
}

// killGrace lets a worker whose stdout is closed end by itself, so that its own exit
// code is known.
const killGrace = 200 * time.Millisecond

func (s *worker) wait(r *run) string {
	x := s.process.Wait(context.Background())
	s.stdout.Close()
	r.Signals.detach(s.process.Process)
	s.process = nil
	return x.Text()
}

func (w *workers) stop() { w.once.Do(func() { close(w.over) }) }

// end lets the workers end: their stdin is closed.
func (w *workers) end() {
	w.stop()
	w.all.Wait()
	var ending sync.WaitGroup
	for i := range w.slots {
		if s := &w.slots[i]; s.process != nil {
			ending.Go(func() {
				s.in.Close()
				late := time.AfterFunc(endGrace, s.process.End)
				go func(out io.Reader) { _, _ = io.Copy(io.Discard, out) }(s.out)
				s.wait(w.r)
				late.Stop()
				w.r.leave(s.err)
			})
		}
	}
	ending.Wait()
}
