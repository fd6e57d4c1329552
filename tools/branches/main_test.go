package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thread/tools/cover"
)

const source = `package a

func F(x int) int {
	if x > 1 {
		return 1
	}
	if x > 2 {
		return 2
	}
	if x > 2 {
		return 2
	}
	return 0
}
`

// module makes a module with one room and moves there.
func module(t *testing.T, files map[string]string) {
	t.Helper()
	files["go.mod"] = "module example.org/m\n\ngo 1.26\n"
	files["a/a.go"] = source
	if files[place+"/rooms.txt"] == "" {
		files[place+"/rooms.txt"] = "# a comment\n./a\ntests ./a\n"
	}
	dir := t.TempDir()
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

const profile = `mode: atomic
example.org/m/a/a.go:3.19,4.11 1 1
example.org/m/a/a.go:4.11,6.3 1 0
example.org/m/a/a.go:4.11,6.3 1 1
example.org/m/a/a.go:7.11,9.3 1 0
example.org/m/a/a.go:10.11,12.3 1 0
example.org/m/b/b.go:10.11,12.3 1 0
`

const key = "F: if x > 2 {\n"

// parsed adds the blocks of a profile to those before it.
func parsed(profile string, rooms []string, before []*block) ([]*block, error) {
	now, err := cover.Parse(profile, "example.org/m")
	if err != nil {
		return nil, err
	}
	return add(now, rooms, before)
}

// TestReport: a block is reached when one of the programs reached it, in one of the runs. The
// same line twice in a function is listed twice.
func TestReport(t *testing.T) {
	for _, tt := range []struct {
		reasons, known string
		want           string // of the error
		unreached      int    // lines
	}{
		{"", "", "not listed", 2},
		{"", key, "not listed", 1},
		{"", key + key, "", 0},
		{"# why\n" + strings.TrimSpace(key) + " // it is the same\n", key, "", 0},
		{strings.Repeat("y: z // why\n", maxReasons+1), key + key, "more than 20", 0},
	} {
		module(t, map[string]string{place + "/reasons.txt": tt.reasons, place + "/unreached.txt": tt.known})
		blocks, err := parsed(profile, []string{"./a"}, nil)
		if err != nil || len(blocks) != 4 {
			t.Fatalf("%d blocks, %v", len(blocks), err)
		}
		var out bytes.Buffer
		err = report(blocks, []string{"./a"}, options{}, &out)
		if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
		if err := report(blocks, []string{"./a"}, options{tolerate: tt.unreached}, &bytes.Buffer{}); tt.unreached > 0 && err != nil {
			t.Errorf("%+v: %v, but so many are tolerated", tt, err)
		}
		if n := strings.Count("\n"+out.String(), "\nunreached "); n != tt.unreached {
			t.Errorf("%+v: %s", tt, out.String())
		}
	}
}

// TestUpdate: the list says which blocks are reached by luck and which by programs alone, and
// it does not get longer.
func TestUpdate(t *testing.T) {
	module(t, map[string]string{})
	var blocks []*block
	for _, text := range []string{profile, strings.Replace(profile, "9.3 1 0", "9.3 1 5", 1), profile} {
		var err error
		if blocks, err = parsed(text, []string{"./a/..."}, blocks); err != nil {
			t.Fatal(err)
		}
	}
	blocks[3].wide = true
	var out bytes.Buffer
	if err := report(blocks, []string{"./a"}, options{update: true, all: true}, &out); err != nil || !strings.Contains(out.String(), "4 statements,     3 reached (75.0 %), with the programs 4 (100.0 %)") {
		t.Fatalf("%v, %s", err, out.String())
	}
	text, err := os.ReadFile(place + "/unreached.txt")
	if err != nil || !strings.HasSuffix(string(text), titles[0]+"\n\n# "+titles[1]+"\n"+key+"\n# "+titles[2]+"\n"+key) {
		t.Errorf("%s, %v", text, err)
	}
	if err := report(blocks, []string{"./a"}, options{}, &out); err != nil {
		t.Error(err)
	}
	blocks[0].reached, blocks[2].reached = 0, runs
	if err := report(blocks, []string{"./a"}, options{update: true}, &out); err != nil {
		t.Error(err)
	}
	blocks[2].reached = 0
	if err := report(blocks, []string{"./a"}, options{update: true}, &out); err == nil || !strings.Contains(err.Error(), "reach 1 of them") {
		t.Error(err)
	}
}

// TestRun: the tool as a whole, and what it cannot do.
func TestRun(t *testing.T) {
	if os.Getenv("THREAD_MUTANTS") == "" {
		t.Skip("builds for some seconds: THREAD_MUTANTS=1")
	}
	test := "package a\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { F(2) }\n"
	rest := map[string]string{"cmd/c/main.go": "package main\n\nfunc main() {}\n", "event/e.go": "package event\n"}
	with := func(name, text string) map[string]string {
		files := map[string]string{"a/a_test.go": test, name: text}
		for k, v := range rest {
			files[k] = v
		}
		return files
	}
	for _, tt := range []struct {
		files map[string]string
		args  []string
		code  int
	}{
		{with("x", ""), nil, 1},
		{with(place+"/unreached.txt", strings.Repeat(key, 4)+"F: return 0\n"), nil, 0},
		{with(place+"/unreached.txt", strings.Repeat(key, 4)+"F: return 0\n"), []string{"./a"}, 0},
		{with("x", ""), []string{"-what"}, 2},
		{with("x", ""), []string{"./none"}, 2},
		{with("a/a_test.go", "package a\n\nvar x = y\n"), nil, 2},
		{with(place+"/rooms.txt", "./none\ntests ./a\n"), nil, 2},
	} {
		module(t, tt.files)
		var stdout, stderr bytes.Buffer
		code := run(tt.args, &stdout, &stderr)
		text := stderr.String()
		if code != tt.code || code > 0 && (strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "Error: ") || !strings.Contains(text, " - ")) {
			t.Errorf("%q: exit %d, want %d: %s%s", tt.args, code, tt.code, stdout.String(), text)
		}
	}
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	if code := run(nil, &stdout, &stderr); code != 2 {
		t.Errorf("without a module: exit %d, %s", code, stderr.String())
	}
}

// TestTestPoints: testpoints.txt lists each point of the product, with what would replace it.
func TestTestPoints(t *testing.T) {
	text, err := os.ReadFile("testpoints.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && strings.HasPrefix(line, "internal/") {
			listed[fields[1]] = true
		}
	}
	found := 0
	err = filepath.WalkDir("../../internal", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, rest := range strings.Split(string(text), "testPoint(\"")[1:] {
			found++
			if point, _, _ := strings.Cut(rest, "\""); !listed[point] {
				t.Errorf("%s has the point %q, which testpoints.txt does not list", path, point)
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d points, %v", found, err)
	}
}
