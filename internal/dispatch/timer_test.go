//go:build linux

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/lock"
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

// What is far away, or repeated, is left to no process without a server, and says so.
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

// A due event that cannot be released is tried again, but not for ever.
func TestDelayedCannotBeReleased(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	defer func(delay time.Duration) { firstDelay = delay }(firstDelay)
	firstDelay = time.Millisecond
	asked := 0
	// By its clock nothing is due.
	still, err := engine.Open(b.t.Dir(), engine.WithClock(func() time.Time { asked++; return time.UnixMilli(1) }))
	must(t, err)
	defer still.Close()
	b.later("s", 50*time.Millisecond)
	if err := newDispatcher(still, Options{}).awaitScheduled(t.Context()); !errors.Is(err, errUnreleased) {
		t.Errorf("%v", err)
	}
	if asked < maxTries {
		t.Errorf("it was tried %d times", asked)
	}
}

// The process that waits ends with its context, leaves neither lock nor socket, and does
// not wait where a server does.
func TestDelayedIsCalledOff(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	b.later("s", 50*time.Minute)
	free := func() bool {
		held, err := isHeld(filepath.Join(b.t.Dir(), "run", timerLock))
		must(t, err)
		_, err = os.Lstat(filepath.Join(b.t.Dir(), "run", timerSocket))
		return !held && os.IsNotExist(err)
	}
	wd, err := os.Getwd()
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.r.awaitScheduled(ctx) }()
	// A ping would wake it, and it is without the lock for a moment then.
	b.until("it waits with the lock", func() bool {
		_, err := os.Lstat(filepath.Join(b.t.Dir(), "run", timerSocket))
		return err == nil && !free()
	})
	if err := b.r.awaitScheduled(t.Context()); err != nil { // a second one ends at once
		t.Errorf("beside another one: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
	if now, err := os.Getwd(); now != wd || err != nil {
		t.Errorf("it leaves the process in %s, %v", now, err)
	}
	if !free() {
		t.Error("lock or socket are left")
	}
	must(t, b.r.prepare())
	pings, err := b.r.listen()
	must(t, err)
	defer pings.Close()
	if err := b.r.awaitScheduled(t.Context()); err != nil || !free() {
		t.Errorf("beside a server: %v", err)
	}
	if p, err := pings.Next(); err != nil || p.Push {
		t.Errorf("the server is told %+v, %v", p, err)
	}
	t.Setenv(envDispatch, wakeSpawn)
	if !b.later("s", time.Minute) || !RescheduledForever(b.t) || len(b.waiters()) > 0 {
		t.Error("a process waits beside the server")
	}
}

// A lock that its holder is about to release is not waited for: the holder looks.
func TestDelayedBesideAnEndingHolder(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	b.later("s", time.Minute)
	must(t, b.r.prepare())
	l, err := lock.Try(filepath.Join(b.t.Dir(), "run", timerLock), lock.Exclusive)
	must(t, err)
	defer release(l)
	must(t, b.r.awaitScheduled(t.Context()))
}

// The process that waits ends where it cannot be told of an earlier event.
func TestDelayedWithoutSocket(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	b.later("s", time.Minute)
	must(t, os.MkdirAll(filepath.Join(b.t.Dir(), "run", timerSocket, "in the way"), 0o700))
	if err := b.r.awaitScheduled(t.Context()); err == nil {
		t.Error("it has waited")
	}
}
