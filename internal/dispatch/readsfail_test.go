//go:build linux

package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
	"thread/internal/store"
)

var errRead = errors.New("it cannot be read")

// unreadable is a store of which one transaction fails.
type unreadable struct {
	store.Store
	at   int // how many there are until then, with it; less than 1: none fails
	more int // how many fail after it
}

func (u *unreadable) fails() bool {
	u.at--
	if u.at < 0 && u.more > 0 {
		u.more--
		return true
	}
	return u.at == 0
}

func (u *unreadable) View(ctx context.Context, fn func(tx store.Tx) error) error {
	if u.fails() {
		return errRead
	}
	return u.Store.View(ctx, fn)
}

func (u *unreadable) Update(ctx context.Context, fn func(s store.Session) error) error {
	if u.fails() {
		return errRead
	}
	return u.Store.Update(ctx, fn)
}

// unreadableThread opens the directory of a thread.
func unreadableThread(t *testing.T, dir string) (*engine.Thread, *unreadable) {
	t.Helper()
	reads := &unreadable{}
	return openAs(t, dir, "", func(s store.Store) store.Store {
		reads.Store = s
		return reads
	}), reads
}

// eachRead calls ask with the failure of each transaction that it makes. It is to give the
// error, or what it gives without one.
func eachRead(t *testing.T, reads *unreadable, least int, ask func() (any, error)) {
	t.Helper()
	want, err := ask()
	must(t, err)
	for at := 1; ; at++ {
		reads.at = at
		got, err := ask()
		if reads.at > 0 { // there were fewer
			reads.at = 0
			if err != nil || at <= least {
				t.Errorf("transaction %d: %v", at, err)
			}
			return
		}
		if !errors.Is(err, errRead) && (err != nil || !reflect.DeepEqual(got, want)) {
			t.Errorf("transaction %d fails: %+v, want %+v; %v", at, got, want, err)
		}
	}
}

// TestReadsFail: what is asked of a thread that cannot be read is answered, or an error.
func TestReadsFail(t *testing.T) {
	t.Setenv(envDispatch, wakeNone) // else a process waits for the delayed event, and looks
	ctx := context.Background()
	dir := filepath.Join(faults.Dir(t), "t")
	must(t, withEvent(t, dir, "true").Close())
	th, reads := unreadableThread(t, dir)
	leaveRunning(t, th)
	r := newDispatcher(th, Options{})
	must(t, r.writeNote("c", note{Unpopped: true}))
	server, err := NewServer(ctx, th)
	must(t, err)
	defer server.Close()
	b := &bench{TB: t, t: th}
	b.later("s", time.Minute)
	for what, ask := range map[string]func() (any, error){
		"active":    func() (any, error) { return Active(ctx, th) },
		"running":   func() (any, error) { return Running(ctx, th) },
		"unpopped":  func() (any, error) { return Unpopped(ctx, th) },
		"due":       func() (any, error) { return server.Due(ctx) },
		"pending":   func() (any, error) { return server.Pending(ctx) },
		"delayed":   func() (any, error) { return r.nextDelayed(ctx) },
		"names":     func() (any, error) { return r.subscribedNames(ctx) },
		"due for c": func() (any, error) { return r.dueFor(ctx, "c", 0) },
		"retain":    func() (any, error) { return nil, Retain(ctx, th) },
		"forget": func() (any, error) {
			_ = os.Remove(filepath.Join(r.run, ".forgotten"))
			return nil, r.forget(ctx, time.Now())
		},
	} {
		t.Run(what, func(t *testing.T) { eachRead(t, reads, 1, ask) })
	}
}

// TestTransactionsOfARunFail: whatever transaction of a run fails, this is said, and the event
// is handled, then or at the next look; nothing stays locked.
func TestTransactionsOfARunFail(t *testing.T) {
	quickly(t)
	exe, err := os.Executable()
	must(t, err)
	t.Setenv("T", exe)
	for at, more := 1, true; more; at++ {
		dir := filepath.Join(faults.Dir(t), "t")
		must(t, withEvent(t, dir, drain).Close())
		th, reads := unreadableThread(t, dir)
		reads.at = at
		err := serveOnce(th)
		more = reads.at <= 0
		reads.at = 0
		b := &bench{TB: t, t: th}
		if more && !errors.Is(err, errRead) && !strings.Contains(b.log(), errRead.Error()) && at != 2 { // of its trace
			t.Errorf("transaction %d fails, and nothing is said: %v\n%s", at, err, b.log())
		}
		if !more && (err != nil || strings.Contains(b.log(), "[ERROR]")) {
			t.Errorf("no transaction fails: %v\n%s", err, b.log())
		}
		if unread(t, th) {
			must(t, serveOnce(th))
		}
		if unread(t, th) {
			t.Errorf("transaction %d has failed, and the event is unread after another run\n%s", at, b.log())
		}
		lockAndRelease(t, th)
	}
}

// TestTransactionsOfALockFail: a consumer that cannot be read is not locked, and what is unread
// when it is released is looked at.
func TestTransactionsOfALockFail(t *testing.T) {
	quickly(t)
	ctx := context.Background()
	dir := filepath.Join(faults.Dir(t), "t")
	must(t, withEvent(t, dir, "true").Close())
	th, reads := unreadableThread(t, dir)
	eachRead(t, reads, 2, func() (any, error) {
		held, err := LockConsumer(ctx, th, "c")
		if err != nil {
			return nil, err
		}
		return nil, held.Release(ctx)
	})
	lockAndRelease(t, th)
	must(t, th.Unsubscribe(ctx, "c"))
	must(t, th.Subscribe(ctx, engine.Subscription{Consumer: "c", Pull: true}))
	reads.at = 1
	if _, err := TakeNext(ctx, th, "c", engine.NextOptions{}); !errors.Is(err, errRead) {
		t.Errorf("taken: %v", err)
	}
}

// TestConsumerCannotBeLocked: a consumer is not locked where one of its locks cannot be had, what
// is left of a run cannot be looked for, or its end cannot be noted.
func TestConsumerCannotBeLocked(t *testing.T) {
	t.Setenv(envDispatch, wakeNone)
	for what, f := range map[string]*faults.Fault{
		"its lock":              faults.Nth(syscall.EIO, 1, "openat", "run/c.lock"),
		"its record":            faults.Nth(syscall.EIO, 1, "openat", "handlers/c.run"),
		"its supervisor's lock": faults.Nth(syscall.EIO, 1, "openat", "run/c.busy"),
		"its work lock":         faults.Nth(syscall.EIO, 1, "openat", "run/c.turn"),
		"its tree lock":         faults.Nth(syscall.EIO, 1, "openat", "run/c.tree"),
		"its note":              faults.Nth(syscall.ENOSPC, 1, "pwrite64", "run/c.json"),
	} {
		th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
		leaveRunning(t, th)
		var err error
		var l *ConsumerLock
		f.Run(t, th.Dir(), func() { l, err = LockConsumer(context.Background(), th, "c") })
		if l != nil || f.Hit == nil || !errors.Is(err, f.Errno) {
			t.Errorf("%s: %v, %v after %v", what, l, err, f.Hit)
		}
		if n := newDispatcher(th, Options{}).readNote("c"); n.State != stateRunning && what != "its work lock" {
			t.Errorf("%s: the note is %+v", what, n)
		}
		lockAndRelease(t, th)
		must(t, th.Close())
	}
}
