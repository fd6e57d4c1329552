package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestManualPages formats the pages with groff, as man does, and looks for what
// the grammar says.
func TestManualPages(t *testing.T) {
	pages := manualPages()
	if len(pages) != len(verbs())+1 {
		t.Errorf("%d pages for %d verbs", len(pages), len(verbs()))
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("no groff to format with")
	}
	formatted := func(name string) string {
		cmd := exec.Command("groff", "-man", "-T", "utf8", "-ww", "-rHY=0", "-P", "-c")
		cmd.Stdin = bytes.NewReader(pages[name])
		var warnings strings.Builder
		cmd.Stderr = &warnings
		out, err := cmd.Output()
		if err != nil || warnings.Len() > 0 {
			t.Fatalf("%s: %v\n%s", name, err, &warnings)
		}
		// A bold letter is the letter, a backspace and the letter again, and lines
		// are broken anywhere.
		text := regexp.MustCompile(".\x08").ReplaceAllString(string(out), "")
		return strings.Join(strings.Fields(text), " ")
	}
	overview := formatted("thread.1")
	for _, v := range verbs() {
		if !strings.Contains(overview, v.pageName()+"(1)") {
			t.Errorf("thread.1 does not name %s", v.pageName())
		}
		page := formatted(v.pageName() + ".1")
		for _, f := range newParser(v, v.grammar()).Model.Flags {
			if strings.Contains(page, flagWords(f)) == f.Hidden {
				t.Errorf("%s.1 explains %s: %v", v.pageName(), flagWords(f), f.Hidden)
			}
		}
		if want := strings.Join(strings.Fields(v.examples), " "); !strings.Contains(page, want) {
			t.Errorf("%s.1 does not show the examples %q; it is\n%s", v.pageName(), want, page)
		}
	}
}

// TestRoff: what a formatter takes for itself is printed as it stands.
func TestRoff(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain", "plain"},
		{`a\b`, `a\eb`},
		{"--flag", `\-\-flag`},
		{".dot\n'quote", "\\&.dot\n\\(aqquote"},
	} {
		if got := roff(tt.in); got != tt.want {
			t.Errorf("roff(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
