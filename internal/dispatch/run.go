package dispatch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"thread/engine"
	"thread/internal/command"
)

// Run starts the handler of every consumer that has unread events and whose
// handler is not running, at most Options.MaxHandlers of the thread at once, those
// with the oldest unread events first; those above the bound are started by the
// supervisor of the others when they finish. It returns as soon as it has
// handed over.
//
// When a server serves the thread, Run leaves all that to it.
//
// A consumer that cannot be started is logged and does not stop the others; the
// first of these errors is returned. Run returns an OwnerError, having started nothing,
// in a thread of another account, and ErrBusy after the engine's wait.
func Run(ctx context.Context, t *engine.Thread, o Options) error {
	r := newDispatcher(t, o)
	if err := Own(t.Dir()); err != nil {
		return err
	}
	if r.ping(pingPush, r.author()) {
		return nil
	}
	r.busyTries = 1
	err := r.dispatch(ctx)
	if err == nil {
		err = r.checkLogs()
	}
	if err == nil {
		err = r.trouble()
	}
	if err != nil {
		err = ForeignFile(err)
		r.log.Error("dispatch: %v", err)
	}
	return err
}

// dispatch starts a supervisor if something is due, and waits until that has handed
// over: has started, or left to others, whatever it saw. One that is killed before is
// started again. One that others keep from looking continues when dispatch returns
// ErrBusy.
func (r *dispatcher) dispatch(ctx context.Context) error {
	for try := 1; ; try++ {
		due, err := r.due(ctx)
		if err != nil {
			return err
		}
		startable := false
		for _, d := range due {
			startable = startable || d.Err == nil
		}
		if !startable {
			for _, d := range due {
				r.logBroken(d.Consumer, d.Err)
			}
			return nil
		}
		if err := r.prepare(); err != nil {
			return err
		}
		cmd, err := r.worker()
		if err != nil {
			return err
		}
		await, err := withReady(cmd)
		if err != nil {
			return err
		}
		err = start(cmd)
		switch handedOver, timedOut := await(handOverTime); {
		case timedOut:
			return engine.ErrBusy
		case handedOver || err != nil || try == maxTries:
			return err
		}
	}
}

// handOverTime bounds the wait for a supervisor that was started by hand: known
// clients give up after 5 s.
const handOverTime = 4 * time.Second

// checkLogs returns an error if handlers that were started cannot write their
// logs, and so do not run.
func (r *dispatcher) checkLogs() error {
	for _, dir := range []string{"logs", filepath.Join("logs", "handlers")} {
		err := accessible(filepath.Join(r.t.Dir(), dir))
		if errors.Is(err, fs.ErrPermission) {
			return ForeignFile(err)
		}
	}
	return nil
}

// worker returns a supervisor to be started, which does what a dispatch does and
// stays for as long as a handler runs that it has started.
func (r *dispatcher) worker() (*exec.Cmd, error) { return r.superviseCommand(modeWork) }

// superviseCommand returns a process of the given mode for this thread, with further
// arguments.
func (r *dispatcher) superviseCommand(mode string, args ...string) (*exec.Cmd, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, append([]string{superviseVerb, mode, "-thread", r.t.Dir(), "-max", strconv.Itoa(r.max)}, args...)...)
	if author := r.author(); author != "" {
		cmd.Args = append(cmd.Args, "-after", author)
	}
	return cmd, nil
}

// author is the consumer in whose handler this process runs, or on whose push's
// behalf it was started; "" for none.
func (r *dispatcher) author() string {
	if r.after != "" {
		return r.after
	}
	if !r.inHandler() {
		return ""
	}
	return os.Getenv(envConsumer)
}

// startDispatch starts the detached process of Wake, with further arguments.
func (r *dispatcher) startDispatch(args ...string) error {
	cmd, err := r.superviseCommand(modeWake, args...)
	if err != nil {
		return err
	}
	if err := asOwner(cmd, r.t.Dir()); err != nil {
		return err
	}
	return startedAs(cmd, start(cmd))
}

// start starts cmd detached: in its own session, without a terminal, with no
// descriptor of ours but its extra files, and as no part of a handler that this
// process may be of. It is waited for as long as we live, so that it does not become
// a zombie.
func start(cmd *exec.Cmd) error {
	detach(cmd)
	leaveRun(cmd)
	if err := sealed(func() error { return command.StartOwn(cmd) }); err != nil {
		return err
	}
	go func() { _ = waitChild(cmd) }() // however it ends
	return nil
}

// leaveRun takes the run that we may be a part of out of the environment of cmd.
func leaveRun(cmd *exec.Cmd) { cmd.Env = append(cmd.Environ(), envRunID+"=") }
