//go:build unix

package dispatch

import (
	"os/exec"
	"strings"
	"testing"

	"thread/internal/programs"
)

// FuzzQuoting: a shell takes the path in the command that notifier is given as one
// word, exactly as it is, and the id of the task has nothing in it that it could
// mistake.
func FuzzQuoting(f *testing.F) {
	for _, s := range []string{"/tmp/inbox", "/a b", "it's", "$(touch x)", "`id`", "a\nb", "-n", "", "\xff\xfe", "é", "*", "~", "a;b&c|d>e", `\`, "'\\''", "=x", "!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if strings.Contains(path, "\x00") {
			t.Skip() // no path has that
		}
		out, err := exec.Command("sh", "-c", "printf '%s' "+programs.ShellWord(path)).Output()
		if err != nil || string(out) != path {
			t.Fatalf("%q became %q (%v)", path, out, err)
		}
		id := TaskID(path)
		if strings.Trim(strings.ToLower(id), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(id) > len("dispatch-")+40 {
			t.Fatalf("the task of %q is %q", path, id)
		}
	})
}
