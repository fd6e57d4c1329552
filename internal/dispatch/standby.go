package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"thread/internal/command"
	"thread/lock"
)

// standby is the supervisor's side of its standby process, which holds the other end
// of a link and takes over when that ends without msgStop. A standby that dies is
// replaced, so that, of the two, either may be killed.
type standby struct {
	args  []string // of the standby process, without its parent's id
	warn  func(format string, args ...any) error
	debug func(format string, args ...any) error

	tried chan struct{} // closed when the first one was started, or could not be

	mu       sync.Mutex
	link     *link         // nil: there is none
	dirs     []string      // what every standby is sent when it starts
	runs     []*standbyRun // those in progress: the same
	stopping bool          // this process is done
	exited   chan struct{} // closed when the last standby has been waited for
}

// standbyRun is what a standby knows of a run. It gets the pipe that the handler
// prints into: were no process left to read it, the handler would die of its next line.
type standbyRun struct {
	Dir      string `json:"dir"`
	Consumer string `json:"consumer"`
	RunID    string `json:"run_id"`
	output   *os.File
}

// newStandby returns the standby of a supervisor, not started yet.
func newStandby(r *dispatcher) *standby {
	return &standby{warn: r.log.Warn, debug: r.log.Debug, tried: make(chan struct{}), exited: make(chan struct{}),
		args: []string{superviseVerb, modeStandby, "-thread", r.t.Dir(), "-max", strconv.Itoa(r.max), "-takeovers", strconv.Itoa(r.takeovers)}}
}

// start begins to start the first one, and returns at once: to start a process takes
// about as long as to prepare a handler. A process that does what would have to be taken over
// awaits it before.
func (s *standby) start() {
	go func() {
		cmd, err := s.launch()
		close(s.tried)
		s.restart(cmd, err)
	}()
}

// await returns when the first standby has been started, or could not be, after a call
// of start.
func (s *standby) await() { <-s.tried }

// restart replaces the standby until the supervisor is done.
func (s *standby) restart(cmd *exec.Cmd, err error) {
	defer close(s.exited)
	for ; err == nil && cmd != nil; cmd, err = s.launch() {
		_ = waitChild(cmd) // however it ended
		s.mu.Lock()
		s.link.close()
		s.link = nil
		s.mu.Unlock()
	}
	if err != nil {
		_ = s.warn("supervise: no standby: %v", err)
	}
}

// launch starts a standby process; it returns nil when none is needed any more.
func (s *standby) launch() (*exec.Cmd, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, nil
	}
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	l, theirs, err := newLink()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(exe, append(slices.Clone(s.args), "-parent", strconv.Itoa(os.Getpid()))...)
	cmd.Stdin = theirs
	leaveRun(cmd)
	detach(cmd)
	if err := command.StartOwn(cmd); err != nil {
		l.close()
		return nil, err
	}
	s.link = l
	_ = s.debug("supervise: standby pid=%d", cmd.Process.Pid)
	// The standby may have died meanwhile: its successor is sent all of it.
	for _, dir := range s.dirs {
		_ = l.send(dir, nil)
	}
	for _, run := range s.runs {
		_ = l.send(run.text(), run.output)
	}
	return cmd, nil
}

func (r *standbyRun) text() string {
	text, _ := json.Marshal(r) // strings and a number
	return string(msgRunStarted) + string(text)
}

// addDir makes a directory known to the standby, and to every later one.
func (s *standby) addDir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs = append(s.dirs, dir)
	if s.link != nil {
		_ = s.link.send(dir, nil)
	}
}

// runStarted makes a run known to the standby. runEnded, which is to be called before
// the output is closed, says that there is nothing to be done for it any more.
func (s *standby) runStarted(run *standbyRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, run)
	if s.link != nil {
		_ = s.link.send(run.text(), run.output)
	}
}

func (s *standby) runEnded(run *standbyRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = slices.DeleteFunc(s.runs, func(r *standbyRun) bool { return r == run })
	if s.link != nil {
		_ = s.link.send(string(msgRunEnded)+run.RunID, nil)
	}
}

// stop ends the standby, as there is nothing to take over, and waits for its end. One
// that cannot be reached is not waited for: it looks when this process has ended.
func (s *standby) stop() {
	s.mu.Lock()
	s.stopping = true
	var err error
	if s.link != nil {
		err = s.link.sendByte(msgStop)
	}
	s.mu.Unlock()
	if err == nil {
		<-s.exited
	}
}

// The messages to a standby: the path of a directory, or something that begins with
// msgRunStarted or msgRunEnded, each ended by a zero byte; and msgStop, a single byte.
// The standby of an earlier version, which knows msgStop only, is sent the same; it
// ends with the supervisor and looks.
const (
	msgRunStarted = '+' // a standbyRun follows; its output comes with the first byte
	msgRunEnded   = '-' // its id follows
	msgStop       = 'q'
)

// standbyState is what a standby has been sent.
type standbyState struct {
	dirs     []string
	runs     map[string]*standbyRun
	unparsed []byte
	fds      []*os.File
}

// readState reads until the link ends, or msgStop comes.
func readState(read func(p []byte) (int, []*os.File, error)) (t standbyState, stop bool, err error) {
	t.runs = map[string]*standbyRun{}
	buf := make([]byte, 4096)
	for {
		n, fds, err := read(buf)
		if n <= 0 || err != nil {
			return t, false, err
		}
		t.unparsed, t.fds = append(t.unparsed, buf[:n]...), append(t.fds, fds...)
		for len(t.unparsed) > 0 {
			if t.unparsed[0] == msgStop {
				return t, true, nil
			}
			text, rest, whole := bytes.Cut(t.unparsed, []byte{0})
			if !whole {
				break
			}
			t.apply(string(text))
			t.unparsed = rest
		}
	}
}

func (t *standbyState) apply(text string) {
	switch {
	case text == "":
	case text[0] == msgRunStarted:
		run := &standbyRun{}
		if len(t.fds) > 0 {
			run.output, t.fds = t.fds[0], t.fds[1:]
		}
		if json.Unmarshal([]byte(text[1:]), run) == nil {
			t.runs[run.RunID] = run
		}
	case text[0] == msgRunEnded:
		if run := t.runs[text[1:]]; run != nil {
			run.output.Close()
			delete(t.runs, run.RunID)
		}
	default:
		t.dirs = append(t.dirs, text)
	}
}

// parentPause is for systems on which command.AwaitExit cannot tell.
const parentPause = 10 * time.Millisecond

// A supervisor that is killed again and again, wherever that is, must not keep a
// processor busy: after the first few in a row, who takes over waits, longer each
// time. A supervisor that lived for a while ends the row.
const (
	takeoversAtOnce  = 3
	takeoverPause    = 50 * time.Millisecond
	maxTakeoverPause = 5 * time.Second
	takeoverReset    = 30 * time.Second
)

// takeoverDelay returns how long the n-th takeover in a row waits.
func takeoverDelay(n int) time.Duration {
	if n <= takeoversAtOnce {
		return 0
	}
	return min(maxTakeoverPause, takeoverPause<<min(n-takeoversAtOnce-1, 10))
}

// runStandby is the standby process: it waits for msgStop or for the supervisor's
// death. In the latter case it takes over, first of all the handlers that run.
func (r *dispatcher) runStandby(ctx context.Context, parent int) error {
	start := time.Now()
	state, stop, err := readState(readLink)
	if stop {
		return nil
	}
	if err != nil {
		return err
	}
	adoptOrphans()
	outputs := r.copyOutputs(state.runs)
	awaitParent(parent)
	r.log.Warn("supervise: a supervisor was killed, taking over")
	if time.Since(start) > takeoverReset {
		r.takeovers = 0
	}
	r.takeovers++
	s := newSupervisor(r) // model: takeover
	s.lost = r.lostConsumers(&state)
	err = s.work(ctx)
	outputs.Wait()
	return err
}

// lostConsumers returns the consumers whose handlers have lost their supervisor, or had
// ended when it was killed and are not settled, by their records.
func (r *dispatcher) lostConsumers(state *standbyState) []string {
	list := state.consumersIn(r.t.Dir())
	for _, rec := range r.records() {
		if !slices.Contains(list, rec.Consumer) {
			list = append(list, rec.Consumer) // a claim finds out
		}
	}
	return list
}

// consumersIn returns the consumers whose handlers run in the directory.
func (t *standbyState) consumersIn(dir string) (list []string) {
	for _, run := range t.runs {
		if run.Dir == dir {
			list = append(list, run.Consumer)
		}
	}
	return list
}

// copyOutputs continues with the copying of what the handlers of a killed supervisor
// print, until each has ended, whichever process supervises it by then.
func (r *dispatcher) copyOutputs(runs map[string]*standbyRun) *sync.WaitGroup {
	var all sync.WaitGroup
	for _, run := range runs {
		if run.output == nil || run.Dir != r.t.Dir() {
			continue
		}
		o := newOutput(run.output, run.Dir, run.Consumer)
		o.begin()
		if r.inherited == nil {
			r.inherited = map[string]*output{}
		}
		r.inherited[run.RunID] = o
		all.Go(func() {
			if l := findLeader(r.recordOf(run)); l != nil {
				l.wait()
			}
			o.close()
		})
	}
	return &all
}

// recordOf returns the record of the run, if that is still what is under way.
func (r *dispatcher) recordOf(run *standbyRun) *record {
	f, err := os.Open(r.recordPath(run.Consumer))
	if err != nil {
		return &record{}
	}
	defer f.Close()
	if rec := readRecord(lock.FromFile(f)); rec != nil && rec.RunID == run.RunID {
		return rec
	}
	return &record{}
}

// awaitParent returns when the process that started this one has ended: the end
// of its pipe is not yet the end of its locks.
func awaitParent(parent int) {
	if os.Getppid() == parent {
		command.AwaitExit(parent)
	}
	for os.Getppid() == parent {
		time.Sleep(parentPause)
	}
}
