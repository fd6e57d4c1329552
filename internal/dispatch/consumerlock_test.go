//go:build linux

package dispatch

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// TestLockInHandler: of the processes of a handler one at a time has the consumer, also after
// run/ was deleted; a process of another run has it never.
func TestLockInHandler(t *testing.T) {
	b := newBench(t)
	id := b.inHandlerOf("c")
	ctx := t.Context()
	excludes := func(when string, envOf map[string]string) {
		t.Helper()
		first, err := LockConsumer(ctx, b.t, "c")
		if err != nil || !first.Supervised() || first.Environment() != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if _, err := LockConsumer(ctx, b.t, "c"); !errors.Is(err, ErrHandled) {
			t.Errorf("%s: locked twice: %v", when, err)
		}
		must(t, first.Release(ctx))
		for name, value := range envOf {
			was := os.Getenv(name)
			os.Setenv(name, value)
			if l, err := LockConsumer(ctx, b.t, "c"); !errors.Is(err, ErrHandled) {
				t.Errorf("%s, with %s=%s: %v", when, name, value, err)
				if err == nil {
					must(t, l.Release(ctx))
				}
			}
			os.Setenv(name, was)
		}
	}
	others := map[string]string{envRunID: strings.Repeat("0", 32), envConsumer: "d", envDir: b.dir}
	excludes("in run "+id, others)
	must(t, os.RemoveAll(b.r.run))
	excludes("without run/", others)
	others[envRunID] = ""
	excludes("without run/, outside a run", others)
}

// TestDeadLettersOfARun: a run in which events became dead letters has failed, although its
// handler exits with 0; the run after it has not.
func TestDeadLettersOfARun(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	server := b.server()
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $THREAD_RUN_ID > "$D/at"; read _ < "$D/leave"; ` + drain})
	t.Setenv(envDir, b.t.Dir())
	t.Setenv(envConsumer, "c")
	for _, dead := range [][]int64{{2, 0}, {}, {0}} {
		b.push("s")
		ran := make(chan error, 1)
		go func() { ran <- second(server.Run(t.Context(), "c", false, nil)) }()
		t.Setenv(envRunID, at.line())
		for _, d := range dead { // of several processes, one after the other
			l, err := LockConsumer(t.Context(), b.t, "c")
			must(t, err)
			l.Dead(d)
			must(t, l.Release(t.Context()))
		}
		leave.say()
		must(t, <-ran)
	}
	runs := b.endedRuns()
	if len(runs) != 3 {
		t.Fatalf("%+v", runs)
	}
	for n, code := range []string{codeDeadLetter, "", ""} {
		if r := runs[n]; r.ErrorCode != code || (r.Status == "completed") != (code == "") || r.Exit != "exit 0" {
			t.Errorf("run %d: %+v", n, r)
		}
	}
	if strings.Contains(b.log(), exitUnfinished) {
		t.Error("a lock that was released counts as held")
	}
}

// TestLockByHand: a process that releases the consumer's lock starts the handler for events
// that came meanwhile, and for nothing else.
func TestLockByHand(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain})
	runs := func(when string, want int) {
		t.Helper()
		b.awaitIdle()
		if got := len(b.lines("runs")); got != want {
			t.Fatalf("%s: %d runs, want %d\n%s", when, got, want, b.log())
		}
	}
	locked := func() *ConsumerLock {
		t.Helper()
		l, err := LockConsumer(ctx, b.t, "c")
		must(t, err)
		if env := l.Environment(); len(env) != 1 || !strings.HasPrefix(env[0], envRunID+"=") || l.Supervised() {
			t.Errorf("%q", env)
		}
		return l
	}
	must(t, locked().Release(ctx))
	runs("nothing is unread", 0)
	b.push("s")
	must(t, locked().Release(ctx))
	runs("nothing came meanwhile", 0)
	l := locked()
	b.push("s")
	b.dispatch(Options{})
	b.awaitLog("consumer=c skipped (lock held)", 1)
	must(t, l.Release(ctx))
	runs("an event came meanwhile", 1)
	if got := b.acked("c"); got != 2 {
		t.Errorf("acked %d", got)
	}
	// A dead letter that is sent back is unread again, and is behind the progress.
	b.push("s")
	feed := b.t.Feed("c", engine.Policy{MaxAttempts: 1})
	must(t, second(feed.Next(ctx, nil)))
	must(t, second(feed.Settle(ctx, engine.Result{Verdict: engine.Failed, Error: "no"})))
	feed.Close()
	l = locked()
	var letters []engine.DeadLetter
	for letter, err := range b.t.DeadLetters(ctx, engine.DeadLetterQuery{}) {
		must(t, err)
		letters = append(letters, letter)
	}
	if n, err := b.t.RetryDead(ctx, letters); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	must(t, l.Release(ctx))
	runs("a dead letter was sent back", 2)
}

// TestLockAfterKill: what is left of a run without a supervisor is noted when the consumer is
// locked, and does not keep others from it.
func TestLockAfterKill(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: "true"})
	leaveRunning(t, b.t)
	if s := b.state("c"); !s.Interrupted {
		t.Fatalf("%+v", s)
	}
	before := time.Now().Add(-time.Second)
	l, err := LockConsumer(t.Context(), b.t, "c")
	must(t, err)
	if list, err := supervisors(b.t.Dir()); err != nil || len(list) != 0 {
		t.Errorf("a process that would start handlers stands by with THREAD_DISPATCH=none: %v %v", list, err)
	}
	if s := b.state("c"); s.Interrupted || s.LastExit != unknownExit || s.LastExitAt == nil || s.LastExitAt.Before(before) {
		t.Errorf("%+v", s)
	}
	must(t, l.Release(t.Context()))
	if list := b.r.records(); len(list) != 0 {
		t.Errorf("a run is still recorded: %+v", list[0])
	}
}
