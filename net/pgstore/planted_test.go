package pgstore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"thread/internal/bugs"
)

// root is the root of the repository, from here.
const root = "../.."

// TestBugs finds a patch that the code has left behind.
func TestBugs(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip(err)
	}
	if err := bugs.CheckAll("testdata/bugs", root, t.TempDir); err != nil {
		t.Error(err)
	}
}

// TestPlanted plants each of the bugs, and the test that it names must fail. Without one
// the same test passes: it is one of the package, or of thread-net, as it stands. It runs
// with THREAD_PLANTED=1.
func TestPlanted(t *testing.T) {
	if os.Getenv("THREAD_PLANTED") == "" {
		t.Skip("set THREAD_PLANTED=1")
	}
	list, err := bugs.Read("testdata/bugs")
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range list {
		t.Run(bug.Name, func(t *testing.T) {
			overlay, err := bug.Plant(root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			run := exec.Command("go", "test", "-count", "1", "-overlay", overlay, "-run", bug.Test, strings.Replace(bug.Package, "./net/", "./", 1))
			run.Dir = filepath.Join(root, "net")
			run.Env = append(append(os.Environ(), "THREAD_PLANTED=", "THREAD_CUTS=", "THREAD_POSTGRES=1"), bug.Env...)
			if out, err := run.CombinedOutput(); err == nil || !bugs.Noticed(out) {
				t.Errorf("%s did not notice it: %v\n%s", bug.Test, err, out)
			}
		})
	}
}
