package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAgentLoop plays examples/agent-loop: its worker is killed in the middle, the run is
// recovered and finished by another one, and the history says so.
func TestAgentLoop(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("no jq")
	}
	cmd := exec.Command("../../examples/agent-loop/run.sh", filepath.Join(t.TempDir(), "new"))
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	for _, want := range []string{
		`(?m)^the worker died with exit code 137$`,
		`(?m)^R  queued  agent counter  session S  for user:7 `,
		`(?m)  user  "How many files are here\?"$`,
		`(?m)  assistant  \[\{"type":"tool-call","toolCallId":"1","toolName":"count","input":\{"dir":"."\}\}\]$`,
		`(?m)  tool  \[\{"type":"tool-result","toolCallId":"1","toolName":"count","output":1\}\]$`,
		`(?m)  assistant  "There are 1 files\."$`,
		`(?m)^R  completed .*attempt 2$`,
		`(?m)^  step 1  command  .*/agent\.sh  agent counter  failed `,
		`(?m)^  step 4  model_call  agent counter  completed `,
		`(?m)^tools .* R  completed  .*tool native/count`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("no %s in\n%s%s", want, out, &stderr)
		}
	}
	if n := strings.Count(string(out), `"tool-result"`); n != 2 { // as a message of the session, and of the run
		t.Errorf("the tool was called again: %d\n%s", n, out)
	}
	agent, err := os.ReadFile("../../examples/agent-loop/agent.sh")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(agent), "\n"); n > 40 {
		t.Errorf("the loop has %d lines, the document says some 30", n)
	}
}
