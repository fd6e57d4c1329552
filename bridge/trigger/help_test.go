package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/fsck"
)

// rig is a thread, a mock queue and a trigger between them.
type rig struct {
	tb   fataler
	th   *engine.Thread
	mock *Mock
	tr   *Trigger
	cfg  Config
	log  *logLines
	opts Options
}

// fataler is what testing.T and rapid.T share.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// logLines keeps what is logged.
type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logLines) count(s string) int { return strings.Count(l.String(), s) }

// newRig makes a rig in dir; change may be nil.
func newRig(tb fataler, dir string, change func(*Config, *Options)) *rig {
	tb.Helper()
	c := NewConfig()
	c.Queue, c.Group, c.Adapter = "q", "g", "mock"
	c.BackoffBase = 0.001
	r := &rig{tb: tb, cfg: c, mock: NewMock(), log: &logLines{}}
	r.opts = Options{Drain: 10 * time.Second}
	if change != nil {
		change(&r.cfg, &r.opts)
	}
	r.opts.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var opts []engine.Option
	if r.opts.Now != nil {
		opts = append(opts, engine.WithClock(r.opts.Now))
	}
	var err error
	if r.th, err = engine.Init(dir, opts...); err != nil {
		tb.Fatalf("init: %v", err)
	}
	if r.tr, err = New(r.th, r.mock, r.cfg, r.opts); err != nil {
		tb.Fatalf("new: %v", err)
	}
	r.cfg = r.tr.cfg
	if r.cfg.Settle == SettleHandled {
		if err := r.th.Subscribe(context.Background(), engine.Subscription{Consumer: r.cfg.Consumer, Handler: "true"}); err != nil {
			tb.Fatalf("subscribe: %v", err)
		}
	}
	return r
}

func handled(c *Config, _ *Options) { c.Settle = SettleHandled }

func (r *rig) start() {
	r.tb.Helper()
	if err := r.tr.Start(context.Background()); err != nil {
		r.tb.Fatalf("start: %v", err)
	}
}

func (r *rig) stop() {
	r.tb.Helper()
	if err := r.tr.Stop(); err != nil {
		r.tb.Fatalf("stop: %v", err)
	}
}

// send enqueues a JSON message with headers given as name, value, ….
func (r *rig) send(id, body string, headers ...string) {
	m := Message{ID: id, Body: []byte(body), Headers: map[string]string{}}
	for i := 0; i < len(headers); i += 2 {
		m.Headers[headers[i]] = headers[i+1]
	}
	r.mock.Enqueue(m)
}

// until waits for the trigger or the queue to change until ok.
func (r *rig) until(what string, ok func() bool) {
	r.tb.Helper()
	end := time.After(time.Minute)
	for {
		a, b := r.tr.Changed(), r.mock.Changed()
		if ok() {
			return
		}
		select {
		case <-a:
		case <-b:
		case <-end:
			r.tb.Fatalf("waited in vain for %s; acked %v nacked %v dead %d\n%s", what, r.mock.Acked(), r.mock.Nacked(), len(r.mock.Dead()), r.log)
		}
	}
}

func (r *rig) acked(n int) {
	r.tb.Helper()
	r.until(fmt.Sprintf("%d acks", n), func() bool { return len(r.mock.Acked()) >= n })
}

// events returns what the thread holds.
func (r *rig) events() []event.Event {
	r.tb.Helper()
	es, err := r.th.Peek(context.Background(), engine.Query{})
	if err != nil {
		r.tb.Fatalf("peek: %v", err)
	}
	return es
}

// handle runs the consumer's events through fn until nothing is unread, and returns
// how many attempts there were. Waits between attempts are as the policy says.
func (r *rig) handle(fn func(e event.Event, attempt int64) error) (attempts int) {
	r.tb.Helper()
	ctx := context.Background()
	feed := r.th.Feed(r.cfg.Consumer, r.cfg.Policy())
	defer feed.Close()
	var result *engine.Result
	for {
		d, err := feed.Next(ctx, result)
		if err != nil {
			r.tb.Fatalf("feed: %v", err)
		}
		result = nil
		if len(d.Events) == 0 {
			if d.NotBefore.IsZero() {
				return attempts
			}
			time.Sleep(time.Until(d.NotBefore)) // the policy's own wait
			continue
		}
		attempts++
		result = &engine.Result{Verdict: engine.Succeeded}
		if err := fn(d.Events[0], d.Attempt); err != nil {
			result = &engine.Result{Verdict: engine.Failed, ExitCode: 1, Error: err.Error()}
		}
	}
}

func (r *rig) ledger() []Row {
	r.tb.Helper()
	rows, err := Ledger(context.Background(), r.th, r.cfg.Name, "", 1000)
	if err != nil {
		r.tb.Fatalf("ledger: %v", err)
	}
	return rows
}

// sound checks the thread.
func (r *rig) sound() {
	r.tb.Helper()
	rep, err := fsck.Check(context.Background(), r.th)
	if err != nil || len(rep.Faults) > 0 {
		r.tb.Fatalf("check: %v %v", err, rep)
	}
}

func TestStoredOnce(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	r.start()
	r.send("m-1", `{"a":1}`, "X-Event-Name", "order")
	r.acked(1)
	r.send("m-1", `{"a":1}`)
	r.acked(2)
	r.stop()
	if es := r.events(); len(es) != 1 || es[0].Type != "order" || es[0].Source != "mock:q" {
		t.Fatalf("%v", es)
	}
	r.sound()
}
