package thread_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// proofRow is a row of the table that ends a page: a line, its test, and a command.
var proofRow = regexp.MustCompile("(?m)^\\| ([THLOQ]-\\d\\d) \\| (?:`(Test\\w+)` in )?`([^`]+)` \\| `(.+)` \\|$")

// TestContractNumbers: the table at the end of each page of docs/spec has each line of the page
// once, with a test that names the line and a command that shows it.
func TestContractNumbers(t *testing.T) {
	for _, page := range []string{"thread.md", "lanes.md", "history.md", "outbox.md", "triggers.md"} {
		text := read(t, "docs/spec/"+page)
		_, table, found := strings.Cut(text, "\n## Proof\n")
		if !found {
			t.Errorf("docs/spec/%s does not end in a table of its tests", page)
			continue
		}
		rows := map[string]bool{}
		for _, m := range proofRow.FindAllStringSubmatch(table, -1) {
			line, test, file := m[1], m[2], m[3]
			if rows[line] {
				t.Errorf("docs/spec/%s: %s has two rows", page, line)
			}
			rows[line] = true
			provenBy(t, line, test, file)
		}
		for _, m := range ruleDefined.FindAllStringSubmatch(text, -1) {
			if !rows[m[1]] {
				t.Errorf("docs/spec/%s: %s has no row with a test and a command", page, m[1])
			}
			delete(rows, m[1])
		}
		for line := range rows {
			t.Errorf("docs/spec/%s: %s is not a line of the page", page, line)
		}
	}
}

// provenBy fails unless the file is of tests, has the test, and names the line.
func provenBy(t *testing.T, line, test, file string) {
	t.Helper()
	if !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "testdata/") {
		t.Errorf("%s: %s has no tests", line, file)
		return
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	text := commentBreak.ReplaceAllString(string(b), " ")
	if !slices.Contains(rules(text), line) {
		t.Errorf("%s: %s does not name it", line, file)
	}
	if test != "" && !strings.Contains(text, "func "+test+"(") {
		t.Errorf("%s: %s has no %s", line, file, test)
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
