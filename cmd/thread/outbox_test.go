package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shell runs a script in a directory of its own and returns what it prints.
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

// TestOutboxTour types in what docs/OUTBOX.md says. O-09, O-13: it is delivered.
func TestOutboxTour(t *testing.T) {
	text, err := os.ReadFile("../../docs/OUTBOX.md")
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
