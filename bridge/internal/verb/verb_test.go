package verb

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		!strings.Contains(out, `"body":"{\"n\":1}"`) || !strings.Contains(stderr, "event 2 cannot be published: key: nil has no element") {
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
	held, err := only(&cli.App{Dir: dir}, "trigger", "q")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
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
		v := Verbs[i].Build()
		if v.Name != Verbs[i].Name || v.Summary == "" || v.Examples == "" || !strings.Contains(v.Help(80), v.Summary) {
			t.Errorf("%s", v.Name)
		}
	}
	if code, out, _ := call("trigger", "adapters", "--json"); code != 0 || !strings.Contains(out, `"type":"mock"`) {
		t.Error(out)
	}
}
