package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"thread/net/internal/pgtest"
)

// TestPages runs the blocks of documents that are marked "sh server", in the order of
// the page, with a schema of the test in place of the database that the page names.
func TestPages(t *testing.T) {
	const named = "postgres://db.example.org/app?thread="
	for name, want := range map[string]string{
		"reference/postgresql": `"content":"hello"`,
		"guides/to-postgresql": "Exported 2 events",
	} {
		t.Run(name, func(t *testing.T) {
			base := pgtest.Schema(t)
			page, err := os.ReadFile("../../../docs/" + name + ".md")
			if err != nil {
				t.Fatal(err)
			}
			// The thread of these tests has no verbs for SQLite, which would run thread-net.
			of := strings.NewReplacer(named, base, "thread import", "thread-net import", "thread export", "thread-net export")
			script := "thread init inbox; THREAD_DISPATCH=none thread push --thread inbox --source a --type t --content x\n"
			for _, m := range regexp.MustCompile("(?ms)^ *```sh server\n(.*?)^ *```").FindAllStringSubmatch(string(page), -1) {
				script += of.Replace(m[1])
			}
			cmd := exec.Command("sh", "-ec", script)
			cmd.Dir = t.TempDir()
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%v, and %q is expected:\n%s", err, want, out)
			}
		})
	}
}
