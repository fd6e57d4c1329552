package torture

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestTwoGovernors kills the program: a governance program that does not notice is ended
// before the next one begins. Each holds a lock for as long as a process of it lives.
func TestTwoGovernors(t *testing.T) {
	q := mockQueue(t)
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy")
	script := fmt.Sprintf("#!/bin/sh\ncd %s\nexec 9>>lock 2>/dev/null\nflock -n 9 || echo $$ >>overlaps\necho $$ >>begun\nread -r l\necho '{\"allow\":true}'\nsleep 100\n:\n", dir)
	if err := os.WriteFile(policy, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	th, config := place(t, fmt.Sprintf("name: torture\ngovernance: {command: [%q]}\n", policy)+q.config)
	n := min(kills(t), 5)
	for i := range n {
		if err := q.send(int64(i + 1)); err != nil {
			t.Fatal(err)
		}
		c := run(t, th.Dir(), config, "trigger")
		c.ready(t)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // polls a file
			if begun, _ := os.ReadFile(filepath.Join(dir, "begun")); bytes.Count(begun, []byte("\n")) > i {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no program begins: %s", &c.log)
			}
		}
		if i < n-1 {
			c.end(syscall.SIGKILL)
			continue
		}
		c.end(syscall.SIGTERM)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "overlaps")); err == nil {
		t.Errorf("%d of %d programs began next to another one", bytes.Count(text, []byte("\n")), n)
	}
}
