//go:build linux

package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/command"
)

// hidden starts children of a handler in every way in which they can get away from
// it: with all descriptors closed, in separate sessions, after their parent's
// end, and without an environment.
const hidden = `
hide() { "$T" bare "echo \$\$ >> '$D/hidden'; exec sleep 1000"; }
hide &
(setsid "$T" bare "echo \$\$ >> '$D/hidden'; exec sleep 1000" &)
(setsid env -i "$T" bare "echo \$\$ >> '$D/hidden'; exec sleep 1000" &)
env -i "$T" bare "echo \$\$ >> '$D/hidden'; exec sleep 1000" &
while [ "$(wc -l < "$D/hidden")" -lt 4 ]; do sleep 0.01; done 2>/dev/null
`

// What is left of a killed handler is ended, however it hides; when the supervisor
// was killed before, whatever carries the run's id or has a parent that does.
func TestHiddenChildren(t *testing.T) {
	for _, order := range []string{"handler", "supervisor handler"} {
		t.Run(order, func(t *testing.T) {
			b := newBench(t)
			at, stay := b.fifo("at"), b.fifo("stay")
			b.subscribe(engine.Subscription{Consumer: "c", Handler: `
				if [ -e "$D/hidden" ]; then ` + drain + `; echo done > "$D/at"; exit; fi
				: > "$D/hidden"` + hidden + `
				echo $$ $PPID > "$D/at"; read x < "$D/stay"`})
			b.push("s")
			b.dispatch(Options{})
			first := at.numbers()
			if order == "supervisor handler" {
				b.kill(first[1])
				b.awaitLog(fmt.Sprint("adopted pid=", first[0]), 1)
			}
			b.kill(first[0])
			if got := at.line(); got != "done" {
				t.Errorf("the second run says %q", got)
			}
			for i, text := range b.lines("hidden") {
				pid, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				if unknown := i >= 0 && order != "handler" && !marked(pid); unknown && alive(pid) {
					// Without an environment, and with no process left that has started it.
					b.kill(pid)
					continue
				}
				if alive(pid) {
					t.Errorf("process %d is alive beside the next run", pid)
					b.kill(pid)
				}
			}
			_ = stay
			b.awaitIdle()
		})
	}
}

func marked(pid int) bool {
	_, ok := command.RunOf(pid)
	return ok
}

// Who only has a file of run/ open is left alone when a handler is ended.
func TestBystander(t *testing.T) {
	for _, order := range []string{"handler", "standby supervisor handler"} {
		t.Run(order, func(t *testing.T) {
			b := newBench(t)
			at, leave := b.fifo("at"), b.fifo("leave")
			b.subscribe(engine.Subscription{Consumer: "c", Handler: killed})
			b.push("s")
			b.dispatch(Options{})
			first := at.numbers()
			b.awaitLog("standby pid=", 1)
			reader := exec.Command("tail", "-f", b.r.treeLockPath("c"), b.r.handlerLockPath("c"), b.r.recordPath("c"))
			if err := reader.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { reader.Process.Kill(); reader.Wait() }()
			for n := 0; n < 3; { // tail has opened them
				fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", reader.Process.Pid))
				n = 0
				for _, fd := range fds {
					if target, _ := os.Readlink(fd); strings.HasPrefix(target, b.t.Dir()) {
						n++
					}
				}
			}
			if order != "handler" {
				list, err := processes(b.t.Dir(), superviseVerb)
				if err != nil {
					t.Fatal(err)
				}
				for _, mode := range []string{modeStandby, modeWork} {
					for _, p := range list {
						if p.mode == mode {
							b.kill(p.pid)
							awaitDeath(t.Context(), p.pid)
						}
					}
				}
			}
			b.kill(first[0])
			if order != "handler" {
				b.awaitGone(first[0])
				b.dispatch(Options{})
			}
			if second := at.numbers(); second[1] != 0 {
				t.Errorf("%d processes of the first run are left", second[1])
			}
			_ = leave
			b.awaitIdle()
			if !alive(reader.Process.Pid) {
				t.Error("who only reads was killed")
			}
		})
	}
}

// When run/ is deleted while a handler runs, whatever comes does not start another
// one next to it, whether its supervisor lives or not; and nothing is left behind.
func TestRunDeleted(t *testing.T) {
	for _, also := range []string{"", "supervisor", "standby supervisor"} {
		t.Run("also killed: "+also, func(t *testing.T) {
			b := newBench(t)
			at, leave := b.fifo("at"), b.fifo("leave")
			b.subscribe(engine.Subscription{Consumer: "c", Handler: killed})
			b.push("s")
			b.dispatch(Options{})
			first := at.numbers()
			b.awaitLog("standby pid=", 1)
			b.awaitLog(" started pid=", 1) // its supervisor may be slower than the handler
			if err := os.RemoveAll(b.r.run); err != nil {
				t.Fatal(err)
			}
			list, err := processes(b.t.Dir(), superviseVerb)
			if err != nil {
				t.Fatal(err)
			}
			for _, mode := range []string{modeStandby, modeWork} {
				for _, p := range list {
					if p.mode == mode && (strings.Contains(also, "standby") || mode == modeWork && also != "") {
						b.kill(p.pid)
						awaitDeath(t.Context(), p.pid)
					}
				}
			}
			last := b.push("s")
			b.dispatch(Options{})
			if also == "" {
				b.awaitLog("dispatch: consumer=c skipped (lock held)", 1)
			} else {
				b.awaitLog(fmt.Sprint("adopted pid=", first[0]), 1)
			}
			if n := strings.Count(b.log(), " started pid="); n != 1 {
				t.Errorf("%d handlers were started:\n%s", n, b.log())
			}
			leave.say()
			b.awaitIdle()
			if got := b.acked("c"); got != last {
				t.Errorf("acked %d, want %d", got, last)
			}
			if n := strings.Count(b.log(), " started pid="); n != 1 {
				t.Errorf("%d handlers were started:\n%s", n, b.log())
			}
		})
	}
}

// A process that continues does not lose its descriptors by waking a dispatch, and the
// dispatch does not get them.
func TestWakeKeepsDescriptors(t *testing.T) {
	b := newBench(t)
	at, wake, leave := b.fifo("at"), b.fifo("wake"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `read x < "$D/wake"; "$T" wakes 99; read x < "$D/leave"; ` + drain})
	b.push("s")
	b.dispatch(Options{})
	// Only the dispatch that c's handler wakes can know of d.
	b.subscribe(engine.Subscription{Consumer: "d", Handler: `ls -l /proc/$PPID/fd > "$D/held"; ` + drain + `; echo > "$D/at"`})
	wake.say()
	at.line()
	if got := b.read("kept"); got != "kept\n" {
		t.Errorf("the descriptor was %q", got)
	}
	if held := b.read("held"); strings.Contains(held, "c.tree") {
		t.Errorf("the supervisor that was woken has\n%s", held)
	}
	leave.say()
	b.awaitIdle()
}

// wakes wakes a dispatch and then lets a child look whether it has the descriptor.
func wakes(fd string) error {
	t, err := engine.Open(os.Getenv(envDir))
	if err != nil {
		return err
	}
	if _, err := t.Push(context.Background(), event.Draft{Source: "w", Type: "message"}); err != nil {
		return err
	}
	if err := Wake(context.Background(), t, "w"); err != nil {
		return err
	}
	return exec.Command("/bin/sh", "-c", "if [ -e /proc/self/fd/"+fd+" ]; then echo kept; else echo gone; fi > \"$D/kept\"").Run()
}

// A process that has a ConsumerLock and is killed leaves no process at work next to
// the handler that follows.
func TestTurnIsKilled(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `[ -n "$(tr -d '\0' 2>/dev/null < /proc/$(cat "$D/left")/cmdline)" ] && echo "not alone" > "$D/at"; ` + drain + `; echo done > "$D/at"`})
	b.push("s")
	holder := b.command("lock", b.t.Dir(), "c")
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 32)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	left, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.path("left"), fmt.Append(nil, left), 0o600); err != nil {
		t.Fatal(err)
	}
	b.kill(holder.Process.Pid)
	holder.Wait()
	if got := at.line(); got != "done" {
		t.Error(got)
	}
	b.awaitIdle()
	if alive(left) {
		t.Errorf("process %d is alive", left)
		b.kill(left)
	}
}

// A handler that exits with 0 although the process in it that had the ConsumerLock was
// killed has not ended in order: the command which that process has left is ended before the
// next run, which needs no push.
func TestConsumeIsKilled(t *testing.T) {
	for _, how := range []string{"sleep 1000", `exec "$T" bare 'exec sleep 1000'`, `trap "" TERM; sleep 1000; :`} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t)
			at := b.fifo("at")
			t.Setenv("DISPATCH_TEST_WORK", how)
			b.subscribe(engine.Subscription{Consumer: "c", Handler: `
				if [ -e "$D/left" ]; then
					[ -n "$(tr -d '\0' 2>/dev/null < /proc/$(cat "$D/left")/cmdline)" ] && echo "not alone" > "$D/at"
					` + drain + `; echo done > "$D/at"; exit
				fi
				"$T" lock "$THREAD_DIR" c die > "$D/left"; exit 0`})
			b.push("s")
			b.dispatch(Options{})
			if got := at.line(); got != "done" {
				t.Error(got)
			}
			b.awaitIdle()
			b.awaitLog("ended: exit 0"+exitUnfinished, 1)
		})
	}
}

// What a handler leaves behind is left alone where the ConsumerLock was released.
func TestDaemonIsLeft(t *testing.T) {
	b := newBench(t)
	t.Setenv("DISPATCH_TEST_WORK", "exec sleep 1000")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `"$T" lock "$THREAD_DIR" c release > "$D/left"; ` + drain})
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	pid, err := strconv.Atoi(strings.TrimSpace(b.read("left")))
	if err != nil || !alive(pid) {
		t.Fatalf("process %d has ended, %v", pid, err)
	}
	b.kill(pid)
}

// holdConsumer locks a consumer and starts a process for it, which continues. Then it waits to
// be killed, or as how says does so itself, or releases the lock.
func holdConsumer(dir, consumer, how string) error {
	t, err := engine.Open(dir)
	if err != nil {
		return err
	}
	turn, err := LockConsumer(context.Background(), t, consumer)
	if err != nil {
		return err
	}
	worker, err := command.Start(command.Spec{Argv: []string{"sh", "-c", cmp.Or(os.Getenv("DISPATCH_TEST_WORK"), "sleep 1000")},
		Env: append(os.Environ(), turn.Environment()...), Tree: turn.Work()})
	if err != nil {
		return err
	}
	fmt.Println(worker.Pid)
	switch how {
	case "die":
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
	case "release":
		return turn.Release(context.Background())
	}
	time.Sleep(time.Hour) // killed before
	return nil
}

// A supervisor that is killed before it has noted which process the handler is: the
// handler continues, and what it prints is kept.
func TestKilledBeforeHandlerIsNoted(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("leave")
	t.Setenv("DISPATCH_TEST_DIE_AT", "started")
	t.Setenv("DISPATCH_TEST_DIED", b.path("died"))
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $$ > "$D/at"; read x < "$D/leave"; echo said; ` + drain})
	last := b.push("s")
	b.dispatch(Options{})
	b.awaitLog(fmt.Sprint("adopted pid=", at.numbers()[0]), 1)
	leave.say()
	b.awaitIdle()
	if got := b.acked("c"); got != last {
		t.Errorf("acked %d, want %d", got, last)
	}
	if out, err := os.ReadFile(OutputPath(b.t.Dir(), "c")); string(out) != "said\n" {
		t.Errorf("the output is %q, %v", out, err)
	}
	if strings.Contains(b.log(), "runs again in") {
		t.Errorf("a handler that went on is no failure:\n%s", b.log())
	}
}

// A handler that kills its supervisor each time does not spin, and is stopped
// like any that fails.
func TestHandlerKillsSupervisor(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; echo $$ >> "$D/pids"; kill -9 $PPID; exit 3`})
	b.push("s")
	b.dispatch(Options{})
	b.awaitLog("[ERROR] supervise: consumer=c stalled after 5 failed runs", 1)
	b.awaitIdle()
	if got := b.lines("runs"); len(got) != maxTries {
		t.Errorf("%d runs, want %d", len(got), maxTries)
	}
	for _, pid := range b.lines("pids") {
		if n, err := strconv.Atoi(pid); err != nil || alive(n) {
			t.Errorf("handler %s is alive: %v", pid, err)
		}
	}
	if s := b.state("c"); !s.Stalled || s.Failures != maxTries {
		t.Errorf("state %+v", s)
	}
}

// A thread that is deleted stays so, whatever comes late: who looks for a consumer's
// record, and what its handler prints.
func TestDeletedStaysDeleted(t *testing.T) {
	b := newBench(t)
	o, err := b.r.openOutput("c")
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	gone := func(when string) {
		t.Helper()
		if _, err := os.Lstat(b.t.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: %v", when, err)
		}
	}
	// Only logs/ is deleted: it comes back.
	if err := os.RemoveAll(filepath.Join(b.t.Dir(), "logs")); err != nil {
		t.Fatal(err)
	}
	record, err := b.r.tryRecord("c")
	if err != nil {
		t.Fatal(err)
	}
	release(record)
	if _, err := o.Write([]byte("one\n")); err != nil || b.read("thread/logs/handlers/c.log") != "one\n" {
		t.Errorf("%q, %v", b.read("thread/logs/handlers/c.log"), err)
	}
	o.log.Close() // as a rotation does
	if err := os.RemoveAll(b.t.Dir()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.r.tryRecord("c"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of a deleted thread: %v", err)
	}
	gone("after the record")
	if n, err := o.Write([]byte("two\n")); n != 4 || err != nil {
		t.Errorf("the handler is held up: %d, %v", n, err)
	}
	gone("after the output")
	if _, err := b.r.openOutput("c"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the output of a deleted thread: %v", err)
	}
	gone("after another output")
}
