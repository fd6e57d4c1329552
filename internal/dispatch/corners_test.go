//go:build linux

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// TestStreak: what follows the endings of a handler on a server is what follows in a directory.
func TestStreak(t *testing.T) {
	var s Streak
	failed := Ended{Pending: true}
	for n := 1; n < maxTries; n++ {
		if run, delay := s.After(failed); !run || delay != backoff(n) {
			t.Errorf("failure %d: %v after %v", n, run, delay)
		}
	}
	if run, _ := s.After(failed); run {
		t.Error("it runs after the last try")
	}
	if run, delay := s.After(failed); !run || delay != backoff(1) {
		t.Errorf("afresh: %v after %v", run, delay)
	}
	for _, tt := range []struct {
		e   Ended
		run bool
	}{
		{Ended{OK: true}, false}, {Ended{OK: true, Pending: true}, false}, {Ended{OK: true, Pending: true, Moved: true}, true},
		{Ended{OK: true, Pending: true, Fresh: true}, true}, {Ended{}, false},
	} {
		var s Streak
		if run, delay := s.After(tt.e); run != tt.run || delay != 0 {
			t.Errorf("%+v: %v after %v", tt.e, run, delay)
		}
	}
}

// TestSuperviseByHand: what is not started by a dispatch is told so, and changes nothing.
func TestSuperviseByHand(t *testing.T) {
	for want, args := range map[string][]string{
		"not by hand":      nil,
		"no value for -ma": {modeWork, "-max"},
		"unknown argument": {modeWork, "-thread", "x", "-what", "y"},
	} {
		if err := Supervise(context.Background(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// onServer opens a directory as a thread on a server is opened.
func onServer(t *testing.T) *engine.Thread {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t")
	th, err := engine.Init(dir)
	must(t, err)
	must(t, th.Close())
	return openAs(t, dir, "postgres://host/db?thread=t", func(s store.Store) store.Store { return s })
}

// openAs opens a directory as the thread at url, with what as makes of its store.
func openAs(t *testing.T, dir, url string, as func(s store.Store) store.Store) *engine.Thread {
	t.Helper()
	th := engine.OpenStore(url, store.Place{Dir: dir}, func(l store.Logic, _ time.Duration) store.Store {
		s, err := bolt.Open(dir, bolt.Options{Logic: l})
		must(t, err)
		return as(s)
	})
	t.Cleanup(func() { th.Close() })
	return th
}

// TestOnAServer: for a thread on a server nothing is started, told or removed here.
func TestOnAServer(t *testing.T) {
	th := onServer(t)
	ctx := context.Background()
	t.Setenv(envDispatch, wakeNotifier)
	awaited, err := Rescheduled(ctx, th, time.Now())
	if awaited || RescheduledForever(th) {
		t.Error("the schedule is awaited")
	}
	must(t, errors.Join(err, Wake(ctx, th, "s"), WakeUnsubscribed(ctx, th, "s"), Forget(ctx, th)))
	WakeServer(th)
	if exists(filepath.Join(th.Dir(), "run", ".forgotten")) || exists(filepath.Join(th.Dir(), "logs", "thread.log")) {
		t.Error("files were made")
	}
	if list, err := Unpopped(ctx, th); list != nil || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	r := newDispatcher(th, Options{})
	t.Setenv(envRunID, "1")
	for url, in := range map[string]bool{th.URL(): true, th.Dir(): false, "": false} {
		t.Setenv(envDir, url)
		if r.inHandler() != in {
			t.Errorf("in %q: %v", url, !in)
		}
	}
	if TurnsOf(th, "c") != nil {
		t.Error("there are turns without a server")
	}
	t.Setenv(envDispatch, wakeNone)
	if !StartsNobody() {
		t.Error("somebody is started")
	}
	t.Setenv(envDispatch, "")
	if StartsNobody() {
		t.Error("nobody is started")
	}
}

// board is a store.Board with these hosts.
type board struct {
	store.Board
	holder string
	ages   []time.Duration
	err    error
}

func (b *board) Holder(context.Context, string) (string, error) { return b.holder, b.err }
func (b *board) Notes(context.Context, string) (map[string]store.Note, error) {
	notes := map[string]store.Note{}
	for i, age := range b.ages {
		notes[fmt.Sprint(store.HostNote, i)] = store.Note{Age: age}
	}
	return notes, b.err
}

// TestWhyOnAServer: what is said of the hosts that serve a thread.
func TestWhyOnAServer(t *testing.T) {
	for want, b := range map[string]*board{
		"host 7 works for the consumer": {holder: "host 7", ages: []time.Duration{0}},
		"No process works for":          {ages: []time.Duration{store.HostFresh + 1}},
		"thread serve runs, and starts": {ages: []time.Duration{0, time.Hour}},
		"runs on 2 hosts, and one":      {ages: []time.Duration{0, 0}},
		"cannot be listed: not ready":   {err: errNotReady},
	} {
		a := explainHosts(context.Background(), b, "c")
		if !strings.Contains(a.Text, want) || (a.Place == PlaceRunning) != (b.holder != "") {
			t.Errorf("want %q: %+v", want, a)
		}
	}
	if consumers(1) != "another consumer" || consumers(2) != "2 other consumers" || times(1) != "once" || times(2) != "2 times" {
		t.Error("numbers")
	}
}

// TestPopped: what a handler has popped is recorded for its own run, consumer and thread only,
// and the greatest id is acked.
func TestPopped(t *testing.T) {
	ctx := context.Background()
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	for range 4 {
		_, err := th.Push(ctx, event.Draft{Source: "s", Type: "message", Content: "x"})
		must(t, err)
	}
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	variable, err := ForgetPopped(th, "c")
	must(t, err)
	name, value, _ := strings.Cut(variable, "=")
	for k, v := range map[string]string{name: value, envConsumer: "c", envRunID: "run", envDir: th.Dir()} {
		t.Setenv(k, v)
	}
	must(t, errors.Join(Popped(th, "c", 3), Popped(th, "c", 2), Popped(th, "other", 5)))
	t.Setenv(envRunID, "another")
	must(t, Popped(th, "c", 5))
	if exists(r.poppedPath("other")) {
		t.Error("another consumer's is recorded")
	}
	must(t, errors.Join(AckPopped(ctx, th, "c", "none"), AckPopped(ctx, th, "other", "run")))
	if b, err := th.Info(ctx); err != nil || b.Subscriptions[0].LastAcked != 0 {
		t.Errorf("acked without a record: %+v, %v", b.Subscriptions[0], err)
	}
	must(t, AckPopped(ctx, th, "c", "run"))
	if b, err := th.Info(ctx); err != nil || b.Subscriptions[0].LastAcked != 3 {
		t.Errorf("acked %d, %v", b.Subscriptions[0].LastAcked, err)
	}
	if _, err := ForgetPopped(th, "c"); err != nil || exists(r.poppedPath("c")) {
		t.Errorf("it is not forgotten: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(r.poppedPath("c"), "full"), 0o700)) // what is in the way is an error
	_, err = ForgetPopped(th, "c")
	for _, err := range []error{err, Popped(th, "c", 4), AckPopped(ctx, th, "c", "run")} {
		if err == nil {
			t.Error("a directory in place of the record")
		}
	}
	t.Setenv(name, "")
	must(t, Popped(th, "c", 4))
}

// TestFilesInTheWay: what cannot be opened, locked or replaced is an error, and no file of a
// thread that is gone comes back.
func TestFilesInTheWay(t *testing.T) {
	ctx := context.Background()
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	full := func(path string) { t.Helper(); must(t, os.MkdirAll(filepath.Join(path, "full"), 0o700)) }
	full(r.supervisorLockPath("c"))
	if s, err := Status(th, "c"); err == nil {
		t.Errorf("the state is %+v", s)
	}
	if list, err := Active(ctx, th); err == nil {
		t.Errorf("active are %+v", list)
	}
	if name, err := Running(ctx, th); err == nil {
		t.Errorf("running is %q", name)
	}
	if _, err := Why(ctx, th, "c", 1); err == nil {
		t.Error("it is explained")
	}
	must(t, os.RemoveAll(r.supervisorLockPath("c")))
	full(filepath.Join(r.run, ".serve"))
	if s, err := NewServer(ctx, th); err == nil {
		t.Errorf("served by %v", s)
	}
	if Served(th.Dir()) {
		t.Error("it is served")
	}
	must(t, os.RemoveAll(filepath.Join(r.run, ".serve")))
	server, err := NewServer(ctx, th)
	must(t, err)
	if !Served(th.Dir()) {
		t.Error("it is not served")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := NewServer(ended, th); !errors.Is(err, ErrServed) {
		t.Errorf("a second server: %v", err)
	}
	full(filepath.Join(r.run, wakeSocket))
	if _, err := server.Listen(); err == nil {
		t.Error("it listens behind a directory")
	}
	must(t, os.RemoveAll(filepath.Join(r.run, wakeSocket)))
	server.Close()
	if Served(th.Dir()) {
		t.Error("it is served after the end")
	}
	must(t, os.WriteFile(filepath.Join(r.run, ".serve"), nil, 0o600))
	if Served(th.Dir()) {
		t.Error("a file alone serves")
	}
	full(r.notePath("c"))
	if err := r.writeNote("c", note{State: stateIdle}); err == nil {
		t.Error("a note is in place of a directory")
	}
	if n := r.readNote("c"); n.State != stateIdle { // kept until it can be written
		t.Errorf("the note is %+v", n)
	}
	must(t, os.RemoveAll(r.notePath("c")))
	must(t, os.WriteFile(r.notePath("c"), make([]byte, 129*noteBytes), 0o600))
	must(t, r.writeNote("c", note{State: stateStalled}))
	if info, err := os.Stat(r.notePath("c")); err != nil || info.Size() > noteBytes || r.readNote("c").State != stateStalled {
		t.Errorf("%v, %+v, %v", info, r.readNote("c"), err)
	}
	l, err := r.tryRecord("c")
	must(t, err)
	must(t, l.Close())
	if err := writeRecord(l, &record{Consumer: "c"}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed record: %v", err)
	}
	if c := thinEnded(filepath.Join(th.Dir(), "gone")); c {
		t.Error("many runs in no directory")
	}
	must(t, th.Close())
	must(t, os.RemoveAll(th.Dir()))
	for what, err := range map[string]error{"listen": second(server.Listen()), "run": second(server.Run(ctx, "c", false, nil)), "renew": server.Renew(), "dispatch": Run(ctx, th, Options{})} {
		if err == nil {
			t.Errorf("%s in a directory that is gone", what)
		}
	}
	if exists(th.Dir()) {
		t.Error("it is back")
	}
}

// TestActive: what waits for a retry is active, and so is what runs, by name.
func TestActive(t *testing.T) {
	ctx := context.Background()
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	now := time.Now().Round(time.Second)
	notes := map[string]note{
		"a": {State: stateWaiting, RetryAt: &now, EndedAt: &now}, "b": {State: stateRunning, RunID: "run", StartedAt: now},
		"c": {State: stateStopped}, "d": {State: stateWaiting, RetryAt: &now},
	}
	held := map[string]*lock.File{}
	for name, n := range notes {
		if name != "c" {
			must(t, th.Subscribe(ctx, engine.Subscription{Consumer: name, Handler: "true"}))
		}
		must(t, r.writeNote(name, n))
		l, err := lock.Try(r.supervisorLockPath(name), lock.Exclusive)
		must(t, err)
		held[name] = l
	}
	list, err := Active(ctx, th)
	must(t, err)
	got := ""
	for _, a := range list {
		got += fmt.Sprintf("%s %v %s %v %v, ", a.Consumer, a.Running, a.RunID, a.RetryAt.Equal(now), a.Since.Equal(now))
	}
	if want := "a false  true true, b true run false true, d false  true false, "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if name, err := Running(ctx, th); name != "b" || err != nil {
		t.Errorf("%q runs, %v", name, err)
	}
	for l := range maps.Values(held) {
		release(l)
	}
	if list, err := Active(ctx, th); len(list) > 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	for name, want := range map[string]bool{"a": true, "b": true, "c": false, "d": true} {
		if s, err := Status(th, name); err != nil || s.Interrupted != want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}
