//go:build linux

package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// call is a held call.
type call struct {
	notification
	p      *process
	name   string
	object string // the file, below the directory of the schedule; "" for others
	how    string // of a flock: EX, SH, UN
	since  int    // the step before which it was held
	text   string // as a trace has it
}

func (c *call) String() string { return c.text }

// process is a program of the schedule. The one with the highest priority goes first.
type process struct {
	pid      int
	name     string // with the order in which it came
	product  bool   // not a shell or what it runs
	root     bool   // started by the scenario
	held     []*call
	calls    int            // on files of the thread, until now
	made     map[string]int // of them, how many have this text
	priority float64
	hurt     bool // killed, or a call of it has failed
	server   bool // ended by the scenario
	asked    bool // to end
	lastStep int
	status   syscall.WaitStatus
	ended    bool
	ending   bool // it was killed, or exits
	gone     bool // no thread of it is left
	suspect  bool // another program may have killed it
	threads  []thread
	tasks    *os.File      // the directory of threads
	monitor  int           // schedstat of the second thread
	rested   time.Duration // computed when all threads were last seen at rest
}

// Limits of a schedule that does not come to rest.
const (
	settleTime = 50 * time.Millisecond  // a server may have short timers
	retryTime  = 550 * time.Millisecond // a failed handler is retried after 50 ms, see shortDelay
	restTime   = time.Minute            // without a call of any program
	mostSteps  = 20000
	slow       = 3500 * time.Millisecond // then limits of the programs, such as "busy" after 4 s, may have passed
	pause      = 50 * time.Microsecond   // between two looks at what runs, at first
	longPause  = time.Millisecond        // later
)

// schedule runs programs in one order.
type schedule struct {
	*launcher
	seed uint64
	dir  string
	plan plan

	byThread  map[uint32]*process
	processes []*process
	ordinals  map[string]int
	switches  int         // left
	born      map[int]int // by parent: processes that were made and have made no call
	trace     []string
	faults    int  // done
	failed    bool // a call of a program
	unsynced  []write
	clock     clock
	monitors  []notification // questions for the time that are not answered yet
	jump      time.Duration  // of the fault
	idle      func() bool    // nothing is left for a server to do
	windows   []window
	lastCall  time.Time
	isSlow    bool // judged as after a crash
}

// plan is what a seed chooses before the first step.
type plan struct {
	switches  int     // how many there may be, in favor of another process that could run
	switching float64 // chance of a switch at a call of weight 1
	fault     string
	chance    float64 // of the fault before each call
	victim    string  // of a kill, "" for any program
	focus     string  // files whose calls count most, by the beginning of their names
	back      bool    // a process that was left comes last from then on
}

func newSchedule(l *launcher, dir string, seed uint64, faults bool, sc *scenario) *schedule {
	s := &schedule{clock: newClock(), launcher: l, dir: dir, windows: slices.Clone(sc.windows), seed: seed, byThread: map[uint32]*process{}, ordinals: map[string]int{}, born: map[int]int{}}
	random := s.draw("plan")
	s.plan = plan{
		switches:  1 + random.IntN(5),
		switching: []float64{0.5, 0.2, 0.1, 0.04, 0.02}[random.IntN(5)],
		focus:     []string{"", "run/", "events."}[random.IntN(3)],
		back:      random.IntN(4) > 0,
	}
	if s.switches = s.plan.switches; faults {
		s.planFault(sc, random)
	}
	return s
}

// draw returns random numbers for one question. They depend on the seed and the question alone:
// a program that looks once more while it waits changes no choice at another call.
func (s *schedule) draw(question string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(question))
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

// drawAt is draw for a question about a call.
func (s *schedule) drawAt(question string, c *call) *rand.Rand {
	return s.draw(question + c.text + strconv.Itoa(c.p.made[c.text]))
}

// start starts a program of the scenario.
func (s *schedule) start(name string, args ...string) error {
	s.requests <- args
	for {
		select {
		case r := <-s.started:
			if r.err != nil {
				return r.err
			}
			p := s.processOf(uint32(r.pid))
			if p.name == "" { // it has made no call yet
				s.setName(p, name)
			}
			p.server = name == "serve"
			if p.root, p.product = true, true; s.draw("late "+p.name).IntN(3) == 0 {
				p.priority -= 4 // it comes when all others are done, or after a switch
			}
			return nil
		default:
			s.take(pause)
		}
	}
}

func (s *schedule) setName(p *process, name string) {
	s.ordinals[name]++
	p.name = fmt.Sprintf("%s.%d", name, s.ordinals[name])
	p.priority = s.draw("priority " + p.name).Float64()
}

// stuckError is a schedule in which nothing happens any more, and that has not ended.
type stuckError struct{ why string }

func (e stuckError) Error() string { return e.why }

// run runs until every program has ended.
func (s *schedule) run() error {
	s.lastCall = time.Now()
	defer func() {
		s.isSlow = s.passed() > slow
		for _, p := range s.processes { // not all are children of this process
			p.forget()
		}
	}()
	var current *process
	wait, idle := pause, longPause
	for len(s.trace) < mostSteps {
		for s.take(0) {
		}
		if !s.rest(current) {
			if time.Since(s.lastCall) > restTime {
				return stuckError{"a program computes for ever"}
			}
			if s.take(wait) {
				wait = pause
				continue
			}
			wait = min(wait*3/2, longPause)
			s.answerMonitors()
			continue
		}
		wait = pause
		c := s.choose(current)
		if c == nil {
			s.clock.sleep()
			if !s.reap() {
				return nil
			}
			s.endServers()
			if time.Since(s.lastCall) > restTime {
				return stuckError{"programs wait, and nothing wakes them"}
			}
			s.answerMonitors()
			s.await(idle)
			idle = min(2*idle, 10*longPause)
			continue
		}
		idle = longPause
		s.clock.wake()
		s.lastCall = time.Now()
		current = c.p
		s.release(c)
		s.take(pause)
	}
	return stuckError{"the programs do not come to rest"}
}

// take receives one call, and answers it at once if it does not concern the thread.
func (s *schedule) take(wait time.Duration) bool {
	var n notification
	if !s.receive(&n, wait) {
		return false
	}
	c := &call{notification: n, name: held[n.nr]}
	tid := int(n.tid)
	own := true
	switch c.name {
	case "clone":
		s.born[s.processOf(n.tid).pid]++
		own = false
	case "getaffinity": // before the Go runtime seeds the orders of its maps, of select and of its run queues
		p := s.processOf(n.tid)
		if p.name == "" {
			s.nameOf(p)
		}
		s.fixRandom(tid, p.name)
		s.askKernel(tid)
		own = false
	case "gettime":
		if s.isMonitor(n.tid) {
			s.monitors = append(s.monitors, n)
		} else {
			s.answerTime(&n)
		}
		return true
	case "execve":
		s.processOf(n.tid).forget()
		own = false
	case "openat":
		c.object, own = s.below(readString(tid, n.args[1]))
	case "renameat", "linkat":
		c.object, own = s.below(readString(tid, n.args[3]))
	case "unlinkat":
		c.object, own = s.below(readString(tid, n.args[1]))
	case "flock", "fsync", "fdatasync", "pwrite", "write", "ftruncate":
		path, _ := os.Readlink("/proc/" + strconv.Itoa(tid) + "/fd/" + strconv.FormatUint(n.args[0], 10))
		c.object, own = s.below(strings.TrimSuffix(path, " (deleted)"))
		if c.name == "flock" {
			c.how = [16]string{1: "SH", 2: "EX", 8: "UN"}[n.args[1]&11]
		}
	case "exit":
		p := s.processOf(n.tid)
		own = p.name != "" // else it may be a child that its parent waits for before it continues
		p.ending = !own
	case "connect":
	case "kill":
		own = n.args[1] != 0 && n.args[1] != uint64(unix.SIGURG)
	default:
		own = false
	}
	if !own {
		s.send(answer{id: n.id, flags: keepCall})
		return true
	}
	if c.p = s.processOf(n.tid); c.p.name == "" {
		s.nameOf(c.p)
	}
	c.p.calls++
	c.since, c.text = len(s.trace), strings.TrimSpace(fmt.Sprintf("%-10s %s %s %s", c.p.name, c.name, c.object, c.how))
	c.p.held = append(c.p.held, c)
	if len(c.p.held) > 1 { // in an order that does not depend on which thread was faster
		slices.SortStableFunc(c.p.held, func(a, b *call) int {
			return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.text, b.text))
		})
	}
	return true
}

// below returns the name of a file in the thread, or in one that is restored, without what is
// random in it.
func (s *schedule) below(path string) (string, bool) {
	path, ok := strings.CutPrefix(path, s.dir+"/")
	name, thread := strings.CutPrefix(path, "t/")
	if !ok || !thread && path != "r" && !strings.HasPrefix(path, "r/") && !strings.HasPrefix(path, "r.") ||
		strings.HasSuffix(name, "logs/thread.log") || strings.Contains(name, "..") {
		return "", false
	}
	return randomNames.ReplaceAllString(name, "*"), true
}

var randomNames = regexp.MustCompile(`[0-9]*-?[0-9a-f]{32}|restoring-[0-9]+`)

// processOf returns the process that a thread belongs to.
func (s *schedule) processOf(tid uint32) *process {
	if p := s.byThread[tid]; p != nil {
		return p
	}
	proc := "/proc/" + strconv.Itoa(int(tid))
	status, _ := os.ReadFile(proc + "/status")
	number := func(field string) int {
		_, rest, _ := strings.Cut(string(status), "\n"+field+":\t")
		text, _, _ := strings.Cut(rest, "\n")
		n, _ := strconv.Atoi(text)
		return n
	}
	pid := uint32(cmp.Or(number("Tgid"), int(tid)))
	p := s.byThread[pid]
	if p == nil {
		p = &process{pid: int(pid), made: map[string]int{}}
		s.processes = append(s.processes, p)
		s.byThread[pid] = p
		parent := number("PPid")
		if s.born[parent]--; s.born[parent] <= 0 {
			delete(s.born, parent)
		}
	}
	s.byThread[tid] = p
	return p
}

// nameOf names a process by its command, which it has when it makes its first call.
func (s *schedule) nameOf(p *process) {
	line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline")
	args := strings.Split(string(line), "\x00")
	name := args[0][strings.LastIndexByte(args[0], '/')+1:]
	if p.product = strings.HasPrefix(name, "thread"); p.product && len(args) > 2 {
		if name = args[1]; name == "supervise" {
			name = args[2]
		}
	}
	s.setName(p, name)
}

// reap collects programs that have ended, and reports whether one is left.
func (s *schedule) reap() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return false
		case pid == 0:
			return true
		default:
			if p := s.byThread[uint32(pid)]; p != nil {
				p.ended, p.status = true, status
				p.held = nil
				p.forget()
			}
		}
	}
}
