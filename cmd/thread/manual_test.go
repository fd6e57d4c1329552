package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"thread/internal/cli"
)

// TestManualPages formats the pages with groff, as man does, and looks for what
// the grammar says.
func TestManualPages(t *testing.T) {
	pages := whole.ManualPages()
	if len(pages) != len(allVerbs())+1 {
		t.Errorf("%d pages for %d verbs", len(pages), len(allVerbs()))
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
	for _, v := range allVerbs() {
		if !strings.Contains(overview, v.PageName()+"(1)") {
			t.Errorf("thread.1 does not name %s", v.PageName())
		}
		page := formatted(v.PageName() + ".1")
		for _, f := range v.Model().Flags {
			if strings.Contains(page, cli.FlagWords(f)) == f.Hidden {
				t.Errorf("%s.1 explains %s: %v", v.PageName(), cli.FlagWords(f), f.Hidden)
			}
		}
		if want := strings.Join(strings.Fields(v.Examples), " "); !strings.Contains(page, want) {
			t.Errorf("%s.1 does not show the examples %q; it is\n%s", v.PageName(), want, page)
		}
	}
}
