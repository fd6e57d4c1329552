package verb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
	"thread/internal/cli"
)

// call runs one command line and returns its exit code and outputs.
func call(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = cli.NewProgram("thread-bridge", Verbs).Run(args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func place(t *testing.T, config string) (dir, file string) {
	t.Helper()
	dir, file = filepath.Join(t.TempDir(), "t"), filepath.Join(t.TempDir(), "c.yaml")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

const mock = "queue_name: q\nconsumer_group: g\nadapter: {type: mock}\n"

// Q-25, case 81: one message in this process, and what there is to see of it.
func TestSendMock(t *testing.T) {
	dir, file := place(t, mock)
	code, out, err := call("trigger", "send", "--thread", dir, "--config", file, "--id", "m-1", "--body", `{"a":1}`, "--header", "x-event-name=order", "--json")
	var row trigger.Row
	if code != 0 || json.Unmarshal([]byte(out), &row) != nil || row.Status != "stored" || row.Event != 1 || row.EventName != "order" {
		t.Fatalf("%d %s %s", code, out, err)
	}
	if _, out, _ = call("trigger", "send", "--thread", dir, "--config", file, "--id", "m-1", "--body", `{"a":1}`); !strings.Contains(out, `"status":"duplicate"`) {
		t.Error(out)
	}
	if code, out, err = call("trigger", "ledger", "--thread", dir, "--name", "q", "--status", "stored", "--json"); code != 0 || strings.Count(out, "\n") != 1 || !strings.Contains(out, `"trace_id":"queue-m-1"`) {
		t.Errorf("%d %s %s", code, out, err)
	}
	if code, out, err = call("trigger", "status", "--thread", dir, "--config", file, "--json"); code != 0 || !strings.Contains(out, `"running":false`) {
		t.Errorf("%d %s %s", code, out, err)
	}
	if code, _, err = call("trigger", "health", "--thread", dir, "--name", "q"); code != 1 || !strings.HasPrefix(err, "Error: trigger q is unhealthy: not running - ") {
		t.Errorf("%d %s", code, err)
	}
	if code, out, err = call("trigger", "pause", "--thread", dir, "--name", "q"); code != 0 || out != "Paused trigger 'q'\n" {
		t.Errorf("%d %s %s", code, out, err)
	}
	if _, out, _ = call("trigger", "status", "--thread", dir, "--name", "q", "--json"); !strings.Contains(out, `"paused":true`) {
		t.Error(out)
	}
}

// Q-04, case 66
func TestValidateHidesSecrets(t *testing.T) {
	_, file := place(t, "queue_name: q\nconsumer_group: g\nhandler: 'run --token=hunter2'\nadapter: {type: mock, connection: {dir: 'redis://u:hunter2@h'}}\n")
	code, out, err := call("trigger", "validate", "--config", file, "--json")
	if code != 0 || strings.Contains(out+err, "hunter2") || !strings.Contains(out, "***") {
		t.Errorf("%d %s %s", code, out, err)
	}
	_, file = place(t, "queue_name: q\nconcurrency: 'password=hunter2'\nadapter: {type: mock}\n")
	code, out, err = call("trigger", "validate", "--config", file)
	if code != 2 || strings.Contains(out+err, "hunter2") || !strings.HasPrefix(err, "Error: ") || strings.Count(err, "\n") != 1 || !strings.Contains(err, "consumer_group is required; line 2: concurrency") {
		t.Errorf("%d %s %s", code, out, err)
	}
}

// publish run --dry-run prints what would be sent, and needs no broker.
func TestPublishDryRun(t *testing.T) {
	adapter.Register(adapter.Spec{Type: "unreachable", Sink: func(*adapter.Settings) (trigger.Sink, error) { return nil, errors.New("it is connected to") }})
	dir, file := place(t, "queue_publish:\n  name: out\n  queue_name: events\n  key: string(message.n)\n  body: content\n  adapter: {type: unreachable}\n")
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{`{"n":1}`, "x", `{"n":2}`} {
		if _, err := th.Push(t.Context(), event.Draft{Source: "s", Type: "a", Content: content}); err != nil {
			t.Fatal(err)
		}
	}
	code, out, stderr := call("publish", "run", "--thread", dir, "--config", file, "--dry-run")
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, `{"event":1,"message_id":"`) || !strings.Contains(out, `"queue_name":"events","key":"1","headers":{"x-event-name":"a","x-message-id":`) ||
		!strings.Contains(out, `"body":"{\"n\":1}"`) || !strings.Contains(stderr, "event 2 cannot be published: key: cannot fetch n from <nil>") {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	if code, out, _ := call("publish", "run", "--thread", dir, "--config", file, "--dry-run", "--limit", "1"); code != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("%d %s", code, out)
	}
	for _, limit := range []string{"0", "x"} {
		if code, _, stderr := call("publish", "run", "--thread", dir, "--config", file, "--dry-run", "--limit", limit); code != 2 || !strings.HasPrefix(stderr, "Error: --limit") {
			t.Errorf("%d %s", code, stderr)
		}
	}
}

// one process for one trigger in a thread.
func TestOneAtATime(t *testing.T) {
	dir, file := place(t, mock)
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	held, err := only(t.Context(), th, "trigger", "q", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	code, _, stderr := call("trigger", "run", "--thread", dir, "--config", file)
	if code != 1 || !strings.HasPrefix(stderr, "Error: trigger q runs already in this thread - ") {
		t.Errorf("%d %s", code, stderr)
	}
}

// TestRefused: what is asked wrongly ends with 2 and one line, and changes nothing.
func TestRefused(t *testing.T) {
	dir, file := place(t, mock)
	for _, args := range [][]string{
		{"trigger", "run", "--thread", dir}, {"trigger", "run", "--thread", dir, "--config", file, "--limit", "3"}, {"trigger", "status", "--thread", dir},
		{"trigger", "ledger", "--thread", dir, "--name", "q", "--status", "odd"}, {"trigger", "seek", "--thread", dir, "--config", file, "--to", "yesterday"},
		{"trigger", "send", "--thread", dir, "--config", file, "--header", "x"}, {"publish", "validate", "--config", file}, {"trigger", "validate", "--config", file + "x"},
	} {
		code, out, err := call(args...)
		if code != 2 || out != "" || !strings.HasPrefix(err, "Error: ") || !strings.Contains(err, " - ") || strings.Count(err, "\n") != 1 {
			t.Errorf("%v: %d %s %s", args, code, out, err)
		}
	}
	if code, _, err := call("trigger", "seek", "--thread", dir, "--config", file, "--to", "start"); code != 1 || !strings.HasPrefix(err, "Error: adapter mock has no positions to seek in - ") {
		t.Errorf("%d %s", code, err)
	}
}

// TestAdapters: every verb has help, and the list names what each broker promises.
func TestAdapters(t *testing.T) {
	for i := range Verbs {
		v := Verbs[i].Verb
		if v.Name != Verbs[i].Name || v.Summary == "" || v.Examples == "" || !strings.Contains(v.Help(80), v.Summary) {
			t.Errorf("%s", v.Name)
		}
	}
	if code, out, _ := call("trigger", "adapters", "--json"); code != 0 || !strings.Contains(out, `"type":"mock"`) {
		t.Error(out)
	}
}

// told is a sink that hands over what is published.
type told struct {
	nothing
	to chan trigger.Outgoing
}

func (told) Connect(context.Context) (int64, error) { return 0, nil }
func (told) Health(context.Context) trigger.Health  { return trigger.Health{OK: true} }

func (s told) Publish(_ context.Context, ms []trigger.Outgoing) error {
	for _, m := range ms {
		s.to <- m
	}
	return nil
}

// One process publishes by several rules, answers about each and about all of them, and
// ends when it is told.
func TestPublishRules(t *testing.T) {
	out := make(chan trigger.Outgoing, 10)
	adapter.Register(adapter.Spec{Type: "told", Sink: func(*adapter.Settings) (trigger.Sink, error) { return told{to: out}, nil }})
	dir, file := place(t, "queue_publish:\n- {name: as, queue_name: qa, filter: \"type = 'a'\", adapter: {type: told}}\n- {name: bs, queue_name: qb, filter: \"type = 'b'\", adapter: {type: told}}\n")
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"a", "b", "a"} {
		if _, err := th.Push(t.Context(), event.Draft{Source: "s", Type: kind, Content: "{}"}); err != nil {
			t.Fatal(err)
		}
	}
	if code, stdout, stderr := call("publish", "validate", "--config", file); code != 0 || strings.Count(stdout, "\n") != 2 {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	if code, _, stderr := call("publish", "health", "--thread", dir, "--config", file); code != 1 || !strings.HasPrefix(stderr, "Error: publisher as is unhealthy: not running - ") {
		t.Errorf("%d %s", code, stderr)
	}
	path := filepath.Join(t.TempDir(), "s")
	ended := make(chan string, 1)
	go func() {
		code, stdout, stderr := call("publish", "run", "--thread", dir, "--config", file, "--listen", "unix:"+path)
		ended <- fmt.Sprint(code, stdout, stderr)
	}()
	got := map[string]int{}
	for range 3 {
		select {
		case m := <-out:
			got[m.Queue]++
		case why := <-ended:
			t.Fatal(why)
		}
	}
	if got["qa"] != 2 || got["qb"] != 1 {
		t.Errorf("%v", got)
	}
	until := time.Now().Add(time.Minute)
	for want := "as: healthy, running true, published 2, position 3\nbs: healthy, running true, published 1, position 2\n"; ; time.Sleep(10 * time.Millisecond) {
		code, stdout, stderr := call("publish", "status", "--thread", dir, "--config", file)
		if code == 0 && stdout == want {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d %s %s", code, stdout, stderr)
		}
	}
	if code, stdout, stderr := call("publish", "health", "--thread", dir, "--name", "bs", "--json"); code != 0 || !strings.Contains(stdout, `"position":2`) {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	if code, body := fetch(t, path, "/healthz"); code != http.StatusOK || !strings.Contains(body, `"name":"as"`) || !strings.Contains(body, `"name":"bs"`) {
		t.Errorf("%d %s", code, body)
	}
	if _, body := fetch(t, path, "/metrics"); !strings.Contains(body, `queue_published_total{publisher="as",queue="qa"} 2`) || !strings.Contains(body, `queue_publish_trouble_seconds{publisher="bs",queue="qb"} 0`) {
		t.Error(body)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if why := <-ended; !strings.HasPrefix(why, "0") {
		t.Error(why)
	}
}

// a handler reports how often it called a model, and the ledger and the metrics count
// that.
func TestNoteModelCalls(t *testing.T) {
	dir, _ := place(t, mock)
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := trigger.NewConfig()
	c.Name, c.Queue, c.Group, c.Adapter, c.Settle = "orders", "q", "g", "mock", trigger.SettleHandled
	if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: "orders", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	queue := trigger.NewMock()
	tr, err := trigger.New(th, queue, c, trigger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	note := func(args ...string) {
		t.Helper()
		if code, out, stderr := call(append([]string{"trigger", "note", "--thread", dir}, args...)...); code != 0 || out+stderr != "" {
			t.Errorf("%d %s %s", code, out, stderr)
		}
	}
	if err := tr.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored := tr.Changed()
	queue.Enqueue(trigger.Message{ID: "m-1", Body: []byte("{}")})
	feed := th.Feed("orders", c.Policy())
	defer feed.Close()
	for {
		d, err := feed.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Events) == 1 {
			break
		}
		<-stored
		stored = tr.Changed()
	}
	note("--name", "orders", "--event-id", "1", "--model-calls", "2")
	t.Setenv("THREAD_EVENT_ID", "1")
	note("--name", "orders", "--model-calls", "3")
	for _, bad := range [][]string{{"--name", "orders", "--model-calls", "-1"}, {"--name", "orders", "--model-calls", "x"}, {"--name", "orders", "--model-calls", "1", "--event-id", "x"}} {
		if code, _, stderr := call(append([]string{"trigger", "note", "--thread", dir}, bad...)...); code != 2 || !strings.HasPrefix(stderr, "Error: ") {
			t.Errorf("%v: %d %s", bad, code, stderr)
		}
	}
	if code, _, stderr := call("trigger", "note", "--thread", dir, "--name", "other", "--model-calls", "1"); code != 1 || !strings.Contains(stderr, "event 1 of trigger other: the event is not being handled - ") {
		t.Errorf("%d %s", code, stderr)
	}
	if _, err := feed.Settle(t.Context(), engine.Result{Verdict: engine.Succeeded}); err != nil {
		t.Fatal(err)
	}
	for changed := queue.Changed(); len(queue.Acked()) == 0; changed = queue.Changed() {
		<-changed
	}
	if err := tr.Stop(); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := call("trigger", "ledger", "--thread", dir, "--name", "orders", "--json"); code != 0 || !strings.Contains(out, `"model_calls":5`) || !strings.Contains(out, `"status":"success"`) {
		t.Errorf("%d %s %s", code, out, stderr)
	}
	if n := tr.Health(t.Context()).Metrics.Calls; n != 5 {
		t.Errorf("%d calls are counted", n)
	}
}
