package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const example = `package p

func f(a, b int, file *os.File) (int, error) {
	defer file.Close()
	if a < 10 && !ok() {
		return b + 1, err
	}
	for i := 0; i == a; i++ {
		if err := file.Sync(); err != nil {
			return 0, err
		}
	}
	if !ok() {
		close(c)
	}
	return 0, nil
}
`

func TestOperators(t *testing.T) {
	found, err := inFile("p/f.go", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range found {
		got = append(got, m.operator+": "+m.result)
		if m.function != "f" || !strings.Contains(strings.Split(string(m.apply([]byte(example))), "\n")[m.line-1], m.result) {
			t.Errorf("%v", m)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), "", m.apply([]byte(example)), 0); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
	for _, want := range []string{
		"call dropped: _ = file.Close", "negation: if !(a < 10 && !ok()) {", "comparison: if a >= 10 && !ok() {", "boundary: if a <= 10 && !ok() {",
		"±1: if a < 11 && !ok() {", "and/or: if a < 10 || !ok() {", "±1: return b - 1, err", "error swallowed: return b + 1, nil",
		"comparison: for i := 0; i != a; i++ {", "±1: for i := 0; i == a; i-- {", "call dropped: if err := func() error { _ = file.Sync; return nil }(); err != nil {",
		"comparison: if err := file.Sync(); err == nil {", "error swallowed: return 0, nil", "negation: if ok() {", "call dropped: _ = c",
	} {
		i := slices.Index(got, want)
		if i < 0 {
			t.Errorf("%q is missing", want)
			continue
		}
		got = slices.Delete(got, i, i+1)
	}
	if len(got) > 0 {
		t.Errorf("more than is wanted: %q", got)
	}
}

// module makes a module and moves there.
func module(t *testing.T, files map[string]string) {
	t.Helper()
	if os.Getenv("THREAD_MUTANTS") == "" {
		t.Skip("builds for some seconds: THREAD_MUTANTS=1")
	}
	dir := t.TempDir()
	files["go.mod"] = "module example.org/m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// TestRun: one mutant that the test notices, and one that it does not.
func TestRun(t *testing.T) {
	module(t, map[string]string{
		"a/a.go":      "package a\n\nfunc Less(a, b int) bool { return a < b }\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestLess(t *testing.T) {\n\tif !Less(1, 2) || Less(2, 1) {\n\t\tt.Fail()\n\t}\n}\n",
	})
	var first string
	for range 2 {
		var stdout, stderr bytes.Buffer
		code := run([]string{"-count", "0", "-seed", "7", "-jobs", "2", "./a"}, &stdout, &stderr)
		out := stdout.String()
		if code != 0 || !strings.Contains(out, "survived a/a.go:3 Less: boundary: func Less(a, b int) bool { return a <= b }\n") || !strings.Contains(out, "\n2 tried, 1 survived (50.0 %)") {
			t.Fatalf("exit %d, %s%s", code, out, stderr.String())
		}
		if first != "" && first != out {
			t.Errorf("%s, then %s", first, out)
		}
		first = out
	}
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-count", "0", "-most", "0", "./a"}, &stdout, &stderr); code != 1 || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("exit %d, %s", code, stderr.String())
	}
}

// TestBadInput: one line, and exit code 2.
func TestBadInput(t *testing.T) {
	module(t, map[string]string{
		"empty/e.go":        "package empty\n",
		"broken/b.go":       "package broken\n\nfunc f() bool { return 1 == x }\n",
		"unparsed/u.go":     "package unparsed\n\nfunc {\n",
		"failing/f.go":      "package failing\n\nfunc F() bool { return 1 == 2 }\n",
		"failing/f_test.go": "package failing\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { t.Fatal(\"always\") }\n",
	})
	for _, args := range [][]string{
		{}, {"./none"}, {"./empty"}, {"./broken"}, {"./unparsed"}, {"./failing"}, {"-count", "x", "./failing"}, {"-count", "-1", "./failing"}, {"-jobs", "0", "./failing"}, {"-match", "(", "./failing"}, {"./failing/none.go"}, {"../elsewhere"}, {"fmt"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(args, &stdout, &stderr)
		text := stderr.String()
		if code != 2 || stdout.Len() > 0 || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "Error: ") || !strings.Contains(text, " - ") {
			t.Errorf("%q: exit %d, %q, %q", args, code, stdout.String(), text)
		}
	}
}

// TestEquivalent: the rooms are there, and each mutant that is listed has a reason. One that the code no longer has
// does no harm, and is printed.
func TestEquivalent(t *testing.T) {
	t.Chdir("../..")
	list, err := find(".", []string{"all"})
	if err != nil {
		t.Fatal(err)
	}
	present := map[string]bool{}
	for _, r := range list {
		for _, m := range r.mutants {
			if present[m.key()] {
				t.Errorf("two are called %s", m.key())
			}
			present[m.key()] = true
		}
	}
	for key, reason := range reasons() {
		if !present[key] {
			t.Logf("equivalent.txt lists a mutant that is not there: %s", key)
		}
		if reason == "" {
			t.Errorf("equivalent.txt has no reason for %s", key)
		}
	}
}

// TestExpressionOfACase: an expression of a case is told from what follows it.
func TestExpressionOfACase(t *testing.T) {
	found, err := inFile("p/f.go", []byte("package p\n\nfunc f(a int) int {\n\tswitch {\n\tcase a < 1:\n\t\treturn a + 1\n\t}\n\treturn a - 1\n}\n"))
	if err != nil || len(found) < 4 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, m := range found {
		if m.ofCase != (m.line == 5) {
			t.Errorf("%v: of a case: %v", m, m.ofCase)
		}
	}
}

// TestPlan: a mutant is tried by the tests that reach its line, quick ones first; one whose
// line is in no block that ran, or that is an expression of a case, by those that reach its
// function.
func TestPlan(t *testing.T) {
	near, far := &tests{pkg: "./a"}, &tests{pkg: "./b", short: true}
	reach := func(name string, line *tests, took time.Duration, from, to int) *test {
		return &test{name: name, line: line, took: took, reached: map[string][][2]int{"a/a.go": {{from, to}}}}
	}
	list := []*test{
		reach("TestSlow", near, time.Minute, 1, 9), reach("TestQuick", near, time.Second, 5, 5),
		reach("TestFar", far, 2*time.Second, 5, 6), reach("TestOther", far, 0, 7, 9),
	}
	ofFunction := "./b ^(TestOther)$ 10s, ./a ^(TestSlow)$ 4m10s"
	for _, tt := range []struct {
		line   int
		ofCase bool
		want   string
	}{
		{5, false, "./a ^(TestQuick)$ 14s, ./b ^(TestFar)$ 18s, ./a ^(TestSlow)$ 4m10s"}, {10, false, ofFunction}, {5, true, ofFunction},
	} {
		var got []string
		for _, run := range plan(&mutant{path: "a/a.go", line: tt.line, first: 8, last: 12, ofCase: tt.ofCase}, list) {
			got = append(got, fmt.Sprint(run.pkg, " ", run.pattern, " ", run.limit))
		}
		if text := strings.Join(got, ", "); text != tt.want {
			t.Errorf("line %d: %s, want %s", tt.line, text, tt.want)
		}
	}
}
