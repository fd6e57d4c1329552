package serve

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"thread/internal/dispatch"
	"thread/internal/programs"
)

// program is a worker that is the program thread.
type program struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// startProgram starts thread run work for one run. What the command prints is in the
// history, as that of thread run exec is.
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
	p := &program{cmd: exec.Command(path, append(args, "--", "sh", "-c", w.work.Command)...)}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "THREAD_RUN_") && !strings.HasPrefix(v, "THREAD_SESSION_ID=") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Stderr = &lastBytes{&p.stderr}
	ownGroup(p.cmd)
	return p, p.cmd.Start()
}

// Wait returns what went wrong with the worker itself: a command that fails is a failed
// run, and no error here.
func (p *program) Wait() error {
	err := p.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return err
}

// End asks the worker to end its command.
func (p *program) End() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); errors.Is(err, os.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
		_ = p.cmd.Process.Kill() // where there are no signals
	}
}

// lastBytes keeps the end of what is written.
type lastBytes struct{ b *bytes.Buffer }

const keptOfWorker = 2 << 10

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b.Write(p)
	if over := l.b.Len() - keptOfWorker; over > 0 {
		l.b.Next(over)
	}
	return len(p), nil
}
