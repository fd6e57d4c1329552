package history

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/address"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// server is a server whose threads are directories. It keeps beats, by the clock c.
type server struct {
	dir  string
	host string // that opens a thread now
	c    *clock

	mu    sync.Mutex
	beats map[string]time.Time
	err   error         // of every beat, and of a read of beats
	told  chan struct{} // has one when a run has beaten since
}

// onServer makes a thread on a server, and opens its history.
func onServer(t *testing.T) (*server, *History) {
	t.Helper()
	s := &server{dir: t.TempDir(), host: "here", c: newClock(), beats: map[string]time.Time{}, told: make(chan struct{}, 1)}
	address.SetDriver(s)
	t.Cleanup(func() { address.SetDriver(nil) })
	ok(t, s.Init(ctx, serverURL))
	return s, s.history(t)
}

const serverURL = "postgres://db/app?thread=inbox"

// history opens the history on the present host.
func (s *server) history(t *testing.T) *History {
	t.Helper()
	h := one[*History](t)(Open(ctx, serverURL, WithClock(s.c.Now)))
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func (s *server) path(address string) string {
	return filepath.Join(s.dir, url.PathEscape(address[len("postgres://db/app?thread="):]))
}

func (s *server) Open(url string, opts []engine.Option) (*engine.Thread, error) {
	place := store.Place{Dir: filepath.Join(s.dir, s.host)}
	return engine.OpenStore(url, place, func(l store.Logic, _ time.Duration) store.Store {
		return &serverStore{s: s, path: s.path(url), logic: serverLogic{l, s}}
	}, opts...), nil
}

func (s *server) Init(_ context.Context, url string) error {
	th, err := engine.Init(s.path(url))
	if err != nil {
		return err
	}
	return th.Close()
}

func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// silent returns how long ago a run beat last, and whether that is known.
func (s *server) silent(run string) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.beats[run]
	return s.c.Now().Sub(at), known
}

// serverStore is opened by each call again, as the thread may be made meanwhile.
type serverStore struct {
	store.Store
	s     *server
	path  string
	logic store.Logic
}

func (b *serverStore) call(fn func(s store.Store) error) error {
	s, err := bolt.Open(b.path, bolt.Options{Logic: b.logic, Now: b.s.c.Now})
	if err != nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}

func (b *serverStore) View(ctx context.Context, fn func(tx store.Tx) error) error {
	return b.call(func(s store.Store) error {
		return s.View(ctx, func(tx store.Tx) error { return fn(serverTx{tx, b.s}) })
	})
}

func (b *serverStore) Update(ctx context.Context, fn func(s store.Session) error) error {
	return b.call(func(s store.Store) error { return s.Update(ctx, fn) })
}

func (b *serverStore) Close() error { return nil }

func (b *serverStore) Watch(context.Context) store.Watcher { return patient{} }

// patient does not know what is written, so it wakes early.
type patient struct{}

func (patient) Wait(ctx context.Context, until time.Time) error {
	return pause(ctx, min(time.Until(until), MinBeat))
}
func (patient) Close() error { return nil }

type serverTx struct {
	store.Tx
	s *server
}

type serverLogic struct {
	store.Logic
	s *server
}

func (l serverLogic) Write(tx store.Tx, batch bool, fn func(s store.Session) error) (store.Written, error) {
	return l.Logic.Write(serverTx{tx, l.s}, batch, fn)
}

func (b *serverStore) Beat(ctx context.Context, name string) error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if b.s.err == nil {
		b.s.beats[name] = b.s.c.Now()
		select {
		case b.s.told <- struct{}{}:
		default:
		}
	}
	return errors.Join(b.s.err, ctx.Err())
}

func (b *serverStore) StopBeat(_ context.Context, name string) error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	delete(b.s.beats, name)
	return nil
}

func (tx serverTx) Now() time.Time { return tx.s.c.Now() }

func (tx serverTx) Beats() (map[string]time.Duration, error) {
	tx.s.mu.Lock()
	defer tx.s.mu.Unlock()
	if tx.s.err != nil {
		return nil, tx.s.err
	}
	all := map[string]time.Duration{}
	for name, at := range tx.s.beats {
		all[name] = tx.s.c.Now().Sub(at)
	}
	return all, nil
}

// recovered is what Recover makes of run r.
func recovered(t *testing.T, h *History) bool {
	t.Helper()
	list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
	if is := row(t, h, "r"); (len(list) == 1) != (is.Status == Failed) {
		t.Errorf("%d recovered: %s", len(list), text(&is))
	}
	return len(list) == 1
}

// TestBeatsOnAServer: a run there lives while it beats, by the beats of the server alone, and
// nothing is kept of one that has ended.
func TestBeatsOnAServer(t *testing.T) {
	s, h := onServer(t)
	ok(t, h.touch(ctx, "r")) // there is no history yet
	h.stopBeat("r")
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}))
	if _, known := s.silent("r"); known {
		t.Error("it beats at its start, which its row has")
	}
	s.c.add(3 * DefaultBeat)
	if recovered(t, h) {
		t.Error("it is recovered before three intervals are over")
	}
	ok(t, r.BeatOnce(ctx))
	if d, known := s.silent("r"); !known || d != 0 {
		t.Errorf("it has beaten %v ago, %v", d, known)
	}
	s.c.add(3 * DefaultBeat)
	if is := row(t, h, "r"); !is.HeartbeatAt.Equal(s.c.Now().Add(-3 * DefaultBeat)) {
		t.Errorf("its row says %v, at %v", is.HeartbeatAt, s.c.Now())
	}
	if recovered(t, h) {
		t.Error("it is recovered before three intervals are over")
	}
	// A server that does not tell beats has none recovered.
	broken := errors.New("it does not answer")
	s.c.add(time.Hour)
	s.fail(broken)
	if list, _ := h.Recover(ctx, RecoverOptions{}); len(list) != 0 {
		t.Errorf("recovered without beats: %v", list)
	}
	if err := r.BeatOnce(ctx); !errors.Is(err, broken) {
		t.Errorf("it beats: %v", err)
	}
	s.fail(nil)
	if !recovered(t, h) {
		t.Error("it is not recovered")
	}
	if _, known := s.silent("r"); known {
		t.Error("the server keeps the beat of a run that was recovered")
	}
	if err := r.BeatOnce(ctx); !errors.Is(err, ErrRecovered) {
		t.Errorf("it beats: %v", err)
	}
	// One that ends itself.
	r = one[*Run](t)(h.StartRun(ctx, RunRow{ID: "other"}))
	ok(t, r.BeatOnce(ctx))
	ok(t, r.End(ctx, End{Status: Completed}))
	if _, known := s.silent("other"); known {
		t.Error("the server keeps the beat of a run that has ended")
	}
	ok(t, h.Close())
	if err := h.touch(ctx, "r"); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a beat of a closed history: %v", err)
	}
}

// TestWorkerOfThisHostDied: a supervised run whose worker died on this host is recovered at
// once; on any other host, and after a later attempt, its beats decide.
func TestWorkerOfThisHostDied(t *testing.T) {
	for what, tt := range map[string]struct {
		change func(h *History, path string) error // before recovery
		dead   bool
	}{
		"here":                 {func(*History, string) error { return nil }, true},
		"on another host":      {func(_ *History, path string) error { return os.Remove(path) }, false},
		"of an attempt before": {func(_ *History, path string) error { return os.WriteFile(path, []byte("7\n"), 0o600) }, false},
		"without a number":     {func(_ *History, path string) error { return os.WriteFile(path, nil, 0o600) }, false},
	} {
		s, h := onServer(t)
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised()))
		if recovered(t, h) {
			t.Fatalf("%s: recovered with its worker", what)
		}
		ok(t, errors.Join(r.lock.Close(), r.tree.Close())) // as when it is killed
		ok(t, tt.change(h, h.beatPath("r")))
		if got := recovered(t, h); got != tt.dead {
			t.Errorf("%s: recovered at once: %v", what, got)
		}
		s.c.add(3*DefaultBeat + time.Millisecond)
		if !tt.dead && !recovered(t, h) {
			t.Errorf("%s: not recovered without beats", what)
		}
	}
	// What it has left is ended first.
	_, h := onServer(t)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised()))
	ok(t, errors.Join(r.lock.Close(), r.tree.Close()))
	held := one[*lock.File](t)(lock.Try(h.treePath("r"), lock.Exclusive)) // by this process, which does not end itself
	if recovered(t, h) {
		t.Error("recovered beside its command")
	}
	ok(t, held.Close())
	if !recovered(t, h) {
		t.Error("not recovered when its command has ended")
	}
}

// TestWorkerIsCutOff: a worker that the server does not answer ends its run before another host
// may take it, and one whose run is cancelled is told.
func TestWorkerIsCutOff(t *testing.T) {
	s, h := onServer(t)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}))
	s.fail(errors.New("it does not answer"))
	began := time.Now()
	beating, stop := r.Beat(ctx, 2*MinBeat)
	<-beating.Done()
	stop()
	if cause := context.Cause(beating); !errors.Is(cause, ErrCutOff) || time.Since(began) < 2*MinBeat {
		t.Errorf("%v after %v", cause, time.Since(began))
	}
	s.fail(nil)
	beating, stop = r.Beat(ctx, 0) // cut off only on a host that is late by 20 seconds
	<-s.told
	one[RunRow](t)(h.Cancel(ctx, "r"))
	<-beating.Done()
	stop()
	if cause := context.Cause(beating); !errors.Is(cause, ErrCancelled) {
		t.Errorf("cancelled: %v", cause)
	}
}
