package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestProcessCost measures whole processes, from fork to exit, in one
// alternation: an empty program, a durable push with few and with many events in
// the thread, and the sqlite3 shell inserting the same row durably. Run it on a
// quiet machine, on a real disk:
//
//	TMPDIR=/var/tmp THREAD_COST_RUNS=100 go test -run ProcessCost -v ./cmd/thread
func TestProcessCost(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv("THREAD_COST_RUNS"))
	if runs <= 0 {
		t.Skip("THREAD_COST_RUNS is not set")
	}
	sqlite, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("no sqlite3 shell to compare with")
	}
	dir := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "empty.go"), []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	thread, empty := filepath.Join(dir, "thread"), filepath.Join(dir, "empty")
	build := []string{"build", "-trimpath", "-ldflags=-s -w", "-o"}
	run("go", append(build, thread, ".")...)
	run("go", append(build, empty, filepath.Join(dir, "empty.go"))...)

	few, many, db := filepath.Join(dir, "few"), filepath.Join(dir, "many"), filepath.Join(dir, "sqlite.db")
	run(thread, "init", few)
	run(thread, "init", many)
	const events = 1_000_000
	run("sh", "-c", fmt.Sprintf(`yes '{"source":"self","type":"message","content":"hello"}' | head -n %d | %s push --thread %s --batch --quiet`, events, thread, many))
	run("sh", "-c", fmt.Sprintf(`yes '{"source":"self","type":"message","content":"hello"}' | head -n 1000 | %s push --thread %s --batch --quiet`, thread, few))
	run(sqlite, db, `PRAGMA journal_mode=WAL;
		CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT,
			created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
			source TEXT NOT NULL, type TEXT NOT NULL, subtype TEXT, content TEXT NOT NULL);
		CREATE INDEX idx_events_source ON events(source); CREATE INDEX idx_events_type ON events(type);`)

	push := func(dir string) []string {
		return []string{thread, "push", "--thread", dir, "--source", "self", "--type", "message", "--content", "hello"}
	}
	commands := []struct {
		name string
		args []string
		took []time.Duration
	}{
		{name: "empty program", args: []string{empty}},
		{name: "thread --version", args: []string{thread, "--version"}},
		{name: "push, 1,000 events", args: push(few)},
		{name: "push, 1,000,000 events", args: push(many)},
		{name: "sqlite3 insert", args: []string{sqlite, db, `PRAGMA synchronous=FULL; INSERT INTO events (source, type, content) VALUES ('self', 'message', 'hello');`}},
	}
	for i := range runs + 5 {
		for j := range commands {
			c := &commands[j]
			start := time.Now()
			// Without pipes and their goroutines, which would cost more than the program.
			if err := exec.Command(c.args[0], c.args[1:]...).Run(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if i >= 5 { // the first ones warm the caches
				c.took = append(c.took, time.Since(start))
			}
		}
	}
	median := make([]float64, len(commands))
	for i, c := range commands {
		slices.Sort(c.took)
		median[i] = float64(c.took[len(c.took)/2].Microseconds()) / 1000
		t.Logf("%-24s %6.2f ms", c.name, median[i])
	}
	for _, limit := range []struct {
		what      string
		got, most float64
	}{
		{"push to an empty program", median[2] / median[0], 2.8},
		{"push to the sqlite3 shell", median[2] / median[4], 0.8},
		{"push with 1,000,000 events to one with 1,000", median[3] / median[2], 1.2},
	} {
		t.Logf("%-46s %.2f, at most %.1f", limit.what, limit.got, limit.most)
		if limit.got > limit.most {
			t.Errorf("%s: %.2f is more than %.1f", limit.what, limit.got, limit.most)
		}
	}
}
