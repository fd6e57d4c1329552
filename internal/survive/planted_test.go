package survive

import (
	"os"
	"os/exec"
	"testing"
)

// planted names each bug that can be planted and the test that must notice it, of
// this room or of another one.
var planted = []struct{ bug, test, room string }{
	{"no sync", "TestPowerLoss/push$", "."},
	{"failed commit acknowledged", "TestFailureMatrix/push$", "."},
	{"unknown outcome called a failure", "TestFailureMatrix/push$", "."},
	{"line before commit", "TestCrashMatrix/push$", "."},
	{"lines not healed", "TestCrashMatrix/push$", "."},
	{"head moved too early", "TestCrashMatrix/long_batch", "."},
	{"half a batch not cleared", "TestCrashMatrix/push_that_clears", "."},
	{"lock dropped early", "TestSoak", "."},
	{"replaced file not noticed", "TestSoak", "."},
	{"checksum not checked", "TestDamage$/kinds/(random_bytes|one_bit)$", "."},
	{"loops not noticed", "TestDamage$/kinds/child_of_a_branch", "."},
	{"name not synced", "TestPowerLoss/prune", "."},
	{"rotation not synced", "TestPowerLoss/push_that_rotates", "."},
	{"progress not stored", "TestCrashMatrix/pop", "."},
	{"prune drops one too many", "TestCrashMatrix/prune", "."},
	{"receipt believed unsynced", "TestUnsyncedReceipt", "."},
	{"taken offer believed stored", "TestCrashOfTaker", "."},
	{"release in two transactions", "TestCrashMatrix/push_that_releases", "."},
	{"guard goes with its supervisor", "TestKill$/^supervisor$", "../dispatch"},
	{"old handler left alone", "TestKill$", "../dispatch"},
	{"no look after the release", "TestPushBetweenLookAndRelease/nothing", "../dispatch"},
	{"server with locks of its own", "TestSoak", "../serve"},
	{"wake-up during a look forgotten", "TestPushDuringLook", "../serve"},
	{"wake-up during an attempt forgotten", "TestPushDuringAttempt", "../serve"},
}

// noticedWithin is how often a test may be run to notice a bug: the soak, in its few
// seconds, needs luck for those that take two processes, and so does damage.
const noticedWithin = 3

// TestPlanted tests the tests: with each of these bugs in the program, the test
// named beside it must fail, and without one the same tests pass. It runs with
// THREAD_PLANTED=1 (make planted).
func TestPlanted(t *testing.T) {
	if os.Getenv("THREAD_PLANTED") == "" {
		t.Skip("run make planted")
	}
	for _, p := range planted {
		t.Run(p.bug, func(t *testing.T) {
			if p.room != "." {
				t.Parallel() // those wait for what does not come
			}
			run := func(bug string) ([]byte, error) {
				cmd := exec.Command("go", "test", "-count=1", "-timeout=120s", "-run", p.test, p.room)
				if p.room != "." {
					// Its tests stand in for the program. Those of this room do not, and
					// look at what it leaves with an engine that has no bugs.
					cmd.Args = append(cmd.Args, "-tags=planted")
				}
				cmd.Env = append(os.Environ(), "THREAD_PLANTED=", "THREAD_TAGS=planted", "THREAD_PLANT="+bug)
				if p.bug == "loops not noticed" { // most loops end at a key out of order
					cmd.Env = append(cmd.Env, "THREAD_CRASH=sample")
				}
				return cmd.CombinedOutput()
			}
			if out, err := run(""); err != nil {
				t.Fatalf("%s fails without a bug: %s", p.test, out)
			}
			for range noticedWithin {
				if _, err := run(p.bug); err != nil {
					return
				}
			}
			t.Errorf("%s does not notice", p.test)
		})
	}
}
