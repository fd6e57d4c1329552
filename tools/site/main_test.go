package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBuild: every page is made, and its links lead to files of the site, or to sources.
func TestBuild(t *testing.T) {
	to := t.TempDir()
	if err := build("../..", to); err != nil {
		t.Fatal(err)
	}
	links, sources := 0, 0
	err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".html") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"#:]+)(?:#[^"]*)?"`).FindAllSubmatch(text, -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(m[1]))); err != nil {
				sources++
				t.Logf("%s leads to %s, which is not in the site", path, m[1])
			}
		}
		return nil
	})
	if err != nil || links < 300 || sources > 10 {
		t.Errorf("%d links, %d to sources, %v", links, sources, err)
	}
	search, err := os.ReadFile(filepath.Join(to, "search.js"))
	if err != nil || !strings.Contains(string(search), "CHOOSING.html") {
		t.Errorf("the index of the search lacks a page: %v", err)
	}
}
