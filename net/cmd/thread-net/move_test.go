package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/net/internal/pgtest"
)

// program runs a program and returns what it printed.
func program(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, &stderr)
	}
	return string(out)
}

// furnished makes a directory that has something of every kind, and n more events.
func furnished(t *testing.T, n int) (dir string) {
	t.Helper()
	t.Setenv("THREAD_DISPATCH", "none")
	dir = filepath.Join(t.TempDir(), "inbox")
	thread := func(args ...string) { program(t, "", "thread", args...) }
	at := []string{"--thread", dir}
	do := func(verb string, args ...string) {
		t.Helper()
		thread(append(append([]string{verb}, at...), args...)...)
	}
	thread("init", dir)
	do("subscribe", "--consumer", "dies", "--pull")
	do("subscribe", "--consumer", "side", "--handler", "true", "--filter", "type <> 'other'", "--parallel", "2")
	do("subscribe", "--consumer", "left", "--pull")
	do("subscribe", "--consumer", "gone", "--pull")
	for i := range 6 {
		do("push", "--source", fmt.Sprint("s", i%2), "--type", "t", "--content", fmt.Sprint(i), "--dedupe-key", fmt.Sprint("key", i))
	}
	do("push", "--source", "s", "--type", "later", "--content", "x", "--delay", "1h")
	thread("schedule", "add", "--thread", dir, "--name", "nightly", "--when", "@daily", "--source", "s", "--type", "t", "--content", "c")
	do("consume", "--consumer", "dies", "--max-attempts", "1", "--", "sh", "-c", "test $THREAD_EVENT_ID -gt 2")
	// Event 1 waits for another try while those after it are settled.
	cmd := exec.Command("thread", "consume", "--thread", dir, "--consumer", "side", "--parallel", "2", "--max-attempts", "5", "--backoff", "1h", "--", "sh", "-c", "test $THREAD_EVENT_ID -gt 1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	info := ""
	for deadline := time.Now().Add(time.Minute); !strings.Contains(info, `"settled_count": 5`); {
		if info = program(t, "", "thread", "info", "--thread", dir, "--json"); time.Now().After(deadline) {
			t.Fatalf("nothing is settled side by side: %s", info)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	do("next", "--consumer", "left", "--lease", "1h")
	do("pop", "--consumer", "gone", "--last-event-id", "3")
	do("unsubscribe", "--consumer", "gone")
	do("retain", "--max-events", "1000000")
	if n > 0 {
		program(t, strings.Repeat("a line of a batch\n", n), "thread", "push", "--thread", dir, "--source", "batch", "--type", "other", "--lines", "--quiet")
	}
	return dir
}

// whole is all of a directory but its events, and its digest.
func whole(t *testing.T, dir string) (store.Snapshot, string) {
	t.Helper()
	s, err := bolt.New(dir, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	snap, err := store.TakeSnapshot(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return snap, digestOf(t, program(t, "", "thread", "check", "--thread", dir))
}

var digestLine = regexp.MustCompile(`(?m)^Digest: ([0-9a-f]{64})$`)

func digestOf(t *testing.T, out string) string {
	t.Helper()
	m := digestLine.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no digest in %q", out)
	}
	return m[1]
}

// A directory that is imported into PostgreSQL, and from there into a directory again, is
// the same: every record of it, and the digest at every station.
func TestMove(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, dir string) string{
		"dense": func(_ *testing.T, dir string) string { return dir },
		"gaps":  withGaps,
		"pruned": func(t *testing.T, dir string) string {
			dir = withGaps(t, dir)
			program(t, "", "thread", "prune", "--thread", dir, "--keep-last", "900", "--force")
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) { moves(t, make(t, furnished(t, 3000))) })
	}
}

// withGaps copies a directory without some of its events, as if it came from SQLite and
// rows had been deleted there, the newest ones among them.
func withGaps(t *testing.T, dir string) (other string) {
	t.Helper()
	ctx := context.Background()
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	snap, _ := whole(t, dir)
	other = filepath.Join(t.TempDir(), "gaps")
	r, err := bolt.StartRestore(other, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for e, err := range th.WithoutRelease().Events(ctx, engine.Query{}) {
		must(err)
		if id := e.ID; id > 50 && (id < 60 || id%7 == 0 || id > snap.Head-20) {
			continue
		}
		must(r.Event(&e))
	}
	for _, s := range snap.Subscriptions {
		must(r.Subscription(s, s.Ordinal, s.Options()))
	}
	for _, p := range snap.Progress {
		must(r.Progress(p.Consumer, p.ProgressRecord))
	}
	for _, x := range snap.Extras {
		must(r.Extra(x))
	}
	must(r.Finish(snap.LastID+10, 5))
	must(r.Publish())
	return other
}

func moves(t *testing.T, dir string) {
	at := pgtest.Schema(t) + url.QueryEscape("moved")
	want, digest := whole(t, dir)
	kinds := map[string]bool{}
	for _, x := range want.Extras {
		kinds[x.Bucket[0]] = kinds[x.Bucket[0]] || x.Key != nil
	}
	for _, table := range []string{"dead", "deliveries", "dedupe", "dedupe_expiry", "scheduled", "schedules", "settled", "attempts", "limits"} {
		if !kinds[table] {
			t.Fatalf("the directory has nothing in %s", table)
		}
	}
	if sum := digestOf(t, program(t, "", "thread-net", "import", dir, "--to", at)); sum != digest {
		t.Errorf("import says %s, want %s", sum, digest)
	}
	if sum := digestOf(t, program(t, "", "thread-net", "check", "--thread", at)); sum != digest {
		t.Errorf("check says %s, want %s", sum, digest)
	}
	back := filepath.Join(t.TempDir(), "back")
	if sum := digestOf(t, program(t, "", "thread-net", "export", "--thread", at, "--to", back)); sum != digest {
		t.Errorf("export says %s, want %s", sum, digest)
	}
	got, sum := whole(t, back)
	if sum != digest {
		t.Errorf("the directory has %s, want %s", sum, digest)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("not the same:\n%v\nwant:\n%v", got, want)
	}
	// Both answer alike, and continue alike when events are dropped.
	alike := func(verb string, args ...string) {
		t.Helper()
		want := program(t, "", "thread", append([]string{verb, "--thread", back}, args...)...)
		if got := program(t, "", "thread-net", append([]string{verb, "--thread", at}, args...)...); got != want {
			t.Errorf("%s %q: %s\nwant: %s", verb, args, got, want)
		}
	}
	alike("peek", "--last-event-id", "40", "--limit", "40")
	alike("peek", "--last-event-id", fmt.Sprint(want.Head-100), "--limit", "200")
	alike("tail", "-n", "300", "--json")
	for _, keep := range []string{"2500", "800", "0"} {
		program(t, "", "thread", "prune", "--thread", back, "--keep-last", keep, "--force")
		program(t, "", "thread-net", "prune", "--thread", at, "--keep-last", keep, "--force")
		alike("peek", "--last-event-id", "0", "--limit", "1")
		_, digest := whole(t, back)
		if sum := digestOf(t, program(t, "", "thread-net", "check", "--thread", at)); sum != digest {
			t.Errorf("with %s events check says %s, want %s", keep, sum, digest)
		}
	}
	// It continues in PostgreSQL: the delivery that is in flight, the key, the next id.
	if out := program(t, "", "thread-net", "push", "--thread", at, "--source", "s", "--type", "t", "--content", "x", "--dedupe-key", "key3"); strings.TrimSpace(out) != "4" {
		t.Errorf("a known dedupe key: %s", out)
	}
	if out := program(t, "", "thread-net", "push", "--thread", at, "--source", "s", "--type", "t", "--content", "x"); strings.TrimSpace(out) != strconv.FormatInt(want.LastID+1, 10) {
		t.Errorf("the next id: %s", out)
	}
	cmd := exec.Command("thread-net", "import", dir, "--to", at)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "is already a thread") {
		t.Errorf("a second import: %v %s", err, out)
	}
}

// TestMoveHistory: the history goes with the thread, and comes back as it was, from there also by
// way of SQLite.
func TestMoveHistory(t *testing.T) {
	base := pgtest.Schema(t)
	at := base + "moved"
	dir := furnished(t, 10)
	for _, args := range [][]string{
		{"session", "start", "--id", "S"}, {"message", "add", "--session", "S", "--role", "user", "--content", "hello"}, {"run", "enqueue", "--id", "R", "--session", "S"},
		{"run", "enqueue", "--id", "alone"}, {"workspace", "set", "W"}, {"session", "start", "--id", "of W", "--workspace", "W"}, {"session", "delete", "of W"},
	} {
		program(t, "", "thread-history", append(args, "--thread", dir)...)
	}
	_, digest := whole(t, filepath.Join(dir, "history"))
	program(t, "", "thread-net", "import", dir, "--to", at)
	if got := program(t, "", "thread-net", "message", "list", "--session", "S", "--thread", at); !strings.Contains(got, "hello") {
		t.Errorf("the messages are %s", got)
	}
	if out, err := exec.Command("thread-net", "import", dir, "--to", at).CombinedOutput(); err == nil || !strings.Contains(string(out), "is already a thread") {
		t.Errorf("a second import: %v %s", err, out)
	}
	samePages(t, dir, at)
	back := filepath.Join(t.TempDir(), "back")
	program(t, "", "thread-net", "export", "--thread", at, "--to", back)
	if _, got := whole(t, filepath.Join(back, "history")); got != digest {
		t.Errorf("the history has the digest %s, want %s", got, digest)
	}
	program(t, "", "thread-net", "run", "show", "--thread", at, "R")
	if got := program(t, "", "thread-history", "run", "show", "--thread", back, "R"); !strings.Contains(got, "R") {
		t.Errorf("the run is %s", got)
	}
	viaSQLite(t, dir, at, base+"again")
}

// viaSQLite copies the thread at an address to SQLite, with a mirror of its history, from there to another
// address, and to a directory. It is then what dir is: the digest, and all rows of the history.
func viaSQLite(t *testing.T, dir, at, again string) {
	t.Helper()
	_, digest := whole(t, dir)
	to := t.TempDir()
	in := func(name string) string { return filepath.Join(to, name) }
	if err := os.Mkdir(in("copy"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"thread-net", "mirror", "--thread", at, "--to", in("copy/events.db")},
		{"thread-net", "history", "mirror", "--thread", at, "--to", in("history.db")},
		{"thread-sqlite", "import", in("copy"), "--to", in("imported")},
		{"thread-net", "import", in("imported"), "--to", again},
		{"thread-net", "history", "import", "--thread", again, in("history.db")},
		{"thread-net", "export", "--thread", again, "--to", in("last")},
		{"thread-net", "history", "mirror", "--thread", again, "--to", in("again.db")},
	} {
		program(t, "", args[0], args[1:]...)
	}
	if _, got := whole(t, in("last")); got != digest {
		t.Errorf("by way of SQLite the digest is %s, want %s", got, digest)
	}
	for _, args := range [][]string{{"message", "list", "--session", "S", "--json"}, {"run", "show", "R", "--json"}, {"session", "show", "S", "--json"}} {
		want := program(t, "", "thread-history", append(args, "--thread", dir)...)
		if got := program(t, "", "thread-history", append(args, "--thread", in("last"))...); got != want {
			t.Errorf("%s by way of SQLite: %s\nwant: %s", args, got, want)
		}
	}
}

// An import that is killed in the middle continues where it was. Until its end no process sees a
// thread. What another thread's import left is dropped.
func TestMoveKilled(t *testing.T) {
	at := pgtest.Schema(t) + url.QueryEscape("moved")
	const n = 60_000
	dir := furnished(t, n)
	_, digest := whole(t, dir)
	kill := func(of string) {
		t.Helper()
		cmd := exec.Command("thread-net", "import", of, "--to", at)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stored := int64(0)
		for deadline := time.Now().Add(30 * time.Second); stored == 0 && time.Now().Before(deadline); {
			stored = storedEvents(at)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if stored == 0 || cmd.ProcessState.Success() {
			t.Fatalf("not killed in the middle: %d events", stored)
		}
		peek := exec.Command("thread-net", "peek", "--thread", at, "--last-event-id", "0")
		if out, err := peek.CombinedOutput(); err == nil || !strings.Contains(string(out), "has not ended") {
			t.Errorf("a part of a thread can be read: %v %s", err, out)
		}
	}
	other := furnished(t, n)
	kill(other)
	cmd := exec.Command("thread-net", "import", dir, "--to", at)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "had a part of another thread") || digestOf(t, string(out)) != digest {
		t.Fatalf("after another import: %v\n%s", err, out)
	}
	at += "2"
	kill(dir)
	before := storedEvents(at)
	resumed := program(t, "", "thread-net", "import", dir, "--to", at)
	m := regexp.MustCompile(`\((\d+) of them were there\)`).FindStringSubmatch(resumed)
	if digestOf(t, resumed) != digest || m == nil {
		t.Fatalf("%d events were there: %s", before, resumed)
	}
	// The COMMIT that was under way may have come after the look.
	if was, err := strconv.ParseInt(m[1], 10, 64); err != nil || was < before || was >= n {
		t.Errorf("%d events were there: %s", before, resumed)
	}
	if sum := digestOf(t, program(t, "", "thread-net", "check", "--thread", at)); sum != digest {
		t.Errorf("check says %s, want %s", sum, digest)
	}
}

// storedEvents counts the events that a thread has so far, 0 where there is no schema yet.
func storedEvents(at string) int64 {
	c, thread, err := plainConn(at)
	if err != nil {
		return 0
	}
	defer c.Close(context.Background())
	r := c.ExecParams(context.Background(), "SELECT count(*) FROM events WHERE thread = $1", [][]byte{[]byte(thread)}, nil, nil, nil).Read()
	if r.Err != nil || len(r.Rows) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(r.Rows[0][0]), 10, 64)
	return n
}
