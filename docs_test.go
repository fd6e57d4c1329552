package thread_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestArchitectureNamesFiles: every path that docs/ARCHITECTURE.md names is there.
func TestArchitectureNamesFiles(t *testing.T) {
	text, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	paths := regexp.MustCompile("`([a-z][a-z_]*/[a-z_/.-]+)`").FindAllSubmatch(text, -1)
	if len(paths) < 30 {
		t.Fatalf("%d paths were found", len(paths))
	}
	for _, m := range paths {
		path := string(m[1])
		if _, err := os.Stat(path); err != nil && path != "run/.offers" && path != "logs/handlers" && path != "logs/thread.log" {
			t.Errorf("%s does not exist", path)
		}
	}
}

// TestLinks: every relative link of a document leads to a file, and its anchor to a
// heading there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(prose(read(t, path)), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: there is no %s", path, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: %s has no heading #%s", path, file, anchor)
			}
		}
		return nil
	})
	if err != nil || links < 100 {
		t.Errorf("%d links, %v", links, err)
	}
}

// prose returns a page without its fenced blocks.
func prose(page string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(page, "")
}

// anchors returns the names of headings as GitHub makes them.
func anchors(page string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(page), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// maxWords bounds all documents together, except CHANGELOG and the specification: what is
// longer is not read. Counted as wc -w does.
const (
	maxWords = 40_000
	maxGuide = 400
)

// TestWords counts the words of all documents, and of each guide. Every page ends with
// where to go next.
func TestWords(t *testing.T) {
	words := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") || path == "CHANGELOG.md" || strings.HasPrefix(path, "docs/spec/") {
			return err
		}
		n := len(strings.Fields(read(t, path)))
		words += n
		if strings.HasPrefix(path, "docs/guides/") && n > maxGuide {
			t.Errorf("%s has %d words, a guide at most %d", path, n, maxGuide)
		}
		if strings.HasPrefix(path, "docs/") && path != "docs/README.md" && !strings.Contains(read(t, path), "\n## Next\n") {
			t.Errorf("%s does not end with where to go next", path)
		}
		return nil
	})
	if err != nil || words > maxWords {
		t.Errorf("the documents have %d words, the limit is %d: say it once, or shorter (%v)", words, maxWords, err)
	}
	t.Logf("%d words", words)
}

// TestTwoClicks: what newcomers ask first is answered at most two links from README.md.
func TestTwoClicks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]+\.md)`)
	near := map[string]bool{"README.md": true}
	for range 2 {
		for _, page := range slices.Sorted(maps.Keys(near)) {
			for _, m := range link.FindAllStringSubmatch(prose(read(t, page)), -1) {
				near[filepath.Join(filepath.Dir(page), m[1])] = true
			}
		}
	}
	for question, page := range map[string]string{
		"which one do I use":                "CHOOSING",
		"pop, next, consume, tail, ask":     "CHOOSING",
		"my handler does not start":         "TROUBLESHOOTING",
		"how do I install it on a Pi":       "guides/install",
		"the page behind a proxy":           "guides/page-behind-a-proxy",
		"what does at-least-once ask of me": "concepts/delivery",
		"how do I test a handler":           "guides/test-a-handler",
		"when is it too small for me":       "concepts/too-small",
		"rotate a token, who did what":      "guides/tokens",
		"my disk is full":                   "TROUBLESHOOTING",
	} {
		if !near["docs/"+page+".md"] {
			t.Errorf("%s: docs/%s.md is more than two links from README.md", question, page)
		}
	}
}
