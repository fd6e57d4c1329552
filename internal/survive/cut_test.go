package survive

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCutUnderReader truncates the database while the program prints it, and waits
// with the pipe full: what it has printed is right, then it names the damage and
// ends with 1. It is never killed by a signal of the memory that is gone.
func TestCutUnderReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "thread")
	thread(t, "", "init", dir)
	thread(t, batch(5000, strings.Repeat("some content ", 80)), "push", "--batch", "--thread", dir)
	peek := []string{"peek", "--thread", dir, "--last-event-id", "0", "--limit", "100000"}
	want := lines(thread(t, "", peek...))
	db := filepath.Join(dir, "events.db")
	whole, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, 5000, 1 << 20, int64(len(whole)) / 2} {
		cmd := exec.Command(program, peek...)
		cmd.Env = environment()
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out := bufio.NewReader(stdout)
		first, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(db, n); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its exit code is looked at
		code := cmd.ProcessState.ExitCode()
		text := stderr.String()
		if code != 1 || !strings.HasPrefix(text, "Error: ") || strings.Count(text, "\n") != 1 {
			t.Errorf("cut to %d bytes: exit %d, %.2000q", n, code, text)
		}
		got := lines(first + string(rest))
		if len(got) >= len(want) {
			t.Errorf("cut to %d bytes: %d events", n, len(got))
		}
		for i, line := range got {
			if line != want[i] {
				t.Fatalf("cut to %d bytes: event %d is %.300s", n, i+1, line)
			}
		}
		if err := os.WriteFile(db, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
