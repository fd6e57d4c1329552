package main

import (
	"slices"
	"strings"
	"testing"
	"thread/internal/cli"
	"unicode/utf8"
)

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
