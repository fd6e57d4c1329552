package torture

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPlanted puts a bug into a copy of the tree, and sees that TestKill notices it:
// the position of a message in a separate transaction, after the transaction of its event.
func TestPlanted(t *testing.T) {
	if os.Getenv("THREAD_PLANTED") == "" {
		t.Skip("set THREAD_PLANTED=1")
	}
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for path := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if ext := filepath.Ext(path); ext != ".go" && ext != ".mod" && ext != ".sum" && !strings.Contains(path, "core/completion") {
			continue
		}
		data, err := os.ReadFile(filepath.Join("../..", path))
		if os.IsNotExist(err) {
			continue // deleted and not committed
		}
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, path), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	patch, err := filepath.Abs("testdata/position-outside.patch")
	if err != nil {
		t.Fatal(err)
	}
	apply := exec.Command("patch", "-p1", "-i", patch)
	apply.Dir = dir
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("the patch does not fit any more: %v\n%s", err, out)
	}
	run := exec.Command("go", "test", "-count", "1", "-v", "-run", "TestKill/(kafka|redis)$", "./torture")
	run.Dir = filepath.Join(dir, "bridge")
	run.Env = append(os.Environ(), "THREAD_PLANTED=", "THREAD_KILLS=20")
	got, err := run.CombinedOutput()
	noticed := regexp.MustCompile(`(?m)^.*messages, .*doubled [1-9].*$`).FindAll(got, -1)
	if err == nil || len(noticed) != 2 {
		t.Errorf("it was not noticed by both:\n%s", got)
	}
	t.Logf("%s", bytes.Join(noticed, []byte("\n")))
}
