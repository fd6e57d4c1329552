package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"thread/engine"
)

// killGrace is how long a handler whose time is up may take to end by itself.
// A variable for the tests.
var killGrace = 5 * time.Second

// handler is one run of a consumer's command.
type handler struct {
	*room
	due   engine.Due
	runID string
	acks  bool
	host  *Host // nil in a supervisor
}

// exit says how a handler ended.
type exit struct {
	ok   bool   // exit code 0
	cut  bool   // it did not end by itself
	text string // see State.LastExit
}

// run starts `sh -c command` in a session of its own and returns when it has
// ended. What it prints goes to the consumer's log. When Subscription.Timeout is
// over, its process group gets SIGTERM, and SIGKILL after killGrace.
//
// What a handler leaves behind when it exits is left alone, and holds neither
// the consumer's lock nor its log. What is left of one that was killed, or whose
// time was up, is part of a handler that has not ended, and is killed.
func (h *handler) run(ctx context.Context) (exit, error) {
	tree, err := h.takeTree(ctx, h.due.Consumer)
	if err != nil {
		return exit{}, err
	}
	x, err := h.runIn(ctx, tree)
	switch {
	case ctx.Err() != nil:
		tree.abandon() // the handler goes on, and who takes over finds it
	case x.cut:
		tree.abandon()
		err = h.clear(ctx, h.due.Consumer)
	default:
		tree.leave()
	}
	return x, err
}

// clear ends what is left of a handler of the consumer.
func (r *room) clear(ctx context.Context, consumer string) error {
	tree, err := r.takeTree(ctx, consumer)
	if err == nil {
		tree.leave()
	}
	return err
}

// runIn is run with the tree lock held.
func (h *handler) runIn(ctx context.Context, tree *tree) (exit, error) {
	if h.acks {
		if err := h.forgetPopped(h.due.Consumer); err != nil {
			return exit{}, err
		}
	}
	out, err := h.openOutput(h.due.Consumer)
	if err != nil {
		return exit{}, err
	}
	defer out.close()

	cmd := exec.Command(shell, "-c", h.due.Handler)
	cmd.Env = h.environment()
	cmd.Stdout, cmd.Stderr = out.writer, out.writer
	detach(cmd)
	tree.attach(cmd)
	start := time.Now()
	if err := h.start(cmd); err != nil {
		return exit{}, err
	}
	out.started()
	h.log.Info("supervise: consumer=%s run=%s started pid=%d last_acked_id=%d", h.due.Consumer, h.runID, cmd.Process.Pid, h.due.Progress.LastAcked)
	return h.wait(ctx, cmd, start)
}

// start starts the handler, by way of the host if that wants to.
func (h *handler) start(cmd *exec.Cmd) error {
	if h.host == nil || h.host.Start == nil {
		return cmd.Start()
	}
	return h.host.Start(h.runID, func() (pid int, err error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
}

// wait waits for the handler, or until its time is up and it is gone.
func (h *handler) wait(ctx context.Context, cmd *exec.Cmd, start time.Time) (exit, error) {
	ended := make(chan struct{})
	go func() {
		awaitExit(cmd.Process.Pid)
		close(ended)
	}()
	var limit <-chan time.Time // nil: never
	if h.due.Timeout > 0 {
		timer := time.NewTimer(h.due.Timeout - time.Since(start))
		defer timer.Stop()
		limit = timer.C
	}
	var abort <-chan struct{}
	if h.host != nil {
		abort = h.host.Abort
	}
	late := "" // why it did not end by itself
	select {
	case <-ended:
	case <-ctx.Done():
		return exit{}, ctx.Err()
	case <-limit:
		late = fmt.Sprintf("timed out after %v", h.due.Timeout)
	case <-abort:
		late = "aborted"
	}
	if late != "" {
		terminateGroup(cmd)
		grace := time.NewTimer(killGrace)
		defer grace.Stop()
		select {
		case <-ended:
		case <-grace.C:
		}
		// Also when the leader has ended: the rest of the group had its time too.
		killGroup(cmd)
		<-ended
	}
	err := cmd.Wait()
	var failed *exec.ExitError
	switch {
	case late != "":
		return exit{cut: true, text: late}, nil
	case err == nil:
		return exit{ok: true, text: "exit 0"}, nil
	case errors.As(err, &failed):
		return exit{cut: !failed.Exited(), text: exitText(failed.ProcessState)}, nil
	}
	return exit{}, err
}
