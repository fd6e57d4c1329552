//go:build linux

package dispatch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModel checks every order of the steps of model/dispatch.pml, with a kill between
// any two of them, as far as seconds allow. With THREAD_MODEL a missing spin or
// compiler is a failure, larger models are sampled, and each of the bugs in model/bugs
// is planted: the model must fail with it, and in a copy of the code the test that
// the first line of the patch names.
func TestModel(t *testing.T) {
	_, err := exec.LookPath("spin")
	if err == nil {
		_, err = exec.LookPath("cc")
	}
	if err != nil {
		if os.Getenv("THREAD_MODEL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
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
	for i, w := range whole {
		if i > 0 && os.Getenv("THREAD_MODEL") == "" {
			break
		}
		t.Run(w.name, func(t *testing.T) {
			if out, ok := verify(t, text, w.defines, w.sampled); !ok {
				t.Errorf("%s", out)
			}
		})
	}
	if os.Getenv("THREAD_MODEL") == "" {
		return
	}
	bugs, err := filepath.Glob("model/bugs/*.patch")
	if err != nil || len(bugs) == 0 {
		t.Fatalf("no bugs: %v", err)
	}
	for _, bug := range bugs {
		t.Run(strings.TrimSuffix(filepath.Base(bug), ".patch"), func(t *testing.T) {
			t.Parallel() // most of the time the tests wait for what does not come
			patch, err := os.ReadFile(bug)
			if err != nil {
				t.Fatal(err)
			}
			test, _, _ := strings.Cut(string(patch), "\n")
			dir := t.TempDir()
			copyModule(t, dir)
			cmd := exec.Command("patch", "-s", "-p1")
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(string(patch))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("the patch does not apply to this code: %v: %s", err, out)
			}
			broken, err := os.ReadFile(filepath.Join(dir, "internal", "dispatch", "model", "dispatch.pml"))
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := verify(t, broken, whole[0].defines, false); ok {
				t.Error("the model does not notice")
			}
			run := exec.Command("go", "test", "-count=1", "-timeout=120s", "-run", test, "./internal/dispatch")
			run.Dir = dir
			run.Env = append(os.Environ(), "THREAD_MODEL=")
			if out, err := run.CombinedOutput(); err == nil || !strings.Contains(string(out), "--- FAIL") {
				t.Errorf("%s does not notice: %v %s", test, err, out)
			}
		})
	}
}

// TestModelPatches finds a patch that the code has left behind in the quick run.
func TestModelPatches(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip(err)
	}
	bugs, err := filepath.Glob("model/bugs/*.patch")
	if err != nil || len(bugs) == 0 {
		t.Fatalf("no bugs: %v", err)
	}
	for _, bug := range bugs {
		text, err := os.Open(bug)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("patch", "--dry-run", "-s", "-p1")
		cmd.Dir, cmd.Stdin = "../..", text
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", bug, err, out)
		}
		text.Close()
	}
}

// verify reports whether the model holds, and otherwise what the checker says.
func verify(t *testing.T, model []byte, defines []string, sampled bool) (string, bool) {
	t.Helper()
	search, table := []string{}, "-w24"
	if sampled { // states are told apart by two bits in a table, which fills up
		search, table = []string{"-DBITSTATE"}, "-w21"
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.pml"), model, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		append(append([]string{"spin"}, defines...), "-a", "m.pml"),
		append(append([]string{"cc", "-O2", "-w", "-DSAFETY", "-DNOFAIR"}, search...), "-o", "pan", "pan.c"),
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	cmd := exec.Command("./pan", "-m20000", table)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "errors: ") || strings.Contains(string(out), "max search depth too small") {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "errors: 0") {
		return "", true
	}
	trail := exec.Command("spin", append(append([]string{}, defines...), "-t", "-p", "m.pml")...)
	trail.Dir = dir
	steps, _ := trail.CombinedOutput()
	return fmt.Sprintf("%s\n%s", out, steps), false
}

// copyModule copies what the tests of this package are built from.
func copyModule(t *testing.T, dir string) {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-test", "-f", `{{if and .Module (eq .Module.Path "thread")}}{{.Dir}}{{end}}`, ".")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, from := range append(strings.Fields(string(out)), root) {
		name, err := filepath.Rel(root, from)
		if err != nil || seen[name] {
			continue
		}
		seen[name] = true
		if name != "." {
			if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(from)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
			continue
		}
		for _, file := range []string{"go.mod", "go.sum"} {
			text, err := os.ReadFile(filepath.Join(root, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
