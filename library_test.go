package thread_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var example = regexp.MustCompile("(?ms)^```go\n(.*?)^```\n\n```\n(.*?)^```$")

// TestLibraryPage builds each program of docs/reference/library.md, as that page says it is
// done, in a separate module, and holds what they print against the page.
func TestLibraryPage(t *testing.T) {
	module, err := modulePath()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "docs/reference/library.md")
	examples := example.FindAllStringSubmatch(page, -1)
	if programs := strings.Count(page, "```go\n"); len(examples) == 0 || len(examples) != programs {
		t.Fatalf("%d of %d programs say what they print", len(examples), programs)
	}
	if !strings.Contains(page, "require thread v0.0.0\n\nreplace thread => ../thread\n") {
		t.Error("the page does not say what this test does")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", fmt.Sprintf("module shop\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, root))
	write("go.sum", read(t, "go.sum"))
	for i, e := range examples {
		write(fmt.Sprintf("example%d/main.go", i), strings.ReplaceAll(e[1], `"thread/`, `"`+module+`/`))
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "bin/", "./...")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, e := range examples {
		out, err := exec.Command(filepath.Join(dir, "bin", fmt.Sprint("example", i))).CombinedOutput()
		if err != nil || string(out) != e[2] {
			t.Errorf("program %d: %v, prints\n%swant\n%s", i+1, err, out, e[2])
		}
	}
}
