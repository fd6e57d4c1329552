package dispatch

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"thread/internal/planted"
)

// guardian keeps a guard beside this process: one that holds the other end of a
// pipe and takes over when the pipe ends without a word. A guard that dies is
// replaced, so that of the two, either may be killed.
type guardian struct {
	args []string // of the guard, without its parent's id
	warn func(format string, args ...any) error
	note func(format string, args ...any) error

	mu      sync.Mutex
	pipe    *os.File      // nil: no guard
	told    []byte        // what every guard is told when it starts
	leaving bool          // this process is done
	gone    chan struct{} // closed when the last guard has been waited for
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
		cmd.Wait()
		g.mu.Lock()
		g.pipe.Close()
		g.pipe = nil
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
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	cmd := exec.Command(exe, append(slices.Clone(g.args), "-parent", strconv.Itoa(os.Getpid()))...)
	cmd.Stdin = reader
	detach(cmd)
	if err := cmd.Start(); err != nil {
		writer.Close()
		return nil, err
	}
	g.pipe = writer
	_ = g.note("supervise: guarded by pid=%d", cmd.Process.Pid)
	_, _ = g.pipe.Write(g.told) // a dead guard's successor is told again
	return cmd, nil
}

// tell passes text to the guard, and to every later one.
func (g *guardian) tell(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = append(g.told, text...)
	if g.pipe != nil {
		_, _ = g.pipe.Write([]byte(text)) // a dead guard's successor is told all
	}
}

// dismiss tells the guard that there is nothing to take over, and waits for its
// end. A guard that cannot be told is not waited for: it looks when this process
// has ended.
func (g *guardian) dismiss() {
	g.mu.Lock()
	g.leaving = true
	var err error
	if g.pipe != nil {
		_, err = g.pipe.Write([]byte{dismissed})
	}
	g.mu.Unlock()
	if err == nil {
		<-g.gone
	}
}

// dismissed is the byte that tells a guard to go.
const dismissed = 'q'

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
// the latter case it takes over; the consumer whose handler was running counts as
// failed (takeOver), so that a handler that kills its supervisor does not spin.
func (r *room) guard(ctx context.Context, parent int) error {
	start := time.Now()
	var word [1]byte
	switch _, err := io.ReadFull(os.Stdin, word[:]); {
	case err == nil && word[0] == dismissed, planted.Bug("guard goes with its supervisor"):
		return nil
	case err != nil && err != io.EOF:
		return err
	}
	awaitParent(parent)
	r.log.Warn("supervise: a supervisor was killed, taking over")
	if time.Since(start) > takeoverCalm {
		r.takeovers = 0
	}
	r.takeovers++
	return newSupervisor(r).work(ctx, nil)
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

// readTold reads what the guard of a resident process is told: paths, each ended
// by a zero byte, until the pipe ends, or until the byte that dismisses it.
func readTold(pipe io.Reader) (dirs []string, ok bool) {
	in := bufio.NewReader(pipe)
	for {
		b, err := in.Peek(1)
		if err != nil {
			return dirs, false
		}
		if b[0] == dismissed {
			return nil, true // no absolute path begins so
		}
		dir, err := in.ReadString(0)
		if err != nil {
			return dirs, false
		}
		dirs = append(dirs, strings.TrimSuffix(dir, "\x00"))
	}
}
