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
	if code := p.Run([]string{"box"}, nil, io.Discard, &stderr); code != 2 || !strings.HasPrefix(stderr.String(), "Usage: thread box <command> [flags]\n") {
		t.Errorf("thread box: exit code %d, %s", code, &stderr)
	}
	if text := p.Overview(true, 80); !strings.Contains(text, "box empty  Empty a box") {
		t.Errorf("the overview does not show it:\n%s", text)
	}
}

// TestNetworkVariable: only the word allows it.
func TestNetworkVariable(t *testing.T) {
	for value, want := range map[string]bool{"": false, "no": false, "1": false, "Allow": false, "allow": true} {
		if t.Setenv(envNetwork, value); allowsNetwork() != want {
			t.Errorf("%s=%s: %v", envNetwork, value, !want)
		}
	}
}

// TestLinkedVerbStays: a verb that is linked in is not replaced by an entry that names
// its program, whichever list comes first.
func TestLinkedVerbStays(t *testing.T) {
	linked := []Entry{{Name: "box list", Verb: &Verb{Name: "box list"}}}
	named := []Entry{{Name: "box list", Program: "thread-box", Summary: "Show the boxes"}}
	for _, lists := range [][][]Entry{{linked, named}, {named, linked}, {nil, linked, named}, {nil, named, linked}} {
		p := NewProgram("thread", lists...)
		if len(p.Entries) != 1 || p.Entries[0].Verb == nil {
			t.Errorf("%d entries, the first %+v", len(p.Entries), p.Entries[0])
		}
	}
}
