package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/command"
	"thread/lock"
)

// killGrace is how long a handler whose time is up may take to end by itself.
// A variable for the tests.
var killGrace = 5 * time.Second

// handler is one run of a consumer's command.
type handler struct {
	*dispatcher
	due     engine.Due
	rec     *record
	file    *lock.File // of the record
	room    *room      // nil in a process that runs no handler
	acks    bool
	orphans *orphanScope
	standby *standby // nil: none takes its output over
	hooks   *Hooks   // nil in a supervisor
	// prepared is called when all is ready for the start: it awaits the standby and
	// notes the run. The record is written next.
	prepared func()
	adopted  bool  // it is not ours: what it printed is known from the log alone
	bytes    int64 // else, how much it printed
}

// exit says how a handler ended.
type exit struct {
	ok      bool   // exit code 0
	killed  bool   // it did not end by itself
	stopped bool   // the server that ran it was told to end: no failure
	unknown bool   // no process was there to be told; ok is decided by what it did
	text    string // see State.LastExit
}

// Texts of exits, or their beginnings.
const (
	exitTimedOut = "timed out after "
	exitAborted  = "aborted"
	// exitUnfinished follows the text of the exit.
	exitUnfinished = ", and its consume was killed"
)

// unknownExit is the text of an exit of which no process knows.
const unknownExit = "exit unknown (its supervisor was killed)"

// run starts `sh -c command` in a separate session and returns when it has
// ended. What it prints goes to the consumer's log. When Subscription.Timeout is
// over, its process group gets SIGTERM, and SIGKILL after killGrace.
//
// What a handler leaves behind when it exits in order is left alone, and holds neither
// the consumer's lock nor its log. A handler does not end in order when it is killed, when
// its time is up, or when it exits while a separate ConsumerLock is not released: its
// consume was killed, or works on in the background. What is left of it then is part of a
// handler that has not ended, and is killed.
func (h *handler) run(ctx context.Context) (exit, error) {
	tree, err := h.lockTree(ctx, h.due.Consumer, h.remains(0), 0)
	if err != nil {
		return exit{}, err
	}
	x, err := h.runIn(ctx, tree)
	switch {
	case ctx.Err() != nil:
		tree.abandon() // the handler continues, and who takes over finds it
	case x.killed:
		tree.abandon()
		if tree, err = h.lockTree(ctx, h.due.Consumer, h.remains(0), 0); err == nil {
			tree.release()
		}
	default:
		tree.release()
	}
	return x, err
}

// adopt is run for a handler that lost its supervisor, and may have ended
// meanwhile: it is waited for like one of our own. How it exited is known to no process.
func (h *handler) adopt(ctx context.Context) (exit, error) {
	x := exit{unknown: true, killed: true, text: unknownExit}
	h.adopted = true
	if l := findLeader(h.rec); l != nil {
		// model: adopt
		out := h.inherited[h.runID()]
		if out != nil {
			defer out.awaitClosed()
		}
		if reader := reopenOutput(l.p.Pid, h.rec.Pipe); out == nil && reader != nil {
			out = newOutput(reader, h.t.Dir(), h.due.Consumer)
			out.begin()
			defer out.close()
		}
		h.log.Info("supervise: consumer=%s run=%s adopted pid=%d", h.due.Consumer, h.runID(), l.p.Pid)
		defer h.shareOutput(out)()
		reason, stopped, err := h.watch(ctx, l.wait, l.terminate, l.kill, l.elapsed)
		if err != nil {
			return exit{}, err
		}
		if reason != "" {
			x = exit{killed: true, stopped: stopped, text: reason}
		}
	}
	err := h.clear(ctx, killGrace)
	return x, err
}

func (h *handler) runID() string { return h.rec.RunID }

// clear ends what is left of the handler, which has not ended by itself.
func (h *handler) clear(ctx context.Context, grace time.Duration) error {
	if err := h.evict(ctx, h.due.Consumer, h.remains(0), grace); err != nil {
		return err
	}
	tree, err := h.lockTree(ctx, h.due.Consumer, h.remains(0), grace)
	if err != nil {
		return err
	}
	tree.release()
	return nil
}

// runIn is run with the tree lock held.
func (h *handler) runIn(ctx context.Context, tree *treeLock) (exit, error) {
	if h.acks {
		if err := h.forgetPopped(h.due.Consumer); err != nil {
			return exit{}, err
		}
	}
	out, err := h.openOutput(h.due.Consumer)
	if err != nil {
		return exit{}, err
	}
	defer func() {
		out.close()
		h.bytes = out.bytes
	}()
	h.prepared()
	// Before the start: killed right after it, the handler is found without its number
	// noted, but not what it prints into, and its next line would end it.
	h.rec.Pipe = out.inode()
	if err := writeRecord(h.file, h.rec); err != nil {
		h.report(h.due.Consumer, err)
	}

	cmd := exec.Command(shell, "-c", h.due.Handler)
	cmd.Env = h.environment()
	cmd.Stdout, cmd.Stderr = out.writer, out.writer
	detach(cmd)
	tree.attach(cmd)
	h.room.attach(cmd)
	start := time.Now()
	if err := h.start(cmd); err != nil { // model: start
		return exit{}, err
	}
	testPoint("started")
	h.rec.PID, h.rec.Began = cmd.Process.Pid, beganAt(cmd.Process.Pid)
	if err := writeRecord(h.file, h.rec); err != nil {
		h.report(h.due.Consumer, err) // killed now, it is not adopted but ended
	}
	out.started()
	defer h.shareOutput(out)() // before it is closed
	h.log.Info("supervise: consumer=%s run=%s started pid=%d last_acked_id=%d", h.due.Consumer, h.runID(), cmd.Process.Pid, h.due.Progress.LastAcked)
	return h.wait(ctx, cmd, start)
}

// shareOutput lets the standby have what the handler prints, until the returned
// function is called.
func (h *handler) shareOutput(out *output) (ended func()) {
	if h.standby == nil || out == nil {
		return func() {}
	}
	run := &standbyRun{Dir: h.t.Dir(), Consumer: h.due.Consumer, RunID: h.runID(), output: out.reader}
	h.standby.runStarted(run)
	return func() { h.standby.runEnded(run) }
}

// start starts the handler, through the hook if there is one.
func (h *handler) start(cmd *exec.Cmd) error {
	if h.hooks == nil || h.hooks.Start == nil {
		return command.StartOwn(cmd)
	}
	return h.hooks.Start(h.runID(), func() (pid int, err error) {
		if err := command.StartOwn(cmd); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
}

// wait waits for the handler, or until its time is up and it is gone. What is left of
// one that was killed is gone too, then.
func (h *handler) wait(ctx context.Context, cmd *exec.Cmd, start time.Time) (exit, error) {
	pid := cmd.Process.Pid
	reason, stopped, err := h.watch(ctx, func() { command.AwaitExit(pid) }, func() { terminateGroup(cmd) }, func() { killGroup(cmd) }, time.Since(start))
	if err != nil {
		return exit{}, err
	}
	x := exit{killed: reason != "", stopped: stopped, text: reason}
	unfinished := reason == "" && h.isWorkedFor(h.due.Consumer)
	if reason == "" {
		x.killed = command.EndedBySignal(pid) || unfinished
	}
	if x.killed {
		// Before its first process is waited for, the numbers of its group and its
		// session belong to no other process.
		if err := h.evict(ctx, h.due.Consumer, h.remains(pid), killGrace); err != nil {
			return exit{}, err
		}
	}
	err = waitChild(cmd)
	var failed *exec.ExitError
	switch {
	case reason != "":
		return x, nil
	case err == nil:
		x = exit{ok: true, text: "exit 0"}
	case errors.As(err, &failed):
		x = exit{killed: !failed.Exited(), text: exitText(failed.ProcessState)}
	default:
		return exit{}, err
	}
	if unfinished {
		x.ok, x.killed, x.text = false, true, x.text+exitUnfinished
	}
	return x, nil
}

// remains tells what is left of this run. The leader is 0 unless it is our child and
// not waited for.
func (h *handler) remains(leader int) *command.Left {
	q := &command.Left{RunID: h.rec.RunID, Leader: leader, Trees: h.trees(h.due.Consumer), Child: command.IsOwn, Reap: reapOrphans}
	if h.orphans != nil { // processes of before are of other handlers
		q.Orphan = func(p command.Stat) bool { return h.orphans.certain() && p.Began >= h.rec.Began }
	}
	return q
}

// work is the content of the work lock in a handler: "RUN DEAD working" or "RUN DEAD released".
type work struct {
	run      string
	dead     int64 // events that became dead letters in the run until now
	released bool
}

// isWorkedFor reports whether a process of the handler, which has exited, has not released
// its ConsumerLock: the lock is held, by the process or by the command that it has left, or
// the file names the run still.
func (h *handler) isWorkedFor(consumer string) bool {
	f, err := os.OpenFile(h.workLockPath(consumer), os.O_RDWR|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if errors.Is(lock.TryFile(f, lock.Shared), lock.ErrHeld) {
		return true
	}
	w := readWork(f)
	return w.run == h.runID() && !w.released
}

// watch returns when the handler's first process has ended; if it was made to, with
// the reason. ended waits for it, terminate and kill reach its process group, and
// it has run for some time already.
func (h *handler) watch(ctx context.Context, wait, terminate, kill func(), ran time.Duration) (reason string, stopped bool, err error) {
	ended := make(chan struct{})
	go func() {
		wait()
		close(ended)
	}()
	var limit <-chan time.Time // nil: never
	if h.due.Timeout > 0 {
		timer := time.NewTimer(h.due.Timeout - ran)
		defer timer.Stop()
		limit = timer.C
	}
	var abort, stop <-chan struct{}
	if h.hooks != nil {
		abort, stop = h.hooks.Abort, h.hooks.Stop
	}
	select {
	case <-ended:
		return "", false, nil
	case <-ctx.Done():
		return "", false, ctx.Err()
	case <-limit:
		reason = fmt.Sprintf(exitTimedOut+"%v", h.due.Timeout)
	case <-abort:
		reason = exitAborted
	case <-stop:
		reason, stopped = "stopped with the server", true
	}
	terminate()
	grace := time.NewTimer(killGrace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
	}
	// Also when the leader has ended: the rest of the group had its time too.
	kill()
	<-ended
	return reason, stopped, nil
}

// deadLetters returns how many events became dead letters in the run.
func (h *handler) deadLetters() int64 {
	f, err := os.OpenFile(h.workLockPath(h.due.Consumer), os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	if w := readWork(f); w.run == h.runID() {
		return w.dead
	}
	return 0
}

// The states have one length, so that a write over another one leaves nothing of it.
const (
	workGoesOn   = "working_"
	workReleased = "released"
	maxWork      = 128
)

func readWork(f *os.File) (w work) {
	var b [maxWork]byte
	n, _ := f.ReadAt(b[:], 0)
	fields := strings.Fields(string(b[:n])) // fmt.Fscan would cost 18 KB of program
	if len(fields) < 3 {
		return work{}
	}
	dead, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return work{}
	}
	return work{run: fields[0], dead: dead, released: fields[2] == workReleased}
}

// ackPopped is AckPopped of a supervisor. A record that is lost costs a second delivery, so errors
// are logged.
func (s *supervisor) ackPopped(ctx context.Context, consumer, run string) {
	_, err := retryBusy(ctx, s.dispatcher, func() (struct{}, error) { return struct{}{}, AckPopped(ctx, s.t, consumer, run) })
	if err != nil && !errors.Is(err, engine.ErrNoSubscription) {
		s.report(consumer, err)
	}
}

// report logs an error that stops work on one consumer but not on the others.
func (r *dispatcher) report(consumer string, err error) {
	r.noteTrouble(err)
	r.log.Error("supervise: consumer=%s %v", consumer, err)
}
