//go:build linux

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/lock"
)

func (b *bench) server() *Server {
	b.Helper()
	s, err := NewServer(context.Background(), b.t)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	return s
}

// run runs the consumer, and requires what came of it.
func (b *bench) run(s *Server, consumer string, onlyNew bool, ran bool) Outcome {
	b.Helper()
	o, err := s.Run(context.Background(), consumer, onlyNew, nil)
	if err != nil || o.Ran != ran || ran && !o.Look {
		b.Fatalf("%+v %v, want ran: %v", o, err, ran)
	}
	return o
}

// isServed reports whether another server would be refused.
func (b *bench) isServed() bool {
	b.Helper()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s, err := NewServer(ended, b.t)
	if err == nil {
		s.Close()
	} else if !errors.Is(err, ErrServed) {
		b.Fatal(err)
	}
	return err != nil
}

// TestOneServer: a thread has one server at a time, also when run/ is deleted meanwhile, and
// the next one waits for its end.
func TestOneServer(t *testing.T) {
	b := newBench(t)
	if Served(b.t.Dir()) {
		t.Error("served by nobody")
	}
	if _, err := os.Lstat(filepath.Join(b.r.run, ".serve")); err == nil {
		t.Error("the question makes the lock")
	}
	first := b.server()
	must(t, first.Renew())
	if !Served(b.t.Dir()) || !b.isServed() {
		t.Error("a second server is not refused")
	}
	next := make(chan *Server, 1)
	go func() {
		s, err := NewServer(context.Background(), b.t)
		must2(t, err)
		next <- s
	}()
	first.Close()
	second := <-next
	must(t, os.RemoveAll(b.r.run))
	if Served(b.t.Dir()) {
		t.Error("served without run/")
	}
	must(t, second.Renew())
	if !Served(b.t.Dir()) || !b.isServed() {
		t.Error("a second server is not refused after run/ was deleted")
	}
	must(t, os.RemoveAll(b.r.run))
	third := b.server()
	if err := second.Renew(); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("renewed beside another server: %v", err)
	}
	second.Close()
	if !b.isServed() {
		t.Error("the lock of the other server is released")
	}
	third.Close()
	must(t, os.RemoveAll(b.r.run))
	must(t, os.WriteFile(b.r.run, nil, 0o600))
	if err := third.Renew(); err == nil {
		t.Error("renewed without a lock")
	}
	must(t, os.Remove(b.r.run))
	if Served(b.t.Dir()) || b.isServed() {
		t.Error("served after its end")
	}
	must(t, os.RemoveAll(b.t.Dir()))
	if err := second.Renew(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("renewed without a thread: %v", err)
	}
	if s, err := NewServer(t.Context(), b.t); !errors.Is(err, os.ErrNotExist) || s != nil {
		t.Errorf("a server without a thread: %v", err)
	}
	if o, err := second.Run(t.Context(), "c", false, nil); !errors.Is(err, os.ErrNotExist) || o.Ran {
		t.Errorf("a run without a thread: %+v %v", o, err)
	}
	if _, err := os.Lstat(b.t.Dir()); err == nil {
		t.Error("a deleted thread is back")
	}
}

// TestServerLeavesStopped: what was left to the next push is run by a push, and by no other
// look before something new comes; and nothing is pending meanwhile.
func TestServerLeavesStopped(t *testing.T) {
	b := newBench(t)
	s := b.server()
	pending := func(want bool) {
		t.Helper()
		if got, err := s.Pending(t.Context()); err != nil || got != want {
			t.Errorf("pending: %v %v", got, err)
		}
	}
	where := "source = 's'"
	b.subscribe(engine.Subscription{Consumer: "c", Filter: &where, Handler: `echo run >> "$D/runs"`})
	runs := func(want int) {
		t.Helper()
		if got := len(b.lines("runs")); got != want {
			t.Errorf("%d runs, want %d", got, want)
		}
	}
	pending(false)
	if o := b.run(s, "c", false, false); o.Look || o.Retry != nil {
		t.Errorf("nothing is unread: %+v", o)
	}
	b.run(s, "nobody", false, false)
	b.push("s")
	pending(true)
	if o := b.run(s, "c", true, true); o.Retry != nil {
		t.Errorf("%+v", o)
	}
	runs(1)
	pending(false)
	b.push("other")
	pending(false)
	b.run(s, "c", true, false)
	runs(1)
	b.run(s, "c", false, true)
	runs(2)
	b.push("s")
	pending(true)
	b.run(s, "c", true, true)
	runs(3)
	pending(false)
	if n := strings.Count(b.log(), "dispatch: consumer=c spawned "); n != 3 {
		t.Errorf("%d runs are logged", n)
	}
}

// TestServerDue: the consumer with the oldest unread event comes first; one whose filter fails is
// left out and logged, and is not pending.
func TestServerDue(t *testing.T) {
	b := newBench(t)
	s := b.server()
	for consumer, filter := range map[string]string{"late": "source = 'late'", "early": "source = 'early'", "bad": "json_extract(content, '$.a') = 1"} {
		b.subscribe(engine.Subscription{Consumer: consumer, Filter: &filter, Handler: "true"})
	}
	b.push("bad") // its content is not JSON
	if got, err := s.Pending(t.Context()); err != nil || got {
		t.Errorf("a consumer whose filter fails is pending: %v", err)
	}
	b.push("early")
	b.push("late")
	due, err := s.Due(t.Context())
	must(t, err)
	var names []string
	for _, d := range due {
		names = append(names, d.Consumer)
	}
	if got := strings.Join(names, " "); got != "early late" {
		t.Errorf("due are %s", got)
	}
	b.awaitLog("consumer=bad skipped (filter: ", 1)
	if got, err := s.Pending(t.Context()); err != nil || !got {
		t.Errorf("nothing is pending: %v", err)
	}
	called, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Pending(called); !errors.Is(err, context.Canceled) {
		t.Errorf("pending, called off: %v", err)
	}
	if _, err := s.Due(called); !errors.Is(err, context.Canceled) {
		t.Errorf("due, called off: %v", err)
	}
}

// TestServerRetries: until the time of a retry no other process runs the consumer. The right
// can be given back, and the count of failures continues.
func TestServerRetries(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	s := b.server()
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; exit 3`})
	b.push("s")
	failures := func(want int, waits bool) {
		t.Helper()
		if st := b.state("c"); st.Failures != want || (st.RetryAt != nil) != waits || st.Interrupted == waits || st.LastExit != "exit 3" {
			t.Errorf("%+v", st)
		}
	}
	before := time.Now()
	first := b.run(s, "c", false, true).Retry
	if first == nil || first.Consumer != "c" || !first.At.After(before) {
		t.Fatalf("%+v", first)
	}
	failures(1, true)
	b.run(s, "c", false, false)
	if _, err := LockConsumer(t.Context(), b.t, "c"); !errors.Is(err, ErrHandled) {
		t.Errorf("locked beside a retry: %v", err)
	}
	b.run(s, "c", false, false) // also after that
	o, err := s.Resume(t.Context(), first, nil)
	if err != nil || !o.Ran || !o.Look || o.Retry == nil {
		t.Fatalf("%+v %v", o, err)
	}
	failures(2, true)
	o.Retry.Release()
	failures(2, false)
	again := b.run(s, "c", false, true).Retry
	failures(3, true)
	must(t, b.t.Ack(t.Context(), "c", 1))
	if o, err := s.Resume(t.Context(), again, nil); err != nil || o.Ran || !o.Look || o.Retry != nil {
		t.Errorf("run again for nothing: %+v %v", o, err)
	}
	if got := len(b.lines("runs")); got != 3 {
		t.Errorf("%d runs", got)
	}
	l, err := LockConsumer(t.Context(), b.t, "c")
	must(t, err)
	must(t, l.Release(t.Context()))
}

// TestResumeBesideAnother: a retry runs nothing when run/ was deleted: another process may
// have run the consumer meanwhile, and may do so still.
func TestResumeBesideAnother(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	s := b.server()
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; exit 3`})
	b.push("s")
	retry := b.run(s, "c", false, true).Retry
	must(t, os.RemoveAll(b.r.run))
	l, err := LockConsumer(t.Context(), b.t, "c")
	must(t, err)
	if o, err := s.Resume(t.Context(), retry, nil); err != nil || o.Ran || !o.Look || o.Retry != nil {
		t.Errorf("%+v %v", o, err)
	}
	if got := len(b.lines("runs")); got != 1 {
		t.Errorf("%d runs", got)
	}
	must(t, l.Release(t.Context()))
	b.run(s, "c", false, true).Retry.Release()
}

// TestServerHooks: the hooks of a run are called, each at its time: the consumer is locked
// until Ended has returned, and is not run again where the server ends.
func TestServerHooks(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	s := b.server()
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `trap 'exit 9' TERM; echo $HOOKED $THREAD_RUN_ID $$ > "$D/at"; while :; do read _ < "$D/leave" && exit 4; done`})
	b.push("s")
	for _, tc := range []struct {
		name         string
		abort, stop  bool // close the channel
		ends         bool
		exit         string
		retry, fails bool
	}{
		{"fails", false, false, false, "exit 4", true, true},
		{"fails while the server ends", false, false, true, "exit 4", false, false},
		{"is aborted", true, false, false, exitAborted, true, true},
		{"is stopped", false, true, false, "stopped with the server", false, false},
	} {
		abort, stop := make(chan struct{}), make(chan struct{})
		var order []string
		h := &Hooks{Abort: abort, Stop: stop, Ends: func() bool { return tc.ends },
			Env: func(string, int64) []string { order = append(order, "env"); return []string{"HOOKED=yes"} },
			Ended: func(ok bool) {
				order = append(order, fmt.Sprint("ended ", ok))
				if _, err := LockConsumer(context.Background(), b.t, "c"); !errors.Is(err, ErrHandled) {
					t.Errorf("%s: it is not locked: %v", tc.name, err)
				}
			},
			Start: func(id string, start func() (int, error)) error {
				pid, err := start()
				order = append(order, "start")
				go func() {
					if got, want := at.line(), fmt.Sprint("yes ", id, " ", pid); got != want {
						t.Errorf("the handler says %q, want %q", got, want)
					}
					switch {
					case tc.abort:
						close(abort)
					case tc.stop:
						close(stop)
					default:
						leave.say()
					}
				}()
				return err
			}}
		before := b.state("c").Failures
		o, err := s.Run(t.Context(), "c", false, h)
		if err != nil || !o.Ran || (o.Retry != nil) != tc.retry {
			t.Fatalf("%s: %+v %v", tc.name, o, err)
		}
		if got := strings.Join(order, ", "); got != "env, start, ended false" {
			t.Errorf("%s: called are %s", tc.name, got)
		}
		st := b.state("c")
		if st.LastExit != tc.exit || st.Failures > before != tc.fails || st.Left == tc.retry {
			t.Errorf("%s: %+v", tc.name, st)
		}
		if o.Retry != nil {
			o.Retry.Release()
		}
		if st.Left {
			if got, err := s.Pending(t.Context()); got || err != nil {
				t.Errorf("%s: it is pending for others than a server: %v", tc.name, err)
			}
			go func() { at.line(); leave.say() }()
			b.run(s, "c", true, true).Retry.Release() // the next server runs it
		}
	}
	failed := errors.New("no start")
	o, err := s.Run(t.Context(), "c", false, &Hooks{Start: func(string, func() (int, error)) error { return failed }})
	if err != nil || !o.Ran || b.state("c").LastExit != failed.Error() {
		t.Errorf("not started: %+v %v %+v", o, err, b.state("c"))
	}
	if o.Retry != nil {
		o.Retry.Release()
	}
}
