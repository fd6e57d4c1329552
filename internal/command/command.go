package command

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Spec describes a command.
type Spec struct {
	Argv []string // the program and its arguments, not empty
	Env  []string // nil: the environment of this process
	// Stdin, Stdout and Stderr are as in package os/exec: an *os.File is passed on as it
	// is, anything else is copied, for what a command has left behind at most copyGrace more.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Group          bool          // lead a process group
	Tree           *os.File      // with the tree lock; may be nil
	Timeout        time.Duration // 0: none
	Grace          time.Duration // between SIGTERM and SIGKILL
	Left           *Left         // ended after the command, where the command did not end by itself; may be nil
}

// Exit says how a command ended.
type Exit struct {
	Code     int            // -1 after a signal
	Signal   syscall.Signal // 0: the command exited
	TimedOut bool           // it was ended after Spec.Timeout
	Cause    error          // the cause of the context that ended it; nil: the command was not ended
}

// Text returns the exit in words.
func (x Exit) Text() string {
	if x.Signal != 0 {
		return KilledBy(x.Signal)
	}
	return "exit " + strconv.Itoa(x.Code)
}

// Shell returns the exit code that a shell reports.
func (x Exit) Shell() int {
	if x.Signal != 0 {
		return 128 + int(x.Signal)
	}
	return x.Code
}

// KilledBy returns the text of a death by the signal.
func KilledBy(s syscall.Signal) string { return "killed by signal: " + s.String() }

// Process is a command that was started.
type Process struct {
	*os.Process
	spec  Spec
	cmd   *exec.Cmd
	ended chan struct{}

	mu     sync.Mutex
	reaped bool // the numbers of the process and of its group may be others'
}

const copyGrace = time.Second

// starting is held while a descriptor exists that the next command inherits.
var starting sync.Mutex

// Start starts a command.
func Start(s Spec) (*Process, error) {
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
	cmd.Env, cmd.Stdin, cmd.WaitDelay = s.Env, s.Stdin, copyGrace
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Stderr
	if s.Group {
		ownGroup(cmd)
	}
	if err := inherit(s.Tree, func() error { return StartOwn(cmd) }); err != nil {
		return nil, err
	}
	p := &Process{Process: cmd.Process, spec: s, cmd: cmd, ended: make(chan struct{})}
	go func() {
		AwaitExit(p.Pid)
		close(p.ended)
	}()
	return p, nil
}

// inherit calls start while the descriptor of the lock can be inherited. A command keeps all
// other descriptors that this process was given to pass on.
func inherit(tree *os.File, start func() error) error {
	starting.Lock()
	defer starting.Unlock()
	if tree == nil {
		return start()
	}
	passed, err := pass(tree)
	if err != nil {
		return err
	}
	defer passed.Close()
	return start()
}

// Ended is closed when the command has ended. Until Wait returns, the numbers of the process
// and of its group are not given to other ones.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait returns when the command has ended, and is called once. When ctx ends, or the time limit has passed, the
// command is ended with its group: SIGTERM, and SIGKILL after the grace. What a command has
// left behind when it ends by itself is left alone.
func (p *Process) Wait(ctx context.Context) Exit {
	var limit <-chan time.Time
	if p.spec.Timeout > 0 {
		timer := time.NewTimer(p.spec.Timeout)
		defer timer.Stop()
		limit = timer.C
	}
	var x Exit
	select {
	case <-p.ended:
		return p.exit(x)
	case <-limit:
		x.TimedOut, x.Cause = true, context.DeadlineExceeded
	case <-ctx.Done():
		x.Cause = context.Cause(ctx)
	}
	p.End()
	return p.exit(x)
}

// End ends the command and its group, and returns when the command has ended.
func (p *Process) End() {
	p.Pass(syscall.SIGTERM)
	grace := time.NewTimer(p.spec.Grace)
	defer grace.Stop()
	select {
	case <-p.ended:
	case <-grace.C:
	}
	p.Kill() // the rest of the group had its time as well
}

// Kill ends the command and its group at once.
func (p *Process) Kill() {
	p.Pass(syscall.SIGKILL)
	if p.spec.Left != nil {
		_ = p.spec.Left.End(context.Background(), 0, nil)
	}
	<-p.ended
}

// Forward sends a signal that this process got to the command, and those that end a program to
// its group, which a terminal or timeout(1) would have reached.
func (p *Process) Forward(s os.Signal) {
	switch sig, ok := s.(syscall.Signal); {
	case ok && (sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP || sig == syscall.SIGQUIT):
		p.Pass(sig)
	default:
		_ = p.Signal(s) // it may have ended by now
	}
}

// Pass sends a signal to the group of the command, or to the command where it leads none.
func (p *Process) Pass(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped || p.spec.Group && signalGroup(p.Pid, s) {
		return
	}
	if s == syscall.SIGKILL {
		_ = p.Process.Kill()
		return
	}
	if errors.Is(p.Signal(s), errors.ErrUnsupported) {
		_ = p.Process.Kill()
	}
}

func (p *Process) exit(x Exit) Exit {
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	_ = WaitOwn(p.cmd) // its error is about the exit, or the input, which a command need not read
	x.Code = -1
	state := p.cmd.ProcessState
	if state == nil {
		return x
	}
	x.Code = state.ExitCode()
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		x.Code, x.Signal = -1, w.Signal()
	}
	return x
}
