package cli

import (
	"io"
	"strings"
	"testing"
)

// TestGroupOfAnotherProgram: a group of verbs may be another program's as a whole.
func TestGroupOfAnotherProgram(t *testing.T) {
	p := NewProgram("thread", []Entry{
		{Name: "box list", Program: "thread-nowhere", Summary: "Show the boxes"},
		{Name: "box empty", Program: "thread-nowhere", Summary: "Empty a box"},
	})
	for _, args := range []string{"box list", "box list --json", "help box", "help box list", "box --help"} {
		var stdout, stderr strings.Builder
		code := p.Run(strings.Fields(args), strings.NewReader(""), &stdout, &stderr)
		if want := "Error: thread box list needs the program thread-nowhere, which is not installed - "; code != 1 || !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("thread %s: exit code %d, %s, want %s", args, code, &stderr, want)
		}
	}
	var stderr strings.Builder
	if code := p.Run([]string{"box"}, nil, io.Discard, &stderr); code != 2 || !strings.HasPrefix(stderr.String(), "Invalid command: box\n") {
		t.Errorf("thread box: exit code %d, %s", code, &stderr)
	}
	if text := p.Overview(false, 80); !strings.Contains(text, "box empty       Empty a box") {
		t.Errorf("the overview does not show it:\n%s", text)
	}
}
