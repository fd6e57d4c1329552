package torture

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/bridge/adapter"
	bridgeconfig "thread/bridge/config"
	"thread/bridge/trigger"
	"thread/engine"
)

// Proof 6: what cannot be parsed ends in the dead letter queue at once, and what kills
// its handler after its attempts, once each and with its history. What comes behind
// them is handled while the killer waits for its next attempt; where the order is
// the mode of keys, what has its key after that. With settle: stored no process is waited for.
// On every broker with THREAD_KILLS, else on the mock.
func TestPoison(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	names := []string{"mock"}
	if os.Getenv("THREAD_KILLS") != "" {
		names = []string{"mock", "kafka", "jetstream", "redis", "redis-shared", "rabbitmq", "rabbitmq-stream", "sqs", "mqtt"}
	}
	bin := t.TempDir()
	exe, err := filepath.Abs(os.Args[0])
	if err == nil {
		err = os.Link(exe, filepath.Join(bin, "thread"))
	}
	if err != nil {
		body, err := os.ReadFile(exe)
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, "thread"), body, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, name := range names {
		for _, settle := range []string{trigger.SettleHandled, trigger.SettleStored} {
			t.Run(name+" "+settle, func(t *testing.T) { poison(t, name, settle) })
		}
	}
}

// sendTo sends as "thread trigger send" does.
func sendTo(t *testing.T, config string, m trigger.Message) {
	t.Helper()
	c, err := bridgeconfig.LoadTrigger(config)
	if err != nil {
		t.Fatal(err)
	}
	m.Headers = map[string]string{trigger.HeaderMessageID: m.ID}
	if c.Adapter == "mock" {
		if err := adapter.Spool(c.Connection["dir"], &m, nil); err != nil {
			t.Fatal(err)
		}
		return
	}
	sink, err := c.Spec.Sink(c.Settings())
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if _, err := sink.(trigger.Sender).Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func poison(t *testing.T, name, settle string) {
	q := queues[name](t)
	handled := filepath.Join(t.TempDir(), "handled")
	order := "none"
	if name == "mock" || name == "kafka" || name == "mqtt" { // keys of messages are what is sent
		order = "key"
	}
	text := "name: poison\n"
	if settle == trigger.SettleHandled {
		text += fmt.Sprintf(`handler: 'in=$(cat); case $in in *"\"kill\":1"*) echo killed >> %[1]s; kill -9 $$;; esac; echo "$in" | grep -o "\"n\":[0-9]*" >> %[1]s'
concurrency: 4
order_by: %[2]s
max_retries: 2
retry_backoff_base: 1
ack_policy: dlq
`, handled, order)
	}
	th, config := place(t, text+q.config)
	send := func(id, key, body string) {
		t.Helper()
		sendTo(t, config, trigger.Message{ID: id, Key: "orders/" + key, Body: []byte(body)})
	}
	send("bad-json", "j", `{"n":`)
	send("killer", "a", `{"kill":1,"n":0}`)
	send("same", "a", `{"n":1}`)
	send("bad-utf8", "u", "{\"n\":\"\xff\"}")
	for n := 2; n <= 9; n++ {
		send(fmt.Sprint("other-", n), fmt.Sprint("k", n), fmt.Sprintf(`{"n":%d}`, n))
	}
	c := run(t, th.Dir(), config, "trigger")
	c.ready(t)
	want, runs := map[string]int{trigger.StatusParseError: 2, trigger.StatusStored: 10}, 0
	deads := map[string]string{"bad-json": trigger.StatusParseError, "bad-utf8": trigger.StatusParseError}
	if settle == trigger.SettleHandled {
		want, runs = map[string]int{trigger.StatusParseError: 2, trigger.StatusSuccess: 9, trigger.StatusFailed: 1}, 3+9
		deads["killer"] = trigger.StatusFailed
	}
	words := func() []string {
		said, _ := os.ReadFile(handled) // it is not there at first
		return strings.Fields(string(said))
	}
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		rows, err := trigger.Ledger(t.Context(), th, "poison", "", 100)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, r := range rows {
			got[r.Status]++
		}
		if maps.Equal(got, want) && len(words()) == runs && q.over(th) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v, handled %q\n%s", got, words(), &c.log)
		}
	}
	c.end(syscall.SIGTERM)
	if settle == trigger.SettleHandled {
		lines := words()
		first := slices.Index(lines, "killed")
		second := first + 1 + slices.Index(lines[first+1:], "killed")
		before := 9 // of the others and the first attempt, before the second one, which is a second later
		if order == "none" {
			before++
		}
		if slices.Index(lines[second+1:], "killed") < 0 || second < before || order == "key" && slices.Index(lines, `"n":1`) != len(lines)-1 {
			t.Errorf("others waited for the killer, or its key did not: %q", lines)
		}
	}
	for d, err := range th.DeadLetters(t.Context(), engine.DeadLetterQuery{}) {
		t.Errorf("a dead letter is in the thread, too: %+v %v", d, err)
	}
	readDead(t, q, deads)
	awaitGone(t, th.Dir())
}

// readDead reads the dead letter queue with a separate trigger: exactly these ids,
// with these statuses, each with its history.
func readDead(t *testing.T, q *queue, want map[string]string) {
	t.Helper()
	text := "name: dead\nparser_type: binary\n" + strings.NewReplacer(append(q.dead, "consumer_group: g", "consumer_group: dead")...).Replace(q.config)
	th, config := place(t, text)
	c := run(t, th.Dir(), config, "trigger")
	c.ready(t)
	for deadline := time.Now().Add(60 * time.Second); stored(th) < int64(len(want)) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	c.end(syscall.SIGTERM)
	for e, err := range th.Events(t.Context(), engine.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			ID      string `json:"message_id"`
			Headers map[string]string
		}
		if err := json.Unmarshal([]byte(e.Content), &m); err != nil {
			t.Fatal(err)
		}
		h := func(name string) string { return trigger.Header(m.Headers, name) }
		if status, ok := want[m.ID]; !ok || h("x-dlq-status") != status || h("x-dlq-reason") == "" || h("x-dlq-deliveries") != "1" {
			t.Errorf("not one dead letter with its history: %s", e.Content)
		} else if status == trigger.StatusFailed && (h("x-dlq-attempts") != "3" || h("x-dlq-first-error") == "" || h("x-dlq-last-at") <= h("x-dlq-first-at")) {
			t.Errorf("no history: %s", e.Content)
		}
		delete(want, m.ID)
	}
	if len(want) > 0 {
		t.Errorf("not in the dead letter queue: %v\n%s", want, &c.log)
	}
}

// awaitGone waits for the handlers of a thread to end, since its directory goes.
func awaitGone(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		out, _ := exec.Command("ps", "-eo", "args").Output()
		if !regexp.MustCompile(`(?m)thread (consume|dispatch|supervise|__).*`).MatchString(string(out)) || !strings.Contains(string(out), dir) {
			return
		}
	}
}
