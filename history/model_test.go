//go:build linux

package history

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"thread/internal/bugs"
)

// TestWaitModel checks every order of the steps of model/wait.pml. Then each of the bugs in
// model/bugs is planted: the model must notice it, and so must the test that the patch names.
// It takes spin and a compiler, and runs only with THREAD_MODEL.
func TestWaitModel(t *testing.T) {
	if os.Getenv("THREAD_MODEL") == "" {
		t.Skip("needs spin: set THREAD_MODEL")
	}
	text, err := os.ReadFile("model/wait.pml")
	if err != nil {
		t.Fatal(err)
	}
	check := func(model []byte) (trail string) {
		if trail, err = bugs.Verify(t.TempDir(), model, false, 20000); err != nil {
			t.Fatal(err)
		}
		return trail
	}
	if trail := check(text); trail != "" {
		t.Errorf("%s", trail)
	}
	list, err := bugs.Read("model/bugs")
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range list {
		t.Run(bug.Name, func(t *testing.T) {
			dir := t.TempDir()
			overlay, err := bug.Plant("..", dir)
			if err != nil {
				t.Fatal(err)
			}
			broken, err := os.ReadFile(filepath.Join(dir, "history", "model", "wait.pml"))
			if err != nil {
				t.Fatal(err)
			}
			if check(broken) == "" {
				t.Error("the model does not notice")
			}
			run := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=120s", "-overlay", overlay, "-run", bug.Test, bug.Package)
			run.Dir, run.Env = "..", append(os.Environ(), "THREAD_MODEL=")
			if out, err := run.CombinedOutput(); err == nil || !bugs.Noticed(out) {
				t.Errorf("%s does not notice: %v %s", bug.Test, err, out)
			}
		})
	}
}

// TestWaitModelPatches finds a patch that the code has left behind in the quick run.
func TestWaitModelPatches(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip(err)
	}
	if err := bugs.CheckAll("model/bugs", "..", t.TempDir); err != nil {
		t.Error(err)
	}
}
