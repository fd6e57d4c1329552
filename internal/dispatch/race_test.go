//go:build linux

package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
)

// T-62: A push that lands while the handler makes its last empty pop: its dispatch
// sees the lock held, and the supervisor looks after the release.
func TestPushDuringLastEmptyPop(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain + `; echo $n > "$D/at"; read x < "$D/go"`})
	b.push("s")
	b.dispatch(Options{})
	if got := at.line(); got != "1" { // 1. the handler has popped everything
		t.Fatalf("popped up to %s", got)
	}
	b.push("s") // 2. another event
	b.dispatch(Options{})
	b.awaitLog("dispatch: consumer=c skipped (lock held)", 1) // 3. whose dispatch starts nothing
	leave.say()                                               // 4. the handler exits
	if got := at.line(); got != "2" {                         // 5. and runs again
		t.Fatalf("popped up to %s", got)
	}
	leave.say()
	b.awaitIdle()
}

// A push between the supervisor's last look and its release of the lock.
func TestPushBetweenLookAndRelease(t *testing.T) {
	for _, tc := range []struct{ name, handler string }{
		{"nothing was pending", drain},
		{"the handler never acks", `true`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			meeting, answer := b.fifo("meet"), b.fifo("meet.go")
			t.Setenv("DISPATCH_TEST_STOP_AT", "decided")
			t.Setenv("DISPATCH_TEST_MEET", b.path("meet"))
			b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + tc.handler})
			b.push("s")
			b.dispatch(Options{})
			meeting.line() // 1. the supervisor has decided that nothing follows
			b.push("s")    // 2. an event
			b.dispatch(Options{})
			b.awaitLog("dispatch: consumer=c skipped (lock held)", 1) // 3. whose dispatch is too early
			answer.say()                                              // 4. the supervisor releases
			meeting.line()                                            // 5. and has run the handler again
			answer.say()
			b.awaitIdle()
			if got := b.lines("runs"); len(got) != 2 {
				t.Errorf("%d runs, want 2", len(got))
			}
		})
	}
}

// A seek while the handler is about to end, whose own dispatch sees the lock held:
// the progress is the same as at the start, and nothing is new.
func TestSeekBeforeTheEnd(t *testing.T) {
	b := newBench(t)
	at, answer := b.fifo("at"), b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain + `; echo drained > "$D/at"; read x < "$D/go"`})
	b.push("s")
	b.dispatch(Options{})
	at.line()
	if err := b.t.Seek(t.Context(), "c", 0); err != nil {
		t.Fatal(err)
	}
	b.dispatch(Options{})
	b.awaitLog("dispatch: consumer=c skipped (lock held)", 1)
	answer.say()
	at.line()
	answer.say()
	b.awaitIdle()
	if got := b.lines("runs"); len(got) != 2 {
		t.Errorf("%d runs, want 2", len(got))
	}
}

// T-64.
func TestTwentyDispatchesStartOneHandler(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; echo $$ > "$D/at"; read x < "$D/go"; ` + drain})
	b.push("s")
	dispatches := make([]*exec.Cmd, 20)
	for i := range dispatches {
		dispatches[i] = b.command("dispatch", "--thread", b.t.Dir())
		if err := dispatches[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	at.line()
	for _, d := range dispatches {
		if err := d.Wait(); err != nil {
			t.Error(err)
		}
	}
	leave.say()
	b.awaitIdle()
	if got := b.lines("runs"); len(got) != 1 {
		t.Errorf("%d runs, want 1", len(got))
	}
	if n := strings.Count(b.log(), "skipped (lock held)"); n != 19 {
		t.Errorf("%d dispatches say that the lock is held, want 19", n)
	}
}

// killed is a handler whose first run tells its own, its child's and its
// supervisor's process, and waits for leave to continue; each run pops everything then, and
// tells its process and how many of the first ones are alive. A process that has
// got its SIGKILL has no command line any more, even if it is not quite gone.
const killed = `
if [ ! -e "$D/first" ]; then
	sleep 1000 & echo $$ $! > "$D/first"; echo $$ $! $PPID > "$D/at"; read x < "$D/leave"; kill -9 $!; echo said
	` + drain + `
	exit
fi
left=0
for pid in $(cat "$D/first"); do [ -n "$(tr -d '\0' 2>/dev/null < /proc/$pid/cmdline)" ] && left=$((left+1)); done 2>/dev/null
` + drain + `
echo $$ $left > "$D/at"`

// Whatever is killed, in whatever order: a handler that still runs continues and is
// supervised, the process that does it; one that was killed runs again without a push, and
// never next to what is left of it.
func TestKill(t *testing.T) {
	standbyOf := func(b *bench, supervisor int) int {
		list, err := supervisors(b.t.Dir())
		if err != nil {
			b.Fatal(err)
		}
		for _, pid := range list {
			if pid != supervisor {
				return pid
			}
		}
		b.Fatalf("no standby among %v", list)
		return 0
	}
	for _, order := range []string{"handler", "supervisor", "supervisor handler", "handler supervisor", "supervisor standby", "standby supervisor", "standby supervisor handler"} {
		t.Run(order, func(t *testing.T) {
			b := newBench(t)
			at, leave := b.fifo("at"), b.fifo("leave")
			b.subscribe(engine.Subscription{Consumer: "c", Handler: killed})
			b.push("s")
			b.dispatch(Options{})
			first := at.numbers() // handler, its child, supervisor
			b.awaitLog("standby pid=", 1)
			standby := standbyOf(b, first[2])
			for _, who := range strings.Fields(order) {
				b.kill(map[string]int{"handler": first[0], "supervisor": first[2], "standby": standby}[who])
			}
			if strings.Contains(order, "standby") {
				// Both are gone, unless the supervisor has replaced the standby before
				// it was killed: no process is left, and the next dispatch repairs it.
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				awaitDeath(ctx, first[2])
				awaitDeath(ctx, standby)
				b.dispatch(Options{})
			}
			if strings.Contains(order, "handler") {
				second := at.numbers()
				if first[0] == second[0] || second[1] != 0 {
					t.Errorf("second run (process, processes of the first run left) is %v, first was %v", second, first)
				}
			} else {
				b.awaitLog(fmt.Sprint("adopted pid=", first[0]), 1)
				if s := b.state("c"); !s.Running || s.Interrupted {
					t.Errorf("adopted, its state is %+v", s)
				}
				b.push("s")
				b.dispatch(Options{})
				b.awaitLog("dispatch: consumer=c skipped (lock held)", 1)
				if !alive(first[0]) || !alive(first[1]) {
					t.Error("the handler, or its child, was killed")
				}
				leave.say()
			}
			b.awaitIdle()
			if got := b.acked("c"); got == 0 {
				t.Errorf("acked %d", got)
			}
			if strings.Contains(b.log(), "runs again in") != strings.Contains(order, "handler") {
				t.Error("a handler that went on is no failure, one that was killed is")
			}
			if s := b.state("c"); s.Interrupted {
				t.Error("still said to be interrupted")
			}
			if out, err := os.ReadFile(OutputPath(b.t.Dir(), "c")); order == "supervisor" && string(out) != "said\n" {
				t.Errorf("an adopted handler's output is %q, %v", out, err)
			}
		})
	}
}

// A standby that is killed is replaced.
func TestGuardIsReplaced(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $PPID > "$D/at"; read x < "$D/go"; ` + drain})
	b.push("s")
	b.dispatch(Options{})
	supervisor := at.numbers()[0]
	for i := range 3 {
		b.awaitLog("standby pid=", i+1)
		list, err := supervisors(b.t.Dir())
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range list {
			if pid != supervisor {
				b.kill(pid)
			}
		}
	}
	b.awaitLog("standby pid=", 4)
	leave.say()
	b.awaitIdle()
	if got := b.acked("c"); got != 1 {
		t.Errorf("acked %d, want 1", got)
	}
}

// deaths is how many supervisors die in TestKilledAtTheStart.
const deaths = 8

// dieEarly kills this process, unless enough were killed before it. Each leaves
// the time in the file.
func dieEarly(path string) {
	if text, _ := os.ReadFile(path); bytes.Count(text, []byte("\n")) < deaths {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f, time.Now().UnixMilli())
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
}

// Supervisors that die before they have done anything do not keep the host busy,
// and the consumer runs all the same.
func TestKilledAtTheStart(t *testing.T) {
	b := newBench(t)
	done := b.fifo("done")
	t.Setenv("DISPATCH_TEST_DEATHS", b.path("deaths"))
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain + `; echo 1 > "$D/done"`})
	b.push("s")
	b.dispatch(Options{})
	done.numbers()
	b.awaitIdle()
	if got := b.acked("c"); got != 1 {
		t.Errorf("acked %d, want 1", got)
	}
	var at []int64
	for _, line := range b.lines("deaths") {
		ms, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		at = append(at, ms)
	}
	if len(at) != deaths {
		t.Fatalf("%d supervisors died", len(at))
	}
	for n := 1; n < len(at); n++ {
		// The first has taken over no process, the second after one.
		if took := time.Duration(at[n]-at[n-1]+1) * time.Millisecond; took < takeoverDelay(n) {
			t.Errorf("takeover %d after %v, want a pause of %v", n, took, takeoverDelay(n))
		}
	}
}

func TestPause(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 0, 3: 0, 4: 50 * time.Millisecond, 5: 100 * time.Millisecond, 10: 3200 * time.Millisecond, 11: 5 * time.Second, 1000: 5 * time.Second} {
		if got := takeoverDelay(n); got != want {
			t.Errorf("takeover %d pauses %v, want %v", n, got, want)
		}
	}
}

// Twenty dispatches while the supervisor is being killed: the handler continues, and
// no other one is started next to it.
func TestDispatchWhileSupervisorIsKilled(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: killed})
	b.push("s")
	b.dispatch(Options{})
	first := at.numbers()
	dispatches := make([]*exec.Cmd, 20)
	for i := range dispatches {
		if i == 10 {
			b.kill(first[2])
		}
		dispatches[i] = b.command("dispatch", "--thread", b.t.Dir())
		if err := dispatches[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range dispatches {
		if err := d.Wait(); err != nil {
			t.Error(err)
		}
	}
	b.awaitLog(fmt.Sprint("adopted pid=", first[0]), 1)
	leave.say()
	b.awaitIdle()
	if line, err := at.next(1); err == nil {
		t.Errorf("a second run: %s", line)
	}
}

// A daemon that a handler leaves behind holds neither the lock nor the log; one
// that is left without supervision does not hold up the consumer either.
func TestHandlerLeavesDaemon(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain + `; echo said; sleep 1000 & echo $! > "$D/at"`})
	var daemons []int
	for range 2 {
		b.push("s")
		b.dispatch(Options{})
		daemons = append(daemons, at.numbers()[0])
		b.awaitIdle()
	}
	for _, pid := range daemons {
		if !alive(pid) {
			t.Error("a daemon was killed")
		}
		b.kill(pid)
	}
	out, err := os.ReadFile(OutputPath(b.t.Dir(), "c"))
	if err != nil || string(out) != "said\nsaid\n" {
		t.Errorf("log %q, %v", out, err)
	}
}
