package survive

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"thread/internal/bugs"
)

// root is the module's, from here.
const root = "../.."

// noticedWithin is how often a test may be run to notice a bug: the soak, in its few
// seconds, needs luck for those that take two processes, and so does damage.
const noticedWithin = 3

// TestBugs finds a patch that the code has left behind in the quick run.
func TestBugs(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip(err)
	}
	if err := bugs.CheckAll("bugs", root, t.TempDir); err != nil {
		t.Error(err)
	}
}

// TestPlanted tests the tests: with each of the bugs in the program, the test that its
// patch names must fail, and without one the same test passes. It runs with
// THREAD_PLANTED=1 (make planted).
//
// Most tests of this package stay the same, and look at what a program with the bug leaves.
// Tests of other packages, and tests of this one whose workers are the test itself, stand in
// for the program, and have the bug.
func TestPlanted(t *testing.T) {
	if os.Getenv("THREAD_PLANTED") == "" {
		t.Skip("run make planted")
	}
	list, err := bugs.Read("bugs")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("here", func(t *testing.T) {
		t.Parallel()
		for _, bug := range list {
			if !ofProgram(bug) {
				continue
			}
			t.Run(bug.Name, func(t *testing.T) {
				dir := t.TempDir()
				broken := filepath.Join(dir, "thread")
				if err := buildProgram(broken, "bundled", "-overlay", plant(t, bug, dir)); err != nil {
					t.Fatal(err)
				}
				mustNotice(t, bug.Test, ownTests(bug, program), ownTests(bug, broken))
			})
		}
	})
	t.Run("elsewhere", func(t *testing.T) { // these wait for what does not come
		t.Parallel()
		for _, bug := range list {
			if ofProgram(bug) {
				continue
			}
			t.Run(bug.Name, func(t *testing.T) {
				t.Parallel()
				overlay := plant(t, bug, t.TempDir())
				mustNotice(t, bug.Test, otherTests(bug), otherTests(bug, "-overlay", overlay))
			})
		}
	})
}

// ofProgram reports whether the test of the bug looks at what the program leaves.
func ofProgram(bug *bugs.Bug) bool {
	return bug.Package == "./internal/survive" && bug.Test != "TestJoins" && bug.Test != "TestRate"
}

func plant(t *testing.T, bug *bugs.Bug, dir string) (overlay string) {
	t.Helper()
	overlay, err := bug.Plant(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}

// ownTests returns how to run the test of this package on the program.
func ownTests(bug *bugs.Bug, program string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.timeout=120s", "-test.run", bug.Test)
		cmd.Env = append(os.Environ(), "THREAD_PLANTED=", "THREAD_PROGRAM="+program)
		cmd.Env = append(cmd.Env, bug.Env...)
		return cmd
	}
}

// otherTests returns how to run a test that has the bug itself.
func otherTests(bug *bugs.Bug, flags ...string) func() *exec.Cmd {
	return func() *exec.Cmd {
		args := slices.Concat([]string{"test", "-count=1", "-vet=off", "-timeout=120s", "-run", bug.Test}, flags, []string{bug.Package})
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), bug.Env...)
		return cmd
	}
}

// mustNotice requires that the test passes without the bug and fails with it.
func mustNotice(t *testing.T, test string, without, with func() *exec.Cmd) {
	t.Helper()
	if out, err := without().CombinedOutput(); err != nil {
		t.Fatalf("%s fails without a bug: %s", test, out)
	}
	for range noticedWithin {
		if out, err := with().CombinedOutput(); err != nil {
			if !bugs.Noticed(out) {
				t.Errorf("%s does not fail, it does not run: %v: %s", test, err, out)
			}
			return
		}
	}
	t.Errorf("%s does not notice", test)
}
