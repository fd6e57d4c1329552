package dispatch

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// guardian keeps a guard beside this supervisor: a process that holds the other
// end of a pipe and takes over when the pipe ends without a word. A guard that
// dies is replaced, so that of the two, either may be killed.
type guardian struct {
	room    *room
	mu      sync.Mutex
	pipe    *os.File      // nil: no guard
	leaving bool          // the supervisor is done
	gone    chan struct{} // closed when the last guard has been waited for
}

func newGuardian(r *room) *guardian { return &guardian{room: r, gone: make(chan struct{})} }

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
		g.room.log.Warn("supervise: no guard: %v", err)
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
	cmd := exec.Command(exe, superviseVerb, modeGuard, "-thread", g.room.t.Dir(), "-max", strconv.Itoa(g.room.max),
		"-parent", strconv.Itoa(os.Getpid()))
	cmd.Stdin = reader
	detach(cmd)
	if err := cmd.Start(); err != nil {
		writer.Close()
		return nil, err
	}
	g.pipe = writer
	g.room.log.Debug("supervise: guarded by pid=%d", cmd.Process.Pid)
	return cmd, nil
}

// dismiss tells the guard that there is nothing to take over, and waits for its
// end.
func (g *guardian) dismiss() {
	g.mu.Lock()
	g.leaving = true
	if g.pipe != nil {
		_, _ = g.pipe.Write([]byte{dismissed}) // a guard that is gone needs no word
	}
	g.mu.Unlock()
	<-g.gone
}

// dismissed is the byte that tells a guard to go.
const dismissed = 'q'

// parentPause is for systems on which awaitExit cannot tell.
const parentPause = 10 * time.Millisecond

// guard is the guard's side: it waits for the supervisor's word or its death. In
// the latter case it takes over; the consumer whose handler was running counts as
// failed (takeOver), so that a handler that kills its supervisor does not spin.
func (r *room) guard(ctx context.Context, parent int) error {
	var word [1]byte
	switch _, err := io.ReadFull(os.Stdin, word[:]); {
	case err == nil && word[0] == dismissed:
		return nil
	case err != nil && err != io.EOF:
		return err
	}
	// The end of the pipe is not yet the end of the supervisor's locks.
	if os.Getppid() == parent {
		awaitExit(parent)
	}
	for os.Getppid() == parent {
		time.Sleep(parentPause)
	}
	r.log.Warn("supervise: a supervisor was killed, taking over")
	return newSupervisor(r).work(ctx, nil)
}
