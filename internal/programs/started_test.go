package programs

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStartedAs: where the system does not tell which program runs, it is the one that the
// process was started as.
func TestStartedAs(t *testing.T) {
	here, bin := t.TempDir(), t.TempDir()
	t.Chdir(here)
	for _, dir := range []string{here, bin} {
		if err := os.WriteFile(filepath.Join(dir, "thread"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", ".:"+bin)
	for name, want := range map[string]string{
		"thread": filepath.Join(bin, "thread"), "./thread": filepath.Join(here, "thread"),
		"/opt/thread": "/opt/thread", "other": "", "": "",
	} {
		if got, err := startedAs(name); got != want || (err == nil) != (want != "") {
			t.Errorf("startedAs(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
}
