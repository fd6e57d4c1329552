package history

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/internal/command"
	"thread/lock"
)

// orphan starts a supervised run with a command, and has its worker leave while the command
// runs. The channel receives the end of the command.
func orphan(t *testing.T, h *History, run RunRow) <-chan error {
	t.Helper()
	r := one[*Run](t)(h.StartRun(ctx, run, Supervised()))
	cmd := exec.Command("sh", "-c", "echo; exec sleep 600")
	cmd.ExtraFiles = []*os.File{r.tree.File()}
	out := one[interface{ Read([]byte) (int, error) }](t)(cmd.StdoutPipe())
	ok(t, cmd.Start())
	ended := make(chan error, 1)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	// A killed worker closes its descriptors and unlocks nothing.
	ok(t, errors.Join(r.lock.Close(), r.tree.Close()))
	return ended
}

func signalOf(err error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	return exit.Sys().(syscall.WaitStatus).Signal()
}

// TestRecoverLeft is H-09: recovery ends the commands that killed workers have left, and
// only then stores what becomes of their runs.
func TestRecoverLeft(t *testing.T) {
	h := inbox(t)
	first, second := orphan(t, h, RunRow{ID: "R1"}), orphan(t, h, RunRow{ID: "R2"})
	list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
	if len(list) != 2 {
		t.Fatalf("recovered %v", list)
	}
	for _, ended := range []<-chan error{first, second} {
		if err := <-ended; signalOf(err) != syscall.SIGTERM {
			t.Errorf("a command that was left: %v", err)
		}
	}
	for _, id := range []string{"R1", "R2"} {
		if got := row(t, h, id); got.Status != Failed || got.ErrorCode != CodeRecovery {
			t.Errorf("%s", text(&got))
		}
	}
	if list := one[[]string](t)(filepath.Glob(filepath.Join(h.Dir(), "run", ".beat", "*"))); len(list) != 0 {
		t.Errorf("recovered runs leave %q", list)
	}
}

// TestRecoverCannotEnd is H-09: a run is not recovered while a process that recovery cannot
// end has the tree lock, and no second attempt begins.
func TestRecoverCannotEnd(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R", SessionID: "S"}, Supervised()))
	ok(t, errors.Join(r.lock.Close(), r.tree.Close()))
	held := one[*lock.File](t)(lock.Try(h.treePath("R"), lock.Exclusive)) // by this process, which does not end itself
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 0 {
		t.Errorf("recovered beside its command: %v", list)
	}
	if got := row(t, h, "R"); got.Status != Running {
		t.Errorf("%s", text(&got))
	}
	_, err := h.StartRun(ctx, RunRow{SessionID: "S"})
	if !errors.Is(err, ErrActive) || !strings.Contains(err.Error(), `the command of run "R" has not ended`) {
		t.Errorf("the next run of the session beside the command: %v", err)
	}
	ok(t, held.Close())
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 1 {
		t.Errorf("recovered %v once the command has ended", list)
	}
}

// TestRecoverCancelled is H-09: a recovery that is cancelled ends no command, and the next
// one ends it.
func TestRecoverCancelled(t *testing.T) {
	h := inbox(t)
	ended := orphan(t, h, RunRow{ID: "R"})
	cancelled, cancel := context.WithCancel(ctx)
	list, err := h.Recover(cancelled, RecoverOptions{Only: func(*RunRow) bool { cancel(); return true }})
	if len(list) != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("recovered %v, %v", list, err)
	}
	select {
	case err := <-ended:
		t.Errorf("the command has ended: %v", err)
	default:
	}
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 1 {
		t.Errorf("recovered %v", list)
	}
	if err := <-ended; signalOf(err) != syscall.SIGTERM {
		t.Error(err)
	}
}

// TestStartAfterLeft is H-09: a run of a session first ends the command that the session's
// last run has left.
func TestStartAfterLeft(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	ended := orphan(t, h, RunRow{ID: "R1", SessionID: "S"})
	limited, cancel := context.WithCancel(ctx)
	cancel()
	if done, err := h.endLeft(limited, "R1"); done || !errors.Is(err, context.Canceled) {
		t.Errorf("ended %v, %v, for a context that has ended", done, err)
	}
	next := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R2", SessionID: "S"}))
	if err := <-ended; signalOf(err) != syscall.SIGTERM {
		t.Errorf("the command that was left: %v", err)
	}
	if got := row(t, h, "R1"); got.Status != Failed || got.ErrorCode != CodeRecovery {
		t.Errorf("%s", text(&got))
	}
	ok(t, next.End(ctx, End{Status: Completed}))
}

// TestEndLeftBesideWorker is H-09: the command of a run that has a worker is left alone.
func TestEndLeftBesideWorker(t *testing.T) {
	h := inbox(t)
	ended := orphan(t, h, RunRow{ID: "R"})
	own := one[*lock.File](t)(lock.Try(h.beatPath("R"), lock.Exclusive))
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 0 {
		t.Errorf("recovered beside its worker: %v", list)
	}
	limited, cancel := context.WithTimeout(ctx, 2*command.EndPause)
	defer cancel()
	if done, err := h.endLeft(limited, "R"); done || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", done, err)
	}
	select {
	case err := <-ended:
		t.Errorf("the command of a worker has ended: %v", err)
	default:
	}
	ok(t, own.Close())
	if done, err := h.endLeft(ctx, "R"); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	if err := <-ended; signalOf(err) != syscall.SIGTERM {
		t.Error(err)
	}
	ok(t, os.Remove(h.treePath("R"))) // a command that has no tree lock has ended
	if done, err := h.endLeft(ctx, "R"); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	ok(t, os.Symlink("elsewhere", h.treePath("R"))) // a link tells nothing about it
	if done, err := h.endLeft(ctx, "R"); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

// hook is a clock that calls a function once.
type hook struct {
	*clock
	once func()
}

func (c *hook) Now() time.Time {
	if do := c.once; do != nil {
		c.once = nil
		do()
	}
	return c.clock.Now()
}

// TestRecoverDeleted is H-09: a supervised run whose files are deleted while recovery looks
// at them counts from then on.
func TestRecoverDeleted(t *testing.T) {
	c := &hook{clock: newClock()}
	h := inbox(t, WithClock(c.Now))
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R"}, Supervised()))
	r.Leave()
	c.add(time.Hour)
	list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{Only: func(*RunRow) bool {
		c.once = func() { _ = os.RemoveAll(filepath.Join(h.Dir(), "run")) }
		return true
	}}))
	if got := row(t, h, "R"); len(list) != 0 || c.once != nil || got.Status != Running {
		t.Errorf("recovered %v", list)
	}
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 1 {
		t.Errorf("recovered %v, when its file is there again and no worker has it", list)
	}
}

// TestRecoverRefuses is H-09: recovery of an unknown strategy, or of a damaged history,
// returns an error and changes no run.
func TestRecoverRefuses(t *testing.T) {
	damage := func(e Entity) func(tx *Tx, id string) error {
		return func(tx *Tx, id string) error { return tx.rows.Delete(rowKey(e, id)) }
	}
	for name, tt := range map[string]struct {
		strategy Strategy
		damage   func(tx *Tx, run, step string) error
	}{
		"unknown strategy": {"again", func(*Tx, string, string) error { return nil }},
		"run lost":         {Fail, func(tx *Tx, run, _ string) error { return damage(RunEntity)(tx, run) }},
		"step lost":        {Fail, func(tx *Tx, _, step string) error { return damage(RunStep)(tx, step) }},
		"step of no type": {Fail, func(tx *Tx, _, step string) error {
			key := rowKey(RunStep, step)
			v := strings.Replace(string(tx.rows.Get(key)), "\x01x\x00\x00\arunning", "\x00\x00\x00\arunning", 1)
			return tx.rows.Put(key, []byte(v))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			h := inbox(t, WithClock(c.Now))
			r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R"}))
			s := one[StepRow](t)(r.Step(ctx, StepRow{StepType: "x", Status: Running}))
			c.add(time.Hour)
			ok(t, h.Update(ctx, func(tx *Tx) error { return tt.damage(tx, "R", s.ID) }))
			before := dump(t, h)
			list, err := h.Recover(ctx, RecoverOptions{Strategy: tt.strategy})
			if err == nil || len(list) != 0 {
				t.Errorf("recovered %v, %v", list, err)
			}
			now := dump(t, h)
			for k, v := range before {
				if now[k] != v {
					t.Errorf("%s was %s and is %s", k, v, now[k])
				}
			}
		})
	}
}

// TestBeatRefused is H-04: a beat that cannot be stored is an error of the worker, whatever
// is in the way of its file.
func TestBeatRefused(t *testing.T) {
	h := inbox(t)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R"}))
	for name, path := range map[string]string{
		"the file is a link to itself": h.beatPath("R"),
		"the file is a link":           h.beatPath("R"),
		"no directory":                 filepath.Dir(h.beatPath("R")),
		"no run/":                      filepath.Join(h.Dir(), "run"),
	} {
		ok(t, r.BeatOnce(ctx))
		aside := path + "-aside"
		ok(t, os.Rename(path, aside))
		to := "nowhere"
		if strings.HasSuffix(name, "itself") {
			to = filepath.Base(path)
		}
		ok(t, os.Symlink(to, path))
		if err := r.BeatOnce(ctx); err == nil {
			t.Errorf("%s: the run beats", name)
		}
		ok(t, errors.Join(os.Remove(path), os.Rename(aside, path)))
	}
	ok(t, r.BeatOnce(ctx))
}

// watchers returns how many watches of files this process has.
func watchers(t *testing.T) (n int) {
	t.Helper()
	for _, fd := range one[[]string](t)(filepath.Glob("/proc/self/fd/*")) {
		if to, _ := os.Readlink(fd); to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// TestBeatStops is H-04: a worker that has stopped beating watches nothing.
func TestBeatStops(t *testing.T) {
	h := inbox(t)
	before := watchers(t)
	for range 3 {
		r := one[*Run](t)(h.StartRun(ctx, RunRow{}))
		beating, stop := r.Beat(ctx, time.Hour)
		one[RunRow](t)(h.Cancel(ctx, r.ID())) // it is told, so it watches by then or looks
		<-beating.Done()
		stop()
	}
	ok(t, h.Close())
	for late := time.Now().Add(20 * time.Second); watchers(t) > before; { // see leaveWatch
		if time.Now().After(late) {
			t.Fatalf("%d watches were open, and %d are", before, watchers(t))
		}
		time.Sleep(time.Millisecond)
	}
}

// TestBeatUnread is H-04: a history that cannot be watched or read for a while ends no run,
// and the worker looks again at every beat.
func TestBeatUnread(t *testing.T) {
	h := inbox(t)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R"}))
	ok(t, h.Close())
	aside := h.Dir() + "-aside"
	ok(t, os.Rename(h.Dir(), aside))
	worker := reopen(t, filepath.Dir(h.Dir())).Attach(r.ID(), r.Attempt())
	ok(t, os.WriteFile(h.Dir(), nil, 0o600))
	limited, cancel := context.WithTimeout(ctx, 4*MinBeat)
	defer cancel()
	beating, stop := worker.Beat(limited, MinBeat)
	<-beating.Done()
	stop()
	if cause := context.Cause(beating); !errors.Is(cause, context.DeadlineExceeded) {
		t.Error(cause)
	}
	ok(t, errors.Join(os.Remove(h.Dir()), os.Rename(aside, h.Dir())))
	ok(t, worker.BeatOnce(ctx))
}
