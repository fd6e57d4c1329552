package thread_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	ruleDefined   = regexp.MustCompile(`(?m)^- \*\*([THLOQ]-\d\d)\*\*`)
	ruleNamed     = regexp.MustCompile(`\b([THLOQ])-(\d\d)(?: to [THLOQ]-(\d\d))?\b`)
	sectionOf     = regexp.MustCompile(`(?m)^## (\d+) `)
	sectionNamed  = regexp.MustCompile(`filter\.md, section\s+(\d+)`)
	commentBreak  = regexp.MustCompile(`\n\s*(?://|#)\s*`)
	elsewhereOnly = regexp.MustCompile(`\bcontract (?:T|H|L|O|Q)-|\bseed 00\d|semantics\.md|contract/(?:lanes|history|outbox|triggers)\.md`)
)

// TestSpecification holds the tree against docs/spec: what is cited is defined
// there, each rule has a test that names it, and nothing is cited that a reader
// of this repository cannot open.
func TestSpecification(t *testing.T) {
	defined := map[string]bool{}
	for _, page := range []string{"thread.md", "lanes.md", "history.md", "outbox.md", "triggers.md"} {
		for _, m := range ruleDefined.FindAllStringSubmatch(read(t, "docs/spec/"+page), -1) {
			if defined[m[1]] {
				t.Errorf("docs/spec/%s defines %s twice", page, m[1])
			}
			defined[m[1]] = true
		}
	}
	sections := map[string]bool{}
	for _, m := range sectionOf.FindAllStringSubmatch(read(t, "docs/spec/filter.md"), -1) {
		sections[m[1]] = true
	}

	tested := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "dist") {
			return fs.SkipDir
		}
		switch filepath.Ext(path) {
		case ".go", ".md", ".txt", ".sh":
		default:
			return nil
		}
		if path == "spec_test.go" || strings.HasPrefix(path, filepath.Join("docs", "spec")) {
			return nil
		}
		text := commentBreak.ReplaceAllString(read(t, path), " ")
		if m := elsewhereOnly.FindString(text); m != "" {
			t.Errorf("%s cites %q, which is not in this repository: cite docs/spec", path, m)
		}
		isTest := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata")
		for _, rule := range rules(text) {
			if !defined[rule] {
				t.Errorf("%s cites %s, which docs/spec does not define", path, rule)
			}
			tested[rule] = tested[rule] || isTest
		}
		for _, m := range sectionNamed.FindAllStringSubmatch(text, -1) {
			if !sections[m[1]] {
				t.Errorf("%s cites section %s of docs/spec/filter.md, which is not there", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for rule := range defined {
		if !tested[rule] {
			t.Errorf("no test names %s", rule)
		}
	}
}

// rules returns the rules that a text names, those inside of "T-48 to T-51" too.
func rules(text string) (named []string) {
	for _, m := range ruleNamed.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[2])
		last := first
		if m[3] != "" {
			last, _ = strconv.Atoi(m[3])
		}
		for n := first; n <= last; n++ {
			named = append(named, m[1]+"-"+strconv.Itoa(n/10)+strconv.Itoa(n%10))
		}
	}
	return named
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
