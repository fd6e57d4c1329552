package programs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFind: programs are found on absolute entries of PATH only, and only files that
// can be run.
func TestFind(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	t.Chdir(here)
	write := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(here, Prefix+"near"), 0o755)
	write(filepath.Join(there, Prefix+"far"), 0o755)
	write(filepath.Join(there, Prefix+"text"), 0o644)
	if err := os.Mkdir(filepath.Join(there, Prefix+"dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".:" + there, ":" + there, there + ":"} {
		t.Setenv("PATH", path)
		for name, want := range map[string]string{
			"near": "", "far": filepath.Join(there, Prefix+"far"), "text": "", "dir": "", "": "", "../far": "", "x/../far": "",
		} {
			if got := Find(Prefix + name); got != want {
				t.Errorf("PATH=%s: Find(%q) = %q, want %q", path, Prefix+name, got, want)
			}
		}
		if got, want := Added(), []string{"far"}; !slices.Equal(got, want) {
			t.Errorf("PATH=%s: Added() = %q, want %q", path, got, want)
		}
	}
}
