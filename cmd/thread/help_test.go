package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"thread/internal/cli"
	"unicode/utf8"
)

// TestExitCodes: the help of every verb says what its exit codes mean for it, and lists
// each code that a transcript has seen it refuse something with.
func TestExitCodes(t *testing.T) {
	meant := map[string]map[string]string{}
	for _, v := range allVerbs() {
		if !strings.Contains(v.Help(1000), "\n  -h, --help ") {
			t.Errorf("%s has no --help", v.Name)
		}
		_, section, found := strings.Cut(v.Help(1000), "\nExit codes:\n")
		codes := map[string]string{}
		for line := range strings.Lines(section) {
			code, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
			codes[code] = strings.TrimSpace(meaning)
		}
		if !found || codes["0"] == "" || codes["0"] == "done" || codes["1"] == "" || codes["2"] == "" {
			t.Errorf("%s: its own exit codes are missing:\n%s", v.Name, section)
		}
		for line := range strings.Lines(v.Exits) {
			code, meaning, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if !strings.Contains(codes[code], meaning) {
				t.Errorf("%s: %s does not say %q but %q", v.Name, code, meaning, codes[code])
			}
		}
		meant[v.Name] = codes
	}
	scripts, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal(len(scripts), err)
	}
	seen := 0
	refusal := regexp.MustCompile(`(?m)^refused ([0-9]+) thread (\S+)(?: (\S+))?`)
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range refusal.FindAllStringSubmatch(string(text), -1) {
			codes := meant[m[2]+" "+m[3]]
			if codes == nil {
				codes = meant[m[2]]
			}
			if codes == nil {
				continue // thread-bridge, -C
			}
			if seen++; codes[m[1]] == "" {
				t.Errorf("%s: %s: the help does not list %s", script, m[0], m[1])
			}
		}
	}
	if seen < 300 {
		t.Errorf("%d refusals seen", seen)
	}
}

// TestHelpFits: at every width the help has the same words, its examples as they
// are, before the flags, and no other line that could be shorter.
func TestHelpFits(t *testing.T) {
	pages := map[string]func(columns int) string{
		"overview": func(columns int) string { return whole.Overview(true, columns) },
	}
	examples := map[string]string{"overview": cli.OverviewExamples}
	for _, v := range allVerbs() {
		pages[v.Name], examples[v.Name] = v.Help, v.Examples
	}
	for name, page := range pages {
		example := "\nExamples:\n  " + strings.ReplaceAll(examples[name], "\n", "\n  ") + "\n"
		words := strings.Fields(page(1000))
		for _, columns := range []int{30, 40, 59, 60, 80, 100} {
			text := page(columns)
			if !slices.Equal(strings.Fields(text), words) {
				t.Errorf("%s: other words at %d columns:\n%s", name, columns, text)
			}
			rest, flags, found := strings.Cut(text, example)
			if !found || strings.Contains(rest, "\nFlags:") {
				t.Errorf("%s: the examples do not come first:\n%s", name, text)
			}
			for line := range strings.SplitSeq(rest+flags, "\n") {
				term := columns < cli.Narrowest && strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ")
				if utf8.RuneCountInString(line) > columns && len(strings.Fields(line)) > 1 && !term {
					t.Errorf("%s: longer than %d: %q", name, columns, line)
				}
			}
		}
	}
}

// TestTopics: every command has a topic of at most eight lines, and fifteen are for every day.
func TestTopics(t *testing.T) {
	everyday := 0
	for _, topic := range whole.Topics() {
		lines := map[string]bool{}
		for _, e := range topic.Entries {
			first, _, _ := strings.Cut(e.Name, " ")
			lines[first] = true
			if e.Topic == "" {
				t.Errorf("%s has no topic", e.Name)
			}
		}
		if len(lines) > 8 {
			t.Errorf("%s: %d commands", topic.Title, len(lines))
		}
		if topic.Everyday {
			everyday += len(lines)
		}
	}
	if everyday != 15 {
		t.Errorf("%d everyday commands", everyday)
	}
}
