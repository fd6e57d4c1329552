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

	"thread/lock"
)

// guardian keeps a guard beside this process: one that holds the other end of a
// link and takes over when that ends without a word. A guard that dies is
// replaced, so that of the two, either may be killed.
type guardian struct {
	args []string // of the guard, without its parent's id
	warn func(format string, args ...any) error
	note func(format string, args ...any) error

	mu      sync.Mutex
	link    *link         // nil: no guard
	dirs    []string      // what every guard is told when it starts
	runs    []*guardedRun // those that are under way: the same
	leaving bool          // this process is done
	gone    chan struct{} // closed when the last guard has been waited for
}

// guardedRun is what a guard is told of a run. It gets the pipe that the handler
// prints into: were nobody left to read it, the handler would die of its next line.
type guardedRun struct {
	Dir      string `json:"dir"`
	Consumer string `json:"consumer"`
	RunID    string `json:"run_id"`
	output   *os.File
}

// newGuardian guards a supervisor of the room.
func newGuardian(r *room) *guardian {
	return &guardian{warn: r.log.Warn, note: r.log.Debug, gone: make(chan struct{}),
		args: []string{superviseVerb, modeGuard, "-thread", r.t.Dir(), "-max", strconv.Itoa(r.max), "-takeovers", strconv.Itoa(r.takeovers)}}
}

// start starts the first guard, before anything is done that would have to be
// taken over.
func (g *guardian) start() {
	cmd, err := g.launch()
	go g.keep(cmd, err)
}

// keep replaces the guard until the supervisor is done.
func (g *guardian) keep(cmd *exec.Cmd, err error) {
	defer close(g.gone)
	for ; err == nil && cmd != nil; cmd, err = g.launch() {
		_ = waitChild(cmd) // however it ended
		g.mu.Lock()
		g.link.close()
		g.link = nil
		g.mu.Unlock()
	}
	if err != nil {
		_ = g.warn("supervise: no guard: %v", err)
	}
}

// launch starts a guard; it returns nil when none is needed any more.
func (g *guardian) launch() (*exec.Cmd, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving {
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
	cmd := exec.Command(exe, append(slices.Clone(g.args), "-parent", strconv.Itoa(os.Getpid()))...)
	cmd.Stdin = theirs
	leaveRun(cmd)
	detach(cmd)
	if err := startChild(cmd); err != nil {
		l.close()
		return nil, err
	}
	g.link = l
	_ = g.note("supervise: guarded by pid=%d", cmd.Process.Pid)
	// A guard that has died meanwhile has a successor, which is told all of it.
	for _, dir := range g.dirs {
		_ = l.send(dir, nil)
	}
	for _, run := range g.runs {
		_ = l.send(run.text(), run.output)
	}
	return cmd, nil
}

func (r *guardedRun) text() string {
	text, _ := json.Marshal(r) // strings and a number
	return string(begunRun) + string(text)
}

// add tells the guard, and every later one, of a directory.
func (g *guardian) add(dir string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dirs = append(g.dirs, dir)
	if g.link != nil {
		_ = g.link.send(dir, nil)
	}
}

// began tells the guard of a run, and ended, which is to be called before the
// output is closed, that there is nothing to be done for it any more.
func (g *guardian) began(run *guardedRun) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs = append(g.runs, run)
	if g.link != nil {
		_ = g.link.send(run.text(), run.output)
	}
}

func (g *guardian) ended(run *guardedRun) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs = slices.DeleteFunc(g.runs, func(r *guardedRun) bool { return r == run })
	if g.link != nil {
		_ = g.link.send(string(endedRun)+run.RunID, nil)
	}
}

// dismiss tells the guard that there is nothing to take over, and waits for its
// end. A guard that cannot be told is not waited for: it looks when this process
// has ended.
func (g *guardian) dismiss() {
	g.mu.Lock()
	g.leaving = true
	var err error
	if g.link != nil {
		err = g.link.sendByte(dismissed)
	}
	g.mu.Unlock()
	if err == nil {
		<-g.gone
	}
}

// What a guard is told: the path of a directory, or something that begins with one
// of these, each ended by a zero byte; and a single byte that tells it to go. The
// guard of a program that knows the byte only is told the same; it ends with the
// supervisor and looks.
const (
	begunRun  = '+' // a guardedRun follows; its output comes with the first byte
	endedRun  = '-' // its id follows
	dismissed = 'q'
)

// told is what a guard has been told.
type told struct {
	dirs []string
	runs map[string]*guardedRun
	rest []byte
	fds  []*os.File
}

// readTold reads until the link ends, or until the guard is told to go.
func readTold(read func(p []byte) (int, []*os.File, error)) (t told, goes bool, err error) {
	t.runs = map[string]*guardedRun{}
	buf := make([]byte, 4096)
	for {
		n, fds, err := read(buf)
		if n <= 0 || err != nil {
			return t, false, err
		}
		t.rest, t.fds = append(t.rest, buf[:n]...), append(t.fds, fds...)
		for len(t.rest) > 0 {
			if t.rest[0] == dismissed {
				return t, true, nil
			}
			text, rest, whole := bytes.Cut(t.rest, []byte{0})
			if !whole {
				break
			}
			t.take(string(text))
			t.rest = rest
		}
	}
}

func (t *told) take(text string) {
	switch {
	case text == "":
	case text[0] == begunRun:
		run := &guardedRun{}
		if len(t.fds) > 0 {
			run.output, t.fds = t.fds[0], t.fds[1:]
		}
		if json.Unmarshal([]byte(text[1:]), run) == nil {
			t.runs[run.RunID] = run
		}
	case text[0] == endedRun:
		if run := t.runs[text[1:]]; run != nil {
			run.output.Close()
			delete(t.runs, run.RunID)
		}
	default:
		t.dirs = append(t.dirs, text)
	}
}

// parentPause is for systems on which awaitExit cannot tell.
const parentPause = 10 * time.Millisecond

// A supervisor that is killed again and again, wherever that is, must not keep a
// processor busy: after the first few in a row, who takes over waits, longer each
// time. A supervisor that lived for a while ends the row.
const (
	takeoversAtOnce  = 3
	takeoverPause    = 50 * time.Millisecond
	maxTakeoverPause = 5 * time.Second
	takeoverCalm     = 30 * time.Second
)

// pause returns how long the n-th takeover in a row waits.
func pause(n int) time.Duration {
	if n <= takeoversAtOnce {
		return 0
	}
	return min(maxTakeoverPause, takeoverPause<<min(n-takeoversAtOnce-1, 10))
}

// guard is the guard's side: it waits for the supervisor's word or its death. In
// the latter case it takes over, first of all the handlers that run.
func (r *room) guard(ctx context.Context, parent int) error {
	start := time.Now()
	told, goes, err := readTold(readLink)
	if goes {
		return nil
	}
	if err != nil {
		return err
	}
	adoptOrphans()
	outputs := r.keepOutputs(told.runs)
	awaitParent(parent)
	r.log.Warn("supervise: a supervisor was killed, taking over")
	if time.Since(start) > takeoverCalm {
		r.takeovers = 0
	}
	r.takeovers++
	s := newSupervisor(r) // model: takeover
	s.lost = told.of(r.t.Dir())
	err = s.work(ctx)
	outputs.Wait()
	return err
}

// of returns the consumers whose handlers run in the directory.
func (t *told) of(dir string) (list []string) {
	for _, run := range t.runs {
		if run.Dir == dir {
			list = append(list, run.Consumer)
		}
	}
	return list
}

// keepOutputs goes on with the copying of what the handlers of a killed supervisor
// print, until each has ended, whoever supervises it by then.
func (r *room) keepOutputs(runs map[string]*guardedRun) *sync.WaitGroup {
	var all sync.WaitGroup
	for _, run := range runs {
		if run.output == nil || run.Dir != r.t.Dir() {
			continue
		}
		o := &output{reader: run.output, log: outputLog(run.Dir, run.Consumer)}
		o.begin()
		if r.kept == nil {
			r.kept = map[string]*output{}
		}
		r.kept[run.RunID] = o
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
func (r *room) recordOf(run *guardedRun) *record {
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
		awaitExit(parent)
	}
	for os.Getppid() == parent {
		time.Sleep(parentPause)
	}
}
