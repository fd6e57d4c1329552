package lock

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFoldsCase(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events.db")
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path)
	if got, err := os.ReadFile(filepath.Join(dir, "eVENTS.db")); (err == nil) != FoldsCase(path) {
		t.Errorf("%q, %v: %v", got, err, FoldsCase(path))
	} else if err == nil {
		t.Skip("the rest is for a file system that tells them apart")
	}
	// Another file of the other name is none of that.
	write(filepath.Join(dir, "EVENTS.DB"))
	if FoldsCase(path) {
		t.Error("two files are taken for one")
	}
	// One file that has both names is what that file system shows.
	if err := os.Remove(filepath.Join(dir, "EVENTS.DB")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, filepath.Join(dir, "EVENTS.DB")); err != nil {
		t.Skip(err)
	}
	if !FoldsCase(path) || !FoldsCase(filepath.Join(dir, "EVENTS.DB")) {
		t.Error("one file is taken for two")
	}
}

// TestFoldsNoLetters: a name without letters does not show what the directory does.
func TestFoldsNoLetters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.2")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if FoldsCase(path) {
		t.Error("a file is its own other name")
	}
}

func TestSameFile(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"orders", "Orders", true}, {"a", "a", true}, {"a", "b", false}, {"ä", "Ä", false}, {"a b", "A B", true}, {"a", "a.", false},
	} {
		if SameFile(tt.a, tt.b) != tt.same {
			t.Errorf("%q and %q: %v", tt.a, tt.b, !tt.same)
		}
	}
}
