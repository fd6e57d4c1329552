//go:build !windows

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRefusals: the table of refusals of the document is complete, and each verb in it is refused
// by name, in one line that says what to do, and without a server.
func TestRefusals(t *testing.T) {
	const url = "postgres://127.0.0.1:1/app?thread=inbox"
	commands := map[string][]string{
		"compact": {"--thread", url}, "repair": {"--thread", url, "--to", "new"}, "backup": {"new", "--thread", url}, "restore": {"old", "--to", url},
		"dispatch": {"--thread", url},
	}
	page, err := os.ReadFile("../../../docs/reference/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?m)^\| refused \| because \|\n.*\n((?:\|.*\n)+)`).FindStringSubmatch(string(page))
	if table == nil {
		t.Fatal("the page has no table of refusals")
	}
	h, left := &host{t: t}, len(commands)
	for row := range strings.Lines(table[1]) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			args, known := commands[m[1]]
			if !known {
				t.Errorf("%s has no command here", m[1])
				continue
			}
			left--
			out, err := h.command(append(strings.Fields(m[1]), args...)...).CombinedOutput()
			line := string(out)
			if err == nil || strings.Count(line, "\n") != 1 || !strings.HasPrefix(line, "Error: ") || !strings.Contains(line, " - ") || m[1] != "restore" && !strings.HasPrefix(line, "Error: thread "+m[1]+" is for a thread in a directory, not for one in PostgreSQL - ") {
				t.Errorf("thread %s: %v: %s", m[1], err, line)
			}
		}
	}
	if left != 0 {
		t.Errorf("%d commands here are not in the table", left)
	}
}
