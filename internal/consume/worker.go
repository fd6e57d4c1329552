package consume

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"thread/engine"
	"thread/internal/duration"
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
	over  chan struct{} // closed: nobody waits for a start any more
	once  sync.Once
	all   sync.WaitGroup
}

type worker struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	pause time.Duration // before the next start
}

const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	maxLineBytes = 1 << 20
	// endGrace is how long a worker may take to end once its stdin is closed, and
	// again once it was asked with SIGTERM.
	endGrace = 5 * time.Second
)

func newWorkers(r *run, n int) *workers {
	return &workers{r: r, slots: make([]worker, n), over: make(chan struct{})}
}

func (w *workers) run(slot int, d engine.Delivery, ended func(engine.Result, error), free func()) {
	w.all.Add(1)
	defer w.all.Done()
	defer free()
	s := &w.slots[slot]
	if s.cmd == nil {
		if err := s.start(w.r); err != nil {
			ended(engine.Result{}, err)
			return
		}
	}
	testPoint("running")
	result, err := s.ask(&d)
	if err == nil {
		s.pause = 0
		ended(result, nil)
		return
	}
	state := s.kill(w.r)
	result = engine.Result{Verdict: engine.Failed, ExitCode: -1, Error: err.Error()}
	if errors.Is(err, errEnded) {
		result.Error, result.ExitCode = "the worker ended without a result: "+state, -1
		if (state == killedByInterrupt || state == "exit 130") && w.r.Signals.interrupted() {
			result.Verdict = engine.Returned
		}
	}
	ended(result, nil)
	s.pause = min(max(firstPause, 2*s.pause), longestPause)
	timer := time.NewTimer(s.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.over:
	}
}

func (s *worker) start(r *run) (err error) {
	cmd := exec.Command(r.Command[0], r.Command[1:]...)
	cmd.Stderr, cmd.Env = r.Stderr, r.baseEnvironment()
	if s.in, err = cmd.StdinPipe(); err == nil {
		var out io.ReadCloser
		if out, err = cmd.StdoutPipe(); err == nil {
			s.out = bufio.NewReaderSize(out, 64<<10)
			err = cmd.Start()
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCommand, err)
	}
	s.cmd = cmd
	r.Signals.attach(cmd.Process)
	return nil
}

var errEnded = errors.New("the worker ended")

// ask gives an event to the worker and returns its answer. After an error the worker
// is of no use any more.
func (s *worker) ask(d *engine.Delivery) (engine.Result, error) {
	e := &d.Events[0]
	// A worker that has ended is noticed when its answer is read.
	_, _ = s.in.Write(append(e.AppendJSON(make([]byte, 0, len(e.Content)+256)), '\n'))
	var line []byte
	for {
		part, err := s.out.ReadSlice('\n')
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
	return parseAnswer(line, e.ID)
}

// answer is a line that a worker writes.
type answer struct {
	ID    *int64  `json:"id"`
	OK    bool    `json:"ok"`
	Error *string `json:"error"`
	Dead  bool    `json:"dead"`
	Delay *string `json:"delay"`
}

func parseAnswer(line []byte, id int64) (r engine.Result, err error) {
	var a answer
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
	// What wrote something that is no result is not asked twice.
	timer := time.AfterFunc(killGrace, func() { _ = s.cmd.Process.Kill() })
	state := s.wait(r)
	timer.Stop()
	return state
}

// killGrace lets a worker whose stdout is closed end by itself, so that its own exit
// code is known.
const killGrace = 200 * time.Millisecond

func (s *worker) wait(r *run) string {
	_ = s.cmd.Wait()
	r.Signals.detach(s.cmd.Process)
	state := s.cmd.ProcessState
	s.cmd = nil
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return killedBy(w.Signal())
	}
	return fmt.Sprintf("exit %d", state.ExitCode())
}

func (w *workers) stop() { w.once.Do(func() { close(w.over) }) }

// end lets the workers end: their stdin is closed.
func (w *workers) end() {
	w.stop()
	w.all.Wait()
	var ending sync.WaitGroup
	for i := range w.slots {
		if s := &w.slots[i]; s.cmd != nil {
			ending.Go(func() {
				s.in.Close()
				timer := time.AfterFunc(endGrace, func() {
					s.cmd.Process.Signal(syscall.SIGTERM)
					time.AfterFunc(endGrace, func() { _ = s.cmd.Process.Kill() })
				})
				defer timer.Stop()
				_, _ = io.Copy(io.Discard, s.out)
				s.wait(w.r)
			})
		}
	}
	ending.Wait()
}
