package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSpecCommands runs the commands in the tables that end the pages of docs/spec, each in a
// copy of the thread that docs/spec/README.md makes. What they print has the text behind
// the arrow.
func TestSpecCommands(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell")
	}
	readme, err := os.ReadFile("../../docs/spec/README.md")
	if err != nil {
		t.Fatal(err)
	}
	prepare := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(string(readme))[1]
	base := t.TempDir()
	run := func(dir, script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput() // its exit code is the command's own
		return string(out)
	}
	if out := run(base, "set -e\n"+prepare+"echo prepared"); !strings.HasSuffix(out, "\nprepared\n") {
		t.Fatal(out)
	}
	row := regexp.MustCompile("(?m)^\\| ([THLOQ]-\\d\\d) \\| .* \\| `([^`]+)`(?: → `([^`]+)`)? \\|$")
	environment := "export THREAD_DIR=$PWD/t THREAD_DISPATCH=none; "
	for _, page := range []string{"thread", "lanes", "history", "outbox"} {
		text, err := os.ReadFile("../../docs/spec/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range row.FindAllStringSubmatch(string(text), -1) {
			line, command, want := m[1], strings.ReplaceAll(m[2], `\|`, "|"), strings.ReplaceAll(m[3], `\|`, "|")
			if strings.Contains(command, "go test ") {
				continue
			}
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "dir")
				if out := run(base, "cp -a . "+dir); out != "" {
					t.Fatal(out)
				}
				if out := run(dir, environment+command); want == "" || !strings.Contains(out, want) {
					t.Errorf("%s prints\n%s\nwithout %q", command, out, want)
				}
			})
		}
	}
}
