package thread_test

import (
	"os"
	"regexp"
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
