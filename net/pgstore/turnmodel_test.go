//go:build linux

package pgstore

import (
	"os"
	"path/filepath"
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
	trail, err := bugs.Verify(t.TempDir(), model, false, 100000, define)
	if err != nil {
		t.Fatal(err)
	}
	return trail, trail == ""
}
