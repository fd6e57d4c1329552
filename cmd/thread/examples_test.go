package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
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

// TestExamples plays the examples whose output is always the same.
func TestExamples(t *testing.T) {
	for name, want := range map[string]string{
		"webhook-inbox":    "Status: 204 No Content\r\n" + "Status: 204 No Content\r\n" + "Status: 204 No Content\r\n" + "{\"n\":1}\n{\"n\":2}\n",
		"ci-notifications": "build failed: {\"branch\":\"main\",\"commit\":\"c3\"}\n2\tbuild\tfailed\n1\tbuild\tpassed\n",
		"board":            "at the center without the link: 0\n\"20.5\"\n\"20.7\"\n\"21.0\"\n",
		"cron-pipe": "the first night failed: 4 lines were out\nthe third night: nothing to take\n" +
			strings.Repeat("\"81% /srv\"\n\"12% /srv/www\"\n", 2),
		"agent-mailbox": "81% used\n\"{\\\"reply_to\\\":3,\\\"content\\\":\\\"I do not know\\\"}\"\n2\tanswer\n2\tquestion\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr strings.Builder
			dir := filepath.Join(t.TempDir(), "new dir")
			t.Cleanup(func() { awaitRest(dir) })
			cmd := exec.Command("../../examples/"+name+"/run.sh", dir)
			cmd.Stderr = &stderr
			if out, err := cmd.Output(); err != nil || string(out) != want {
				t.Errorf("%v\n%s%s\nwant\n%s", err, out, &stderr, want)
			}
		})
	}
}

// goal is one of examples/README.md: how many commands it says, they, and what they print.
var goal = regexp.MustCompile("(?ms)^### ([^\n]+): ([0-9]+) commands\n\n(?:[^`#][^\n]*\n\n)?```sh\n(.*?)^```\n\n```\n(.*?)^```$")

// TestGoals runs the commands of examples/README.md, which begin next to a clone, and
// counts them.
func TestGoals(t *testing.T) {
	page, err := os.ReadFile("../../examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	goals := goal.FindAllStringSubmatch(string(page), -1)
	if len(goals) != 4 || len(goals) != strings.Count(string(page), "\n### ") {
		t.Fatalf("%d goals", len(goals))
	}
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range goals {
		t.Run(g[1], func(t *testing.T) {
			t.Parallel()
			if n := commands(g[3]); g[2] != fmt.Sprint(n) {
				t.Errorf("%s commands are said, there are %d", g[2], n)
			}
			dir := t.TempDir()
			t.Cleanup(func() { awaitRest(dir) })
			if err := os.Symlink(clone, filepath.Join(dir, "thread")); err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			cmd := exec.Command("sh", "-euc", g[3])
			cmd.Dir, cmd.Stderr = dir, &stderr
			cmd.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=")
			out, err := cmd.Output()
			if got := strings.ReplaceAll(string(out), dir, "…"); err != nil || got != g[4] {
				t.Errorf("%v\n%s%swant\n%s", err, got, &stderr, g[4])
			}
		})
	}
}

// commands counts the commands of a script: its lines, except for what continues from the line
// before, and here documents.
func commands(script string) (n int) {
	here, goesOn := false, false
	for line := range strings.Lines(script) {
		switch {
		case here:
			here = line != "END\n"
		case !goesOn && !unicode.IsSpace(rune(line[0])):
			n++
		}
		goesOn = strings.HasSuffix(line, "\\\n")
		here = here || strings.Contains(line, "<<'END'")
	}
	return n
}
