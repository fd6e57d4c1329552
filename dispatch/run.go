package dispatch

import (
	"context"
	"os"
	"os/exec"
	"strconv"

	"thread/engine"
)

// Run starts the handler of every consumer that has unread events and whose
// handler is not running, at most Options.MaxHandlers of the thread at once, in
// the order of subscription; those above the bound are started by the
// supervisors of the others when they finish. It returns as soon as it has
// handed over (contract T-59 to T-66).
//
// When a resident process serves the thread, Run leaves all that to it.
//
// A consumer that cannot be started is logged and does not stop the others. The
// error is the engine's when the subscriptions cannot be read; it is logged too,
// as nobody sees the output of a detached dispatch.
func Run(ctx context.Context, t *engine.Thread, o Options) error {
	r := newRoom(t, o)
	if r.ping(pingPush, r.author()) {
		return nil
	}
	err := r.dispatch(ctx)
	if err != nil {
		r.log.Error("dispatch: %v", err)
	}
	return err
}

func (r *room) dispatch(ctx context.Context) error {
	for first := true; ; first = false {
		due, err := r.due(ctx)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := r.prepare(); err != nil {
			return err
		}
		passing("looked")
		if !r.startAll(ctx, due, first) {
			return nil
		}
	}
}

// startAll hands every due consumer to a supervisor. It reports whether the look
// must be repeated.
func (r *room) startAll(ctx context.Context, due []engine.Due, first bool) (repeat bool) {
	for i, d := range due {
		if d.Err != nil {
			if first {
				r.logBroken(d.Consumer, d.Err)
			}
			continue
		}
		c, a, err := r.claim(ctx, d.Consumer, r.wantAfterPush(d.Consumer))
		switch {
		case err != nil:
			r.report("dispatch", d.Consumer, err)
		case a == claimed:
			if err := r.spawn(c); err != nil {
				r.report("dispatch", d.Consumer, err)
			}
		case a == held && first:
			r.log.Info("dispatch: consumer=%s skipped (lock held)", d.Consumer)
		case a == engaged && first:
			r.log.Info("dispatch: consumer=%s skipped (waiting to retry)", d.Consumer)
		case a == slotless:
			r.log.Info("dispatch: consumer=%s waits for a slot, with up to %d after it: %d handlers are running", d.Consumer, len(due)-i-1, r.max)
			return repeat
		}
		repeat = repeat || a == undecided
	}
	return repeat
}

// wantAfterPush is wantPending, except for the consumer whose own handler made
// the push: its push of something else is not the "next push" that runs it
// again, or a handler that answers into its own thread without ever acking
// would run for ever.
func (r *room) wantAfterPush(consumer string) want {
	if r.author() == consumer {
		return r.wantFresh
	}
	return r.wantPending
}

// author is the consumer in whose handler this process runs, "" for none.
func (r *room) author() string {
	if os.Getenv(envDir) != r.t.Dir() || os.Getenv(envRunID) == "" {
		return ""
	}
	return os.Getenv(envConsumer)
}

// spawn starts a supervisor for the claim, which goes over to it.
func (r *room) spawn(c *claim) error {
	exe, err := executable()
	if err != nil {
		c.drop()
		return err
	}
	cmd := exec.Command(exe, superviseVerb, modeWork, "-thread", r.t.Dir(), "-max", strconv.Itoa(r.max), "-consumer", c.due.Consumer)
	if err := startWith(cmd, c); err != nil {
		c.drop()
		return err
	}
	r.logSpawned(c)
	return nil
}

// logSpawned writes the line of contract T-66.
func (r *room) logSpawned(c *claim) {
	r.log.Info("dispatch: consumer=%s spawned handler_cmd=\"%s\"", c.due.Consumer, c.due.Handler)
}

// start starts cmd detached: in its own session, without a terminal, with no
// descriptor of ours but its extra files. It is waited for as long as we live,
// so that it does not become a zombie.
func start(cmd *exec.Cmd) error {
	sealDescriptors()
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	go cmd.Wait()
	return nil
}
