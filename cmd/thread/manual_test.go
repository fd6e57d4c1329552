package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
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
		for line := range strings.Lines(v.Exits) {
			code, meaning, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if _, status, _ := strings.Cut(page, "EXIT STATUS"); !strings.Contains(status, code+" ") || !strings.Contains(status, meaning) {
				t.Errorf("%s.1 does not say that exit code %s is %q", v.PageName(), code, meaning)
			}
		}
		if want := strings.Join(strings.Fields(v.Examples), " "); !strings.Contains(page, want) {
			t.Errorf("%s.1 does not show the examples %q; it is\n%s", v.PageName(), want, page)
		}
	}
}

// TestManualSeven: the pages of section 7 name every function of filters, every variable
// of a handler and every column, and are free of mistakes.
func TestManualSeven(t *testing.T) {
	pages, err := filepath.Glob("../../packaging/man/*.7")
	if err != nil || len(pages) != 2 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath("groff"); err == nil {
			out, err := exec.Command("groff", "-man", "-T", "utf8", "-ww", "-z", page).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%s: %v\n%s", page, err, out)
			}
		}
		var words []string
		switch filepath.Base(page) {
		case "thread-filter.7":
			words = found(t, "../../filter/functions.go", `(?s)func lookupFunction.*?\n}`, `"([a-z_]+)"`)
			words = append(words, "id", "rowid", "created_at", "source", "type", "subtype", "content")
		case "thread-handlers.7":
			words = found(t, "../../internal/dispatch/dispatcher.go", `(?s)const \(\n\tenvDir.*?\n\)`, `"(THREAD_[A-Z_]+)"`)
			for _, name := range found(t, "../../internal/consume/exec.go", `(?s).*`, `set\(envEvent\+"([A-Z_]+)"`) {
				words = append(words, "THREAD_EVENT_"+name)
			}
		}
		if len(words) < 10 {
			t.Errorf("%s: %q is all there is to name", page, words)
		}
		for _, word := range words {
			if !regexp.MustCompile(`\b` + word + `\b`).Match(text) {
				t.Errorf("%s does not name %s", page, word)
			}
		}
	}
}

// found returns what the pattern finds in a part of a file.
func found(t *testing.T, file, part, pattern string) (words []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(regexp.MustCompile(part).Find(text), -1) {
		words = append(words, string(m[1]))
	}
	return words
}
