//go:build linux

package dispatch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// endedRuns returns what is left for the history, in the order of names.
func (b *bench) endedRuns() (list []EndedRun) {
	b.Helper()
	entries, _ := os.ReadDir(EndedDir(b.t.Dir()))
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".new") {
			continue // being written
		}
		text, err := os.ReadFile(filepath.Join(EndedDir(b.t.Dir()), e.Name()))
		if err != nil {
			b.Fatal(err)
		}
		var run EndedRun
		if err := json.Unmarshal(text, &run); err != nil {
			b.Fatalf("%s: %v", e.Name(), err)
		}
		if ok := strings.HasSuffix(e.Name(), endedOK); ok != (run.Status == "completed") || !ok && !strings.HasSuffix(e.Name(), endedFailed) {
			b.Errorf("%s has the status %s", e.Name(), run.Status)
		}
		list = append(list, run)
	}
	return list
}

// H-23: a run that has ended is left to the history with what started it, how it ended
// and what it printed; nothing of a run that continues.
func TestRunIsLeft(t *testing.T) {
	tests := []struct {
		name, handler  string
		timeout        time.Duration
		status, exit   string
		output         string
		bytes, ackedTo int64
	}{
		{name: "ok", handler: drain + `; printf 'out\nno end'`, status: "completed", exit: "exit 0", output: "out\nno end", bytes: 10, ackedTo: 2},
		{name: "failed", handler: drain + `; echo err >&2; exit 7`, status: "failed", exit: "exit 7", output: "err\n", bytes: 4, ackedTo: 2},
		{name: "killed", handler: drain + `; kill -9 $$`, status: "failed", exit: "killed by SIGKILL", ackedTo: 2},
		{name: "timeout", handler: drain + `; sleep 1000`, timeout: 1500 * time.Millisecond, status: "timed_out", exit: "timed out after 1.5s", ackedTo: 2},
		{name: "huge", handler: drain + `; head -c 100000 /dev/zero; echo end`, status: "completed", exit: "exit 0", output: strings.Repeat("\x00", KeptOutput-4) + "end\n", bytes: 100_004, ackedTo: 2},
		{name: "no UTF-8", handler: drain + `; printf 'a\377b'`, status: "completed", exit: "exit 0", output: "a\uFFFDb", bytes: 3, ackedTo: 2},
	}
	b := newBench(t)
	b.push("other")
	filter := "source = 'external:me'"
	for _, tc := range tests {
		b.subscribe(engine.Subscription{Consumer: "c/" + tc.name, Handler: tc.handler, Timeout: tc.timeout, Filter: &filter})
	}
	b.push("external:me")
	b.dispatch(Options{MaxHandlers: len(tests)})
	b.awaitIdle()
	left := map[string]EndedRun{}
	for _, r := range b.endedRuns() {
		if _, twice := left[r.Consumer]; twice {
			t.Errorf("a second run: %+v", r)
		}
		left[r.Consumer] = r
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := left["c/"+tc.name]
			code := -1
			if _, err := fmt.Sscanf(tc.exit, "exit %d", &code); err != nil {
				code = -1
			}
			if (r.ExitCode == nil) != (code < 0) || r.ExitCode != nil && *r.ExitCode != code {
				t.Errorf("exit code %v of %q", r.ExitCode, tc.exit)
			}
			if r.Handler != tc.handler || r.Status != tc.status || r.Exit != tc.exit || r.EventID != 2 || r.Source != "external:me" ||
				r.AckedFrom != 0 || r.AckedTo != tc.ackedTo || len(r.RunID) != 32 || r.EndedAt.Before(r.StartedAt) {
				t.Errorf("%+v", r)
			}
			if r.Output != tc.output || r.OutputBytes != tc.bytes {
				t.Errorf("output %q, %d bytes; want %q, %d", r.Output[max(0, len(r.Output)-20):], r.OutputBytes, tc.output[max(0, len(tc.output)-20):], tc.bytes)
			}
		})
	}
}

// A supervisor that is killed at any place between the end of a handler and its release
// leaves the run, once as the history sees it: the first file with its id counts.
func TestKilledBeforeRunIsLeft(t *testing.T) {
	for place, exit := range map[string]string{"ended": unknownExit, "recorded": "exit 0", "decided": "exit 0"} {
		t.Run(place, func(t *testing.T) {
			b := newBench(t)
			t.Setenv("DISPATCH_TEST_DIE_AT", place)
			t.Setenv("DISPATCH_TEST_DIED", b.path("died"))
			b.subscribe(engine.Subscription{Consumer: "c", Handler: drain + `; echo said`})
			last := b.push("s")
			b.dispatch(Options{})
			b.awaitAcked(last)
			b.until("death and rest", func() bool {
				_, err := os.Stat(b.path("died"))
				return err == nil && len(b.endedRuns()) > 0
			})
			b.awaitIdle()
			list := b.endedRuns()
			if list[0].Exit != exit || list[0].Output != "said\n" || list[0].Status != "completed" {
				t.Errorf("%+v", list[0])
			}
			for _, r := range list {
				if r.RunID != list[0].RunID {
					t.Errorf("two runs: %+v", list)
				}
			}
		})
	}
}

// What keeps a run from being left keeps no handler from running.
func TestRunCannotBeLeft(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain})
	if err := os.MkdirAll(filepath.Dir(EndedDir(b.t.Dir())), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(EndedDir(b.t.Dir()), []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		last := b.push("s")
		b.dispatch(Options{})
		b.awaitIdle()
		if got := b.acked("c"); got != last {
			t.Errorf("acked %d, want %d", got, last)
		}
	}
	if !strings.Contains(b.log(), "is not recorded: ") {
		t.Error("nothing was logged")
	}
}

// No process takes them: the oldest go, those that went well first.
func TestLeftRunsAreBounded(t *testing.T) {
	thread := t.TempDir()
	dir := EndedDir(thread)
	run := EndedRun{RunID: strings.Repeat("0", 32)}
	many := 0
	for i := range maxEnded + 30 {
		run.EndedAt = time.UnixMilli(int64(i))
		full, err := run.Leave(thread, i%100 != 0)
		if err != nil {
			t.Fatal(err)
		}
		if full {
			many++
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), endedFailed) {
			failed++
		}
	}
	if len(entries) != maxEnded || failed != (maxEnded+30+99)/100 || many != maxEnded+30-manyEnded {
		t.Errorf("%d are left, %d of them failed; many were told %d times", len(entries), failed, many)
	}
}
