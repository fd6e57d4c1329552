//go:build linux

package dispatch

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"thread/internal/bugs"
)

// TestModel checks every order of the steps of model/dispatch.pml, with a kill between
// any two of them; larger models are sampled. Then each of the bugs in model/bugs is
// planted: the model must fail with it, and so must the test that the patch names.
// It takes minutes, spin and a compiler, and runs only with THREAD_MODEL.
func TestModel(t *testing.T) {
	if os.Getenv("THREAD_MODEL") == "" {
		t.Skip("takes minutes: set THREAD_MODEL")
	}
	for _, tool := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("model/dispatch.pml")
	if err != nil {
		t.Fatal(err)
	}
	whole := []struct {
		name    string
		defines []string
		sampled bool
	}{
		{"two pushes and a kill, whole", []string{"-DPUSHES=2", "-DKILLS=1"}, false},
		{"three pushes and two kills, sampled", []string{"-DPUSHES=3", "-DKILLS=2"}, true},
		{"any process killed, sampled", []string{"-DPUSHES=3", "-DKILLS=2", "-DANY"}, true},
	}
	for _, w := range whole {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel() // each is one thread
			if out, ok := verify(t, text, w.defines, w.sampled); !ok {
				t.Errorf("%s", out)
			}
		})
	}
	list, err := bugs.Read("model/bugs")
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range list {
		t.Run(bug.Name, func(t *testing.T) {
			t.Parallel() // most of the time the tests wait for what does not come
			dir := t.TempDir()
			overlay, err := bug.Plant(root, dir)
			if err != nil {
				t.Fatal(err)
			}
			broken, err := os.ReadFile(filepath.Join(dir, "internal", "dispatch", "model", "dispatch.pml"))
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := verify(t, broken, whole[0].defines, false); ok {
				t.Error("the model does not notice")
			}
			run := exec.Command("go", "test", "-count=1", "-vet=off", "-timeout=120s", "-overlay", overlay, "-run", bug.Test, bug.Package)
			run.Dir = root
			run.Env = append(os.Environ(), "THREAD_MODEL=")
			if out, err := run.CombinedOutput(); err == nil || !bugs.Noticed(out) {
				t.Errorf("%s does not notice: %v %s", bug.Test, err, out)
			}
		})
	}
}

// root is the module's, from here.
const root = "../.."

// TestModelPatches finds a patch that the code has left behind in the quick run.
func TestModelPatches(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip(err)
	}
	if err := bugs.CheckAll("model/bugs", root, t.TempDir); err != nil {
		t.Error(err)
	}
}

// verify reports whether the model holds, and otherwise what the checker says.
func verify(t *testing.T, model []byte, defines []string, sampled bool) (string, bool) {
	t.Helper()
	trail, err := bugs.Verify(t.TempDir(), model, sampled, 20000, defines...)
	if err != nil {
		t.Fatal(err)
	}
	return trail, trail == ""
}
