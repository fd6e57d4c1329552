//go:build linux

package dispatch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// later schedules an event as push --delay does.
func (b *bench) later(source string, delay time.Duration) (awaited bool) {
	b.Helper()
	ctx, at := context.Background(), time.Now().Add(delay)
	if _, err := b.t.PushAt(ctx, event.Draft{Source: source, Type: "t"}, at); err != nil {
		b.Fatal(err)
	}
	awaited, err := Rescheduled(ctx, b.t, at)
	if err != nil {
		b.Fatal(err)
	}
	return awaited
}

// waiters returns the processes that wait or dispatch after a push.
func (b *bench) waiters() (list []int) {
	b.Helper()
	c, err := search(b.t.Dir(), []string{superviseVerb})
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range c.found {
		if p.mode == modeWake {
			list = append(list, p.pid)
		}
	}
	return list
}

// awaitTimer waits until a process listens for earlier times, and returns it.
func (b *bench) awaitTimer() int {
	b.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if list := b.waiters(); len(list) == 1 && b.r.sendTo(timerSocket, pingSchedule, "") {
			return list[0]
		}
	}
	b.Fatalf("nobody waits:\n%s", b.log())
	return 0
}

// awaitAcked waits until consumer c has processed n events, and releases none.
func (b *bench) awaitAcked(n int64) {
	b.Helper()
	still, err := engine.Open(b.t.Dir(), engine.WithClock(func() time.Time { return time.UnixMilli(0) })) // nothing is due by it
	if err != nil {
		b.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		d, err := still.DueFor(context.Background(), "c", 0)
		if err != nil {
			b.Fatal(err)
		}
		if d.Progress.LastAcked >= n {
			return
		}
	}
	b.Fatalf("%d events were not handled:\n%s", n, b.log())
}

// A delayed event is handled at its time without a server or another command, by
// one process for the whole thread, which learns of earlier times.
func TestDelayed(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain})
	if !b.later("last", time.Minute) {
		t.Fatal("nobody waits for the first")
	}
	pid := b.awaitTimer()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // it goes there when it listens
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if cwd == "/" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it keeps %s busy, %v", cwd, err)
		}
	}
	for range 5 {
		if !b.later("soon", 500*time.Millisecond) {
			t.Error("nobody was told of an earlier one")
		}
	}
	b.awaitTimer() // one that was started while the other one read its news ends at once
	b.awaitAcked(5)
	// Killed, it is replaced by the next one.
	pid = b.awaitTimer()
	syscall.Kill(pid, syscall.SIGKILL)
	b.awaitGone(pid)
	if !b.later("again", 300*time.Millisecond) {
		t.Error("nobody waits after a kill")
	}
	b.awaitAcked(6)
	// What is left is too far away to be tested; without it the process ends.
	pid = b.awaitTimer()
	syscall.Kill(pid, syscall.SIGKILL)
}

// What is far away, or repeated, is nobody's without a server, and says so.
func TestDelayedTooLong(t *testing.T) {
	b := newBench(t)
	if b.later("s", MaxTimerWait+time.Minute) || len(b.waiters()) > 0 {
		t.Error("somebody waits")
	}
	if RescheduledForever(b.t) {
		t.Error("a server was told")
	}
	t.Setenv(envDispatch, wakeNone)
	if b.later("s", time.Second) || len(b.waiters()) > 0 {
		t.Error("somebody waits with THREAD_DISPATCH=none")
	}
}

// A process that finds nothing to wait for does not stay.
func TestDelayedNoMore(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain})
	b.later("s", 200*time.Millisecond)
	b.later("s", MaxTimerWait+time.Minute)
	b.awaitIdle()
	if got := b.acked("c"); got != 1 {
		t.Errorf("acked %d", got)
	}
	if _, err := os.Lstat(filepath.Join(b.t.Dir(), "run", timerSocket)); err == nil {
		t.Error("the socket is left")
	}
}
