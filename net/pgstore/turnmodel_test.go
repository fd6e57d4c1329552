//go:build linux

package pgstore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"thread/internal/bugs"
)

// TestTurnModel checks every order of the steps of model/turns.pml: with clocks that drift,
// hosts that stop and come back or do not, connections that are cut and a primary that
// changes, no stale holder stores anything, nothing is stored twice, and every turn is taken
// again. With each of the bugs in testdata/bugs that changes the model, too, it must fail.
// It takes spin and a compiler, and runs only with THREAD_MODEL.
func TestTurnModel(t *testing.T) {
	if os.Getenv("THREAD_MODEL") == "" {
		t.Skip("needs spin: set THREAD_MODEL")
	}
	text, err := os.ReadFile("model/turns.pml")
	if err != nil {
		t.Fatal(err)
	}
	if out, ok := verify(t, text, "-DTROUBLE=5"); !ok {
		t.Errorf("%s", out)
	}
	list, err := bugs.Read("testdata/bugs")
	if err != nil {
		t.Fatal(err)
	}
	planted := 0
	for _, bug := range list {
		dir := t.TempDir()
		if _, err := bug.Plant(root, dir); err != nil {
			t.Fatal(err)
		}
		broken, err := os.ReadFile(filepath.Join(dir, "net/pgstore/model/turns.pml"))
		if os.IsNotExist(err) {
			continue // not about turns
		}
		if planted++; err != nil {
			t.Fatal(err)
		}
		if _, ok := verify(t, broken, "-DTROUBLE=3"); ok {
			t.Errorf("%s: the model does not notice", bug.Name)
		}
	}
	if planted < 5 {
		t.Errorf("%d bugs were planted", planted)
	}
}

// verify reports whether the model holds, and otherwise what the checker says.
func verify(t *testing.T, model []byte, define string) (string, bool) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.pml"), model, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return string(out)
	}
	run("spin", define, "-a", "m.pml")
	run("cc", "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c")
	out := run("./pan", "-m100000", "-w24")
	if !strings.Contains(out, "errors: ") || strings.Contains(out, "max search depth too small") {
		t.Fatalf("not searched to the end: %s", out)
	}
	if strings.Contains(out, "errors: 0") {
		t.Log(out)
		return out, true
	}
	return out + run("spin", define, "-t", "-p", "m.pml"), false
}
