//go:build !windows

package main

import (
	"bufio"
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"thread/net/internal/pgtest"
)

// answer is what a command prints, without the address, times and random names.
type answer struct {
	code        int
	out, errors string
}

var changing = regexp.MustCompile(`\b\d+(?:ms|s|m) old\b|\d{4}-\d\d-\d\dT[\d:.]+Z|\b(?:run_|evt_)[0-9a-z]{20,}`)

// answerAt runs a command on the thread at an address, which is @T in args. input is sent line by
// line to a program that answers each line that has an id.
func answerAt(t *testing.T, at, input string, args []string) answer {
	t.Helper()
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "@T", at)
	}
	cmd := exec.Command("thread-net", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r, text := bufio.NewReader(stdout), ""
	for line := range strings.Lines(input) {
		_, _ = io.WriteString(stdin, line) // it may have ended
		if strings.Contains(line, `"id"`) {
			answered, _ := r.ReadString('\n')
			text += answered
		}
	}
	_ = stdin.Close()
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	clean := func(s string) string {
		for _, name := range []string{at, strings.ReplaceAll(at, "&", `\u0026`)} {
			s = strings.NewReplacer("'"+name+"'", "@T", name, "@T").Replace(s)
		}
		return changing.ReplaceAllString(s, "…")
	}
	return answer{cmd.ProcessState.ExitCode(), clean(text + string(rest)), clean(stderr.String())}
}

// TestSameAnswers: a command prints and returns at an address what it does in a directory.
func TestSameAnswers(t *testing.T) {
	t.Setenv("THREAD_DISPATCH", "none")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	base := pgtest.Schema(t)
	address, dir := base+url.QueryEscape("inbox"), filepath.Join(t.TempDir(), "inbox")
	database := strings.TrimSuffix(base, "&thread=")
	database = regexp.MustCompile(`&schema=\w+|schema=\w+&`).ReplaceAllString(database, "")
	call := func(name, arguments string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + "}}\n"
	}
	for _, c := range []struct {
		code  int
		line  string
		more  []string // words with spaces in them
		input string
	}{
		{0, "init @T", nil, ""},
		{0, "push --thread @T --source s0 --type t0 --content", []string{`{"a":"hello 0"}`}, ""},
		{0, "push --thread @T --source s1 --type t1 --content", []string{`{"a":"hello 1"}`}, ""},
		{0, "push --thread @T --source s0 --type t2 --subtype x --content", []string{`{"a":"hello 2"}`}, ""},
		{0, "subscribe --thread @T --consumer w --pull --filter", []string{"type <> 't1'"}, ""},
		{0, "subscribe --thread @T --consumer u --pull", nil, ""},
		{0, "consume --thread @T --consumer w --max-attempts 1 -- false", nil, ""},
		{0, "pop --thread @T --consumer u --last-event-id 1", nil, ""},
		{0, "stats --thread @T", nil, ""},
		{0, "stats --thread @T --json --by source", nil, ""},
		{0, "stats --thread @T --since 1h --limit 1", nil, ""},
		{0, "stats --thread @T --filter", []string{"content LIKE '%hello 1%'"}, ""},
		{2, "stats --thread @T --filter", []string{"content LIKE"}, ""},
		{2, "stats --thread @T --by x", nil, ""},
		{0, "why --thread @T -c w 1", nil, ""},
		{0, "why --thread @T -c w 2 --json", nil, ""},
		{0, "why --thread @T -c u 3", nil, ""},
		{0, "why --thread @T -c u 99", nil, ""},
		{1, "why --thread @T -c none 1", nil, ""},
		{2, "why --thread @T 1", nil, ""},
		{1, "lanes --thread @T", nil, ""},
		{1, "lanes --thread @T --key k --json", nil, ""},
		{0, "lanes --thread @T --clear x --json", nil, ""},
		{2, "top --thread @T --interval x", nil, ""},
		{2, "mcp --thread @T --tools nothing", nil, ""},
		{0, "mcp --thread @T", nil, call("peek", `{"limit":2}`)},
		{0, "mcp --thread @T", nil, call("why", `{"consumer":"w","event_id":2}`)},
		{0, "mcp --thread @T", nil, call("push", `{"type":"x","content":"c"}`)},
		{0, "mcp --thread @T --read-only", nil, call("push", `{"type":"x","content":"c"}`)},
		{0, "outbox config --thread @T --handler true", nil, ""},
		{1, "outbox take --thread @T --table none --from " + database, nil, ""},
		{2, "outbox take --thread @T", nil, ""},
		{0, "outbox list --thread @T --json", nil, ""},
		{0, "info --thread @T", nil, ""},
	} {
		args := append(strings.Fields(c.line), c.more...)
		want, got := answerAt(t, dir, c.input, args), answerAt(t, address, c.input, args)
		if args[0] == "info" { // a directory says nothing of hosts
			got.out = regexp.MustCompile(`(?m)^Durability: .*\n`).ReplaceAllString(got.out, "")
		}
		if got != want || got.code != c.code {
			t.Errorf("thread %q at an address: %d %s%s\nin a directory: %d %s%s", args, got.code, got.out, got.errors, want.code, want.out, want.errors)
		}
	}
}

// TestSameSteering: deliveries of keys under thread serve are counted, sent messages and ended at an
// address as in a directory.
func TestSameSteering(t *testing.T) {
	t.Setenv("THREAD_DISPATCH", "none")
	base := pgtest.Schema(t)
	places := []string{filepath.Join(t.TempDir(), "inbox"), base + url.QueryEscape("inbox")}
	files := map[string]string{}
	for _, at := range places {
		files[at] = t.TempDir()
		h := &host{t: t, url: at}
		h.run("init", at)
		script := fmt.Sprintf(`cd %s
case $THREAD_EVENT_KEY$THREAD_EVENT_ATTEMPT in
b2) exit;;
b1) echo b >>begun; exec sleep 1000;;
esac
exec 3<"$THREAD_MESSAGES"
echo streaming >"$THREAD_STATE"
echo $THREAD_EVENT_KEY >>begun
read -r m <&3; echo $THREAD_EVENT_KEY $m >>got`, files[at])
		h.run("subscribe", "--consumer", "chat", "--lane", "talk", "--handler", "exec thread-net consume --backoff 1ms --parallel 4 --key '$.k' -- sh -c '"+script+"'")
		serve := h.command("serve", "--thread", at, "--lane", "talk=4")
		serve.Env = append(serve.Env, "XDG_STATE_HOME="+t.TempDir())
		serve.Stderr = os.Stderr
		h.start(serve)
		for _, key := range []string{"a", "a", "b", "c"} {
			h.run("push", "--source", "s", "--type", "t", "--content", `{"k":"`+key+`"}`)
		}
		awaitLong(filepath.Join(files[at], "begun"), 3)
	}
	for _, c := range []struct {
		code int
		line string
	}{
		{0, "lanes --json --thread @T --key a"},
		{0, "send --thread @T -c chat --key c hello"},
		{0, "wait --thread @T -c chat --key c"},
		{1, "send --thread @T -c chat --key c hello"},
		{1, "send --thread @T -c chat --key b hello"},
		{1, "abort --thread @T -c chat --key none"},
		{1, "wait --thread @T -c chat --key a --timeout 100ms"},
		{0, "lanes --thread @T"},
		{0, "abort --thread @T -c chat --key b"},
		{0, "wait --thread @T -c chat --key b"},
		{0, "abort --thread @T --compacting"},
		{0, "send --thread @T -c chat --key a first"},
	} {
		want, got := answerAt(t, places[0], "", strings.Fields(c.line)), answerAt(t, places[1], "", strings.Fields(c.line))
		waited := regexp.MustCompile(`"oldest_ms":\d+|\d+(\.\d+)?m?s`)
		want.out, got.out = waited.ReplaceAllString(want.out, "…"), waited.ReplaceAllString(got.out, "…")
		if got != want || got.code != c.code {
			t.Errorf("thread %s at an address: %d %s%s\nin a directory: %d %s%s", c.line, got.code, got.out, got.errors, want.code, want.out, want.errors)
		}
		if strings.Contains(c.line, "lanes") && !strings.Contains(got.out, "talk\t2\t4\t0\t-") && !strings.Contains(got.out, `"active":1`) {
			t.Errorf("thread %s at an address: %s", c.line, got.out)
		}
	}
	for _, at := range places {
		h := &host{t: t, url: at}
		awaitLong(filepath.Join(files[at], "begun"), 4)
		if why := h.run("why", "-c", "chat", "2"); !strings.HasPrefix(why, "running: ") {
			t.Errorf("%s: why says %s", at, why)
		}
		h.run("send", "-c", "chat", "--key", "a", "second")
		h.settled()
		if data, _ := os.ReadFile(filepath.Join(files[at], "got")); string(data) != "c \"hello\"\na \"first\"\na \"second\"\n" {
			t.Errorf("%s: got %q", at, data)
		}
	}
}

// TestTakeAtAddress: rows of an application's outbox come into a thread at an address once, wherever
// the taker is killed.
func TestTakeAtAddress(t *testing.T) {
	h := newFleet(t)
	u, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	schema := q.Get("schema")
	q.Del("schema")
	q.Del("thread")
	u.RawQuery = q.Encode()
	table := schema + ".event_outbox"
	h.exec(`CREATE TABLE ` + table + ` (id bigint PRIMARY KEY, event_id text UNIQUE, event_type text NOT NULL, thread_id bigint NOT NULL, status text NOT NULL DEFAULT 'pending', error text)`)
	h.exec(`INSERT INTO ` + table + ` (id, event_id, event_type, thread_id) SELECT i, 'e' || i, 'thread.created', i FROM generate_series(1, 20) i`)
	take := []string{"outbox", "take", "--from", u.String(), "--table", table, "--batch", "3"}
	if got := h.run(take...); got != "Took 20 messages; 0 were duplicates, 0 were refused\n" {
		t.Error(got)
	}
	h.exec(`UPDATE ` + table + ` SET status = 'pending' WHERE id > 15`) // as if it was killed before it marked them
	if got := h.run(append(take, "--json")...); got != `{"taken":0,"duplicates":5,"refused":0}`+"\n" {
		t.Error(got)
	}
	if n := h.exec(`SELECT 1 FROM ` + table + ` WHERE status <> 'processed'`); n != 0 {
		t.Errorf("%d rows are not marked", n)
	}
	file := filepath.Join(t.TempDir(), "app.db")
	app, err := sql.Open("sqlite", "file:"+file)
	if err == nil {
		_, err = app.Exec(`CREATE TABLE event_outbox (event_id TEXT, event_type TEXT, thread_id INTEGER, status TEXT); INSERT INTO event_outbox VALUES ('of SQLite', 'thread.created', 21, 'pending')`)
	}
	if err = errors.Join(err, app.Close()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Took 1 messages; 0 were duplicates, 0 were refused\n", "Took 0 messages; 0 were duplicates, 0 were refused\n"} {
		if got := h.run("outbox", "take", "--from", "sqlite:"+file); got != want {
			t.Errorf("from SQLite: %s", got)
		}
	}
	if list := h.run("outbox", "list", "--json", "--limit", "100"); strings.Count(list, "\n") != 21 {
		t.Errorf("the messages are %s", list)
	}
}
