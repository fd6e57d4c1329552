package serve

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"

	"thread/internal/command"
	"thread/internal/dispatch"
	"thread/internal/pipe"
	"thread/internal/programs"
)

// program is a worker that is the program thread. It supervises its own run and continues with
// it when the server is killed: the run has its locks, and so has the command.
type program struct {
	*command.Process
	stderr pipe.Tail
}

const keptOfWorker = 2 << 10

// startProgram starts thread run work for one run. What the command prints is in the
// history, as the command of thread run exec is.
func (w *workers) startProgram(dir string) (worker, error) {
	path := programs.Thread()
	if path == "" {
		return nil, dispatch.ErrNoProgram
	}
	args := []string{"run", "work", "--once", "--drain", "--thread", dir}
	if w.work.Strategy != "" {
		args = append(args, "--strategy", string(w.work.Strategy))
	}
	if w.work.MaxAttempts > 0 {
		args = append(args, "--max-attempts", fmt.Sprint(w.work.MaxAttempts))
	}
	if w.work.Timeout != "" {
		args = append(args, "--timeout", w.work.Timeout)
	}
	// A separate group keeps Ctrl-C on the server's terminal from the worker: the server lets
	// it come to its end.
	p := &program{stderr: pipe.Tail{Most: keptOfWorker}}
	spec := command.Spec{Argv: append(append([]string{path}, args...), "--", "sh", "-c", w.work.Command), Env: []string{}, Stderr: &p.stderr, Group: true}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "THREAD_RUN_") && !strings.HasPrefix(v, "THREAD_SESSION_ID=") {
			spec.Env = append(spec.Env, v)
		}
	}
	var err error
	p.Process, err = command.Start(spec)
	return p, err
}

// Wait returns what went wrong with the worker itself: a command that fails is a failed
// run, and no error here.
func (p *program) Wait() error {
	x := p.Process.Wait(context.Background())
	if x.Code == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", x.Text(), bytes.TrimSpace(p.stderr.Bytes()))
}

// End asks the worker to end its command.
func (p *program) End() { _ = p.Signal(syscall.SIGTERM) } // it may have ended
