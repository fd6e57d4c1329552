package thread_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestUnits: the packaged services run as an account of their own, hardened so that
// systemd's own judgement is better than 4 of 10.
func TestUnits(t *testing.T) {
	units, err := filepath.Glob("packaging/systemd/system/*.service")
	if err != nil || len(units) != 3 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\nUser=thread\n") {
			t.Errorf("%s runs as root", unit)
		}
		if _, err := exec.LookPath("systemd-analyze"); err != nil {
			continue
		}
		// It looks for the program, too.
		copied := filepath.Join(t.TempDir(), filepath.Base(unit))
		if err := os.WriteFile(copied, []byte(strings.ReplaceAll(string(text), "/usr/bin/thread", "/bin/true")), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", copied).CombinedOutput()
		found := regexp.MustCompile(`Overall exposure level for .*: ([0-9.]+) `).FindSubmatch(out)
		if err != nil || found == nil {
			t.Logf("systemd-analyze cannot tell: %v", err) // one of before --offline
			continue
		}
		if exposure, err := strconv.ParseFloat(string(found[1]), 64); err != nil || exposure >= 4 {
			t.Errorf("%s: exposure %s, %v", unit, found[1], err)
		}
	}
	for _, path := range []string{"packaging/openrc/thread-serve", "packaging/openrc/thread-serve.confd", "packaging/procd/thread-serve"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)USER[:=-].*\broot\b`).Match(text) {
			t.Errorf("%s runs as root", path)
		}
	}
}
