package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// shell runs a script in a separate directory and returns what it prints.
func shell(t *testing.T, script string) string {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell")
	}
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs.String())
	}
	return string(out)
}

// TestOutboxTour types in what docs/reference/outbox.md says. O-09, O-13: it is delivered.
func TestOutboxTour(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		script.WriteString(block[1])
	}
	out := shell(t, script.String()+"cat delivered.ndjson\n")
	for _, want := range []string{
		"\nevt_1\n", "\nProcessed 2, ran the handler for 1, wrote 1 notifications; ", "\n1\tprocessed\tcomment.replied\tevt_1\t0\t",
		"\tcomment.replied\t101\t12\tunread\tI agree\n", `{"event_id":"evt_1","event_type":"comment.replied",`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the tour does not print %q; it prints\n%s", want, out)
		}
	}
}

// O-16: the document's message, with numbers of any size in it, goes through the program
// to the handler with equal values.
func TestOutboxSeedMessage(t *testing.T) {
	const message = `{
  "event_id": "evt_20260226_9f3a1c", "event_type": "comment.replied", "occurred_at": "2026-02-26T12:30:15Z", "trace_id": "trc_7c1d2e",
  "actor_user_id": 9223372036854775807, "target_user_id": 9007199254740993, "target_user_type": "agent", "thread_id": -9223372036854775808,
  "comment_id": 18446744073709551616, "parent_comment_id": 8799, "depth": 2,
  "content_preview": "I agree with your point, but the causal relationship here still needs experimental verification...",
  "language": "zh", "action_hint": "consider_reply", "dedupe_key": "reply:8801:5", "x": {"n": [1.50, 1e400, 123456789012345678901234567890]}
}`
	out := shell(t, `thread init inbox >&2
cat >m.json <<'END'
`+message+`
END
thread outbox add --thread inbox --message m.json >&2
thread outbox relay --thread inbox --once -- sh -c 'cat >got; echo "{\"status\":\"accepted\"}"' >&2
cat got; thread outbox list --thread inbox --event-id evt_20260226_9f3a1c --json`)
	values := func(text string) (v map[string]any) {
		t.Helper()
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return v
	}
	got, record, _ := strings.Cut(out, "\n")
	if want := values(message); !reflect.DeepEqual(values(got), want) || !reflect.DeepEqual(values(record)["payload"], any(want)) {
		t.Errorf("the handler got %s, and the record is %s", got, record)
	}
}

// TestOutboxExample plays examples/outbox.
func TestOutboxExample(t *testing.T) {
	script, err := os.ReadFile(filepath.Join("..", "..", "examples", "outbox", "forum.sh"))
	if err != nil {
		t.Fatal(err)
	}
	out := shell(t, string(script))
	for _, want := range []string{
		"answered evt_1 (attempt 1)\nanswered evt_4 (attempt ", "processed\tcomment.replied\tevt_1\t0\n", "processed\tlike.created\tevt_2\t0\n",
		"processed\tmention.created\tevt_3\t0\n", "Notifications of user 7:\nlike.created\t101\t12\tunread\n", "pending: 0\nfailed: 0\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the example does not print %q; it prints\n%s", want, out)
		}
	}
	if n := strings.Count(out, "answered evt_1"); n != 1 {
		t.Errorf("evt_1 was answered %d times", n)
	}
}

// O-08, O-09: the run of a relay that was killed is ended by the next relay, and its
// receipt names that run.
func TestOutboxKilledRelayEndsItsRun(t *testing.T) {
	out := shell(t, `thread init inbox >&2
thread outbox config --thread inbox --backoff 1ms >&2
thread outbox add --thread inbox --message '{"event_id":"evt_1","event_type":"comment.replied","thread_id":1,"comment_id":2,"actor_user_id":12,"target_user_id":5,"target_user_type":"agent"}' >&2
thread outbox relay --thread inbox --once -- sh -c 'kill -9 $PPID; exec sleep 600' >&2 || true
thread outbox relay --thread inbox --once -- true >&2
thread run list --thread inbox --status failed --json
thread outbox list --thread inbox --event-id evt_1 --json`)
	var run struct {
		ID        string `json:"id"`
		ErrorCode string `json:"error_code"`
	}
	var record struct {
		Receipts []struct {
			RunID    *string `json:"run_id"`
			ExitCode int64   `json:"exit_code"`
		} `json:"receipts"`
	}
	d := json.NewDecoder(strings.NewReader(out))
	if err := errors.Join(d.Decode(&run), d.Decode(&record)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(record.Receipts) == 0 || record.Receipts[0].RunID == nil || *record.Receipts[0].RunID != run.ID || record.Receipts[0].ExitCode != -1 || run.ErrorCode != "worker_recovery_failed" {
		t.Errorf("got %s", out)
	}
}
