//go:build linux

package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/consume"
	"thread/internal/dispatch"
	"thread/lane"
)

// consumeVerb is thread consume in a handler: PARALLEL KEY WORKER COMMAND…
func consumeVerb(args []string) error {
	ctx, signals := consume.CatchSignals(context.Background())
	defer signals.Stop()
	t, err := engine.Open(os.Getenv("THREAD_DIR"))
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return err
	}
	consumer := os.Getenv("THREAD_CONSUMER")
	held, err := dispatch.LockConsumer(ctx, t, consumer)
	if err != nil {
		return err
	}
	o := consume.Options{Command: args[3:], Parallel: n, Key: args[1], Worker: args[2] == "worker", MaxAttempts: 1000,
		FirstDelay: time.Millisecond, Factor: 1, Stdout: os.Stdout, Stderr: os.Stderr, Env: held.Environment(), Signals: signals,
		Warn: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	if turns := held.Turns(); turns != nil {
		o.Turns = func(ctx context.Context, slot int, key *string, event int64) (consume.Turn, error) {
			return turns.Wait(ctx, slot, key, event)
		}
	}
	_, err = consume.Run(ctx, t, consumer, o)
	if rerr := held.Release(context.Background()); err == nil {
		err = rerr
	}
	return err
}

func (b *bench) pushTo(t *engine.Thread, source, content string) int64 {
	b.Helper()
	e, err := t.Push(context.Background(), event.Draft{Source: source, Type: "m", Content: content})
	if err == nil {
		err = dispatch.Wake(context.Background(), t, source)
	}
	if err != nil {
		b.Fatal(err)
	}
	return e.ID
}

func (b *bench) drained(t *engine.Thread, consumer string) {
	b.Helper()
	b.until("drained: "+consumer, func() bool {
		d, err := t.DueFor(context.Background(), consumer, 0)
		if err != nil {
			b.Fatal(err)
		}
		return d.First == 0
	})
}

// deliveries returns the deliveries in the state, as CONSUMER:KEY:EVENT.
func (b *bench) deliveries(t *engine.Thread, state string) (list []string) {
	b.Helper()
	a, err := askDirectory(t.Dir(), Request{Op: "runs"})
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range a.Runs {
		if r.Event != 0 && r.State == state {
			key := "-"
			if r.Key != nil {
				key = *r.Key
			}
			list = append(list, fmt.Sprint(r.Consumer, ":", key, ":", r.Event))
		}
	}
	return list
}

// L-03, L-23: deliveries of two consumers of one thread that have the same key take
// turns, whatever the key is written like, keys of another thread do not; and the
// limit of the lane holds for the deliveries of all threads together. The handlers
// themselves have no place in it.
func TestSessionLanes(t *testing.T) {
	b := newBench(t)
	other, err := engine.Init(b.path("other"))
	if err != nil {
		t.Fatal(err)
	}
	at := b.fifo("at")
	leave := b.fifo("leave")
	handler := `exec "$T" consume 8 $.k commands sh -c 'echo x > "$D/at"; read _ < "$D/leave"'`
	for _, th := range []*engine.Thread{b.t, other} {
		for _, c := range []string{"c", "d"} {
			if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: c, Handler: handler, Lane: "talk"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.serve(Options{Threads: []string{other.Dir()}, Limits: map[string]float64{"talk": 3}})
	for _, content := range []string{`{"k":"a"}`, `{"k":" a "}`, `{"k":"session:a"}`} {
		b.pushTo(b.t, "s", content)
	}
	b.line(at)
	// Three events of two consumers, all of the lane session:a: one at a time of each.
	b.until("the other waits", func() bool { return len(b.deliveries(b.t, stateQueued)) == 1 })
	if list := b.deliveries(b.t, stateRunning); len(list) != 1 || !strings.Contains(list[0], ":a:") {
		t.Errorf("running: %v", list)
	}
	if l := b.ask(Request{Op: "lanes", Key: event.Text("session:a")}).Lanes; len(l) != 1 || l[0].Name != "session:a" || l[0].Limit != 1 || l[0].Active != 1 || l[0].Queued != 1 {
		t.Errorf("lanes --key: %+v", l)
	}
	if l := b.ask(Request{Op: "lanes", Key: event.Text("nobody")}).Lanes; len(l) != 1 || l[0].Active+l[0].Queued != 0 {
		t.Errorf("lanes --key: %+v", l)
	}
	if runs := b.ask(Request{Op: "runs", Key: event.Text("a")}).Runs; len(runs) != 2 {
		t.Errorf("runs --key: %+v", runs)
	}
	talk := func() Lane {
		for _, l := range b.ask(Request{Op: "lanes"}).Lanes {
			if l.Name == "talk" {
				return l
			}
		}
		return Lane{}
	}
	if l := talk(); l.Active != 1 || l.Queued != 0 {
		t.Errorf("lanes: %+v", l)
	}
	// The other thread's lane of that key is another one, and an event without a key has
	// session:main.
	b.pushTo(other, "s", `{"k":"a"}`)
	b.pushTo(other, "s", `{}`)
	b.line(at)
	b.line(at)
	b.until("the limit", func() bool {
		return len(b.deliveries(other, stateRunning)) == 2 && len(b.deliveries(other, stateQueued)) == 2
	})
	if l := talk(); l.Active != 3 {
		t.Errorf("lanes: %+v", l)
	}
	for range 10 {
		leave.Write([]byte("\n"))
	}
	for _, th := range []*engine.Thread{b.t, other} {
		b.drained(th, "c")
		b.drained(th, "d")
	}
	b.idle()
	b.until("the lanes of keys to go", func() bool {
		return !slices.ContainsFunc(b.s.queue.Lanes(), func(l lane.Stats) bool { return l.Name != "talk" })
	})
}

// Without a key no delivery is in a session lane, and none can be named.
func TestTurnsWithoutKey(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Lane: "talk", Handler: `exec "$T" consume 2 "" commands sh -c 'echo x > "$D/at"; read _ < "$D/leave"'`})
	b.serve(Options{Limits: map[string]float64{"talk": 2}})
	b.push("s")
	b.push("s")
	b.line(at)
	b.line(at)
	if list := b.deliveries(b.t, stateRunning); fmt.Sprint(list) != "[c:-:1 c:-:2]" {
		t.Errorf("running: %v", list)
	}
	if a := b.ask(Request{Op: "abort", Consumer: "c", Key: event.Text("")}); a.Error != string(lane.NoActiveRun) {
		t.Errorf("abort: %+v", a)
	}
	leave.Write([]byte("\n\n"))
	b.drained(b.t, "c")
	b.idle()
}

// Deliveries are steered by consumer and key: messages, aborting with all of its
// processes, which counts as a failed attempt, and the wait for the end.
func TestSteerDelivery(t *testing.T) {
	for _, how := range []string{"commands", "worker"} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t)
			at := b.fifo("at")
			script := `read -r e; case $e in *'"id":1,'*) id=1;; *) id=2;; esac
				if [ ! -e "$D/aborted" ]; then
					: > "$D/aborted"; echo hang > "$D/at"; sleep 1000
				fi
				exec 3< "$THREAD_MESSAGES"
				echo streaming > "$THREAD_STATE"; echo streaming > "$D/at"
				read -r m <&3; printf '%s\n' "$m" > "$D/at"
				echo compacting > "$THREAD_STATE"; echo compacting > "$D/at"
				read -r m <&3
				echo "{\"id\":$id,\"ok\":true}"`
			if err := os.WriteFile(b.path("agent.sh"), []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			b.subscribe(engine.Subscription{Consumer: "c", Handler: `exec "$T" consume 4 source ` + how + ` sh "$D/agent.sh"`})
			b.serve(Options{})
			b.push("alice")
			if got := b.line(at); got != "hang" {
				t.Fatal(got)
			}
			to := func(q Request) Request {
				q.Consumer, q.Key = "c", event.Text("alice")
				return q
			}
			for _, q := range []Request{{Op: "abort", Consumer: "c", Key: event.Text("bob")}, {Op: "abort", Consumer: "d", Key: event.Text("alice")}} {
				if a := b.ask(q); a.Error != string(lane.NoActiveRun) {
					t.Errorf("%+v: %+v", q, a)
				}
			}
			if a := b.ask(to(Request{Op: "send", Message: "m"})); a.Error != string(lane.NotStreaming) {
				t.Errorf("send: %+v", a)
			}
			if a := b.ask(to(Request{Op: "wait", TimeoutMS: 1})); a.Ended {
				t.Errorf("wait: %+v", a)
			}
			if a := b.ask(to(Request{Op: "abort"})); a.Error != "" {
				t.Errorf("abort: %+v", a)
			}
			if got := b.line(at); got != "streaming" {
				t.Fatal(got)
			}
			b.until("streaming", func() bool {
				runs := b.ask(Request{Op: "runs", Key: event.Text("alice")}).Runs
				return len(runs) == 1 && runs[0].Activity == wordStreaming
			})
			if a := b.ask(to(Request{Op: "send", Message: "wait\n"})); a.Error != "" {
				t.Errorf("send: %+v", a)
			}
			if got := b.line(at); got != `"wait\n"` {
				t.Errorf("the message is %s", got)
			}
			if got := b.line(at); got != "compacting" {
				t.Fatal(got)
			}
			if a := b.ask(to(Request{Op: "send", Message: "m"})); a.Error != string(lane.Compacting) {
				t.Errorf("send: %+v", a)
			}
			// The script's end, which no message may be for: it compacts.
			for slot := range 4 {
				if dir := dispatch.DeliveryDir(b.t.Dir(), "c", slot); wordIn(dir) == wordCompacting {
					if err := os.WriteFile(filepath.Join(dir, "messages"), []byte("end\n"), 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			if a := b.ask(to(Request{Op: "wait"})); !a.Ended {
				t.Errorf("wait: %+v", a)
			}
			b.drained(b.t, "c")
			b.idle()
			if out, err := os.ReadFile(dispatch.OutputPath(b.t.Dir(), "c")); err != nil || !strings.Contains(string(out), "event 1: ") {
				t.Errorf("the aborted attempt was not counted: %q %v", out, err)
			}
			b.until("no files are left", func() bool {
				left, _ := os.ReadDir(filepath.Join(b.t.Dir(), "run", dispatch.RunsDir))
				return len(left) == 0
			})
		})
	}
}

// L-10, L-22: what fails in a probe lane is told to no process but as an event that has failed.
// L-24: after the time that its subscription says a wait is reported, with 0 always, and
// the delivery is carried out all the same.
func TestProbesAndWarnings(t *testing.T) {
	b := newBench(t)
	var log lockedBuffer
	zero := time.Duration(0)
	b.subscribe(engine.Subscription{Consumer: "c", Lane: "talk", WarnAfter: &zero, Handler: `exec "$T" consume 2 source commands sh -c 'exit 65'`})
	b.serve(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	b.push(" probe-x")
	b.push("y")
	b.drained(b.t, "c")
	b.idle()
	said, err := os.ReadFile(dispatch.OutputPath(b.t.Dir(), "c"))
	if err != nil {
		t.Fatal(err)
	}
	if out := string(said); strings.Contains(out, "event 1: ") || !strings.Contains(out, "event 2: ") {
		t.Errorf("consume says %q", out)
	}
	failed, warned := 0, 0
	for _, line := range strings.Split(log.String(), "\n") {
		switch {
		case strings.Contains(line, "lane task failed"):
			failed++
			if strings.Contains(line, "probe-x") || !strings.Contains(line, "session:y") || !strings.Contains(line, "exit 65") {
				t.Error(line)
			}
		case strings.Contains(line, "lane wait exceeded"):
			warned++
		}
	}
	if failed != 1 || warned < 3 { // the handler, too
		t.Errorf("%d failures, %d waits are reported:\n%s", failed, warned, log.String())
	}
	info, err := b.t.Info(t.Context())
	if err != nil || info.Subscriptions[0].Dead != 2 {
		t.Errorf("%+v %v", info.Subscriptions, err)
	}
}

// When the server is told to end, the deliveries that run may end, and those that wait
// are not begun: the next push or server has them.
func TestDrainTurns(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Lane: "talk", Handler: `exec "$T" consume 4 source commands sh -c 'echo x > "$D/at"; read _ < "$D/leave"'`})
	s, stop, left := b.untilStopped(Options{})
	defer stop()
	b.push("alice")
	b.push("bob")
	b.line(at)
	b.until("the other waits", func() bool { return len(b.deliveries(b.t, stateQueued)) == 1 })
	stop()
	b.until("deaf", func() bool {
		_, err := askDirectory(b.t.Dir(), Request{Op: "runs"})
		return errors.Is(err, ErrNobody)
	})
	leave.Write([]byte("\n"))
	if n := <-left; n != 0 {
		t.Errorf("%d handlers are left", n)
	}
	info, err := b.t.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// One of the two is settled, and the other is as if it had not been given out.
	c := info.Subscriptions[0]
	if done := c.LastAcked + c.Settled; done != 1 || c.Out != 0 || c.Failing != 0 {
		t.Errorf("last acked %d, %+v", c.LastAcked, c.ParallelState)
	}
	s.standby.Stop()
}

// The handler has no place in its lane once it asks for turns, or a lane of one place
// would never see a delivery; and what it asks for on a connection that ends is let go.
func TestTurnsProtocol(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Lane: "talk", Handler: `echo $THREAD_RUN_ID > "$D/at"; read _ < "$D/leave"; ` + drain})
	b.serve(Options{})
	b.push("s")
	id := b.line(at)
	dialed := func(lines ...string) *bufio.Reader {
		conn, err := dial(b.t.Dir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprint(conn, strings.Join(lines, "\n")+"\n")
		return bufio.NewReader(conn)
	}
	expect := func(r *bufio.Reader, want string) {
		t.Helper()
		if got, err := r.ReadString('\n'); strings.TrimSpace(got) != want || (err != nil) != (want == "") {
			t.Fatalf("%q %v, want %s", got, err, want)
		}
	}
	for _, q := range []string{`{"op":"turns","consumer":"c","run_id":"other"}`, `{"op":"turns","consumer":"d","run_id":"` + id + `"}`} {
		expect(dialed(q), `{"error":"the server runs no such handler"}`)
	}
	join := `{"op":"turns","consumer":"c","run_id":"` + id + `"}`
	first := dialed(join, `{"ask":1,"key":"a","event":1}`, `{"ask":2,"key":"a","event":2}`, `{"ask":3,"key":"b","event":3}`, `{"end":9}`)
	expect(first, `{}`)
	expect(first, `{"turn":1}`)
	b.until("two wait", func() bool { return len(b.deliveries(b.t, stateQueued)) == 2 })
	second := dialed(join, `{"ask":1,"key":"a","event":4}`)
	expect(second, `{}`)
	expect(first, "") // there is one connection of a run
	// What had its turn has it until the run has ended; what waited is gone.
	b.until("one waits", func() bool { return b.ask(Request{Op: "lanes", Key: event.Text("a")}).Lanes[0].Queued == 1 })
	third := dialed(join, `{"ask":1,"event":1}`, `{"ask":1,"event":1}`)
	expect(third, `{}`)
	expect(third, "") // a number that is taken
	leave.Write([]byte("\n"))
	b.drained(b.t, "c")
	b.idle()
	b.until("the lanes are empty", func() bool { return b.s.queue.Total() == 0 })
}
