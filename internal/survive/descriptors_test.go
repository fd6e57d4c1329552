package survive

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestFewDescriptors: with too few descriptors every command says so in its one line,
// and has changed nothing. It runs the small program: in the single file a package that
// only the server needs opens a file before main.
func TestFewDescriptors(t *testing.T) {
	dir, small := filepath.Join(t.TempDir(), "t"), filepath.Join(t.TempDir(), "thread")
	if err := buildProgram(small, ""); err != nil {
		t.Fatal(err)
	}
	thread(t, "", "init", dir)
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true")
	stored := 0
	for _, n := range []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 32} {
		for _, args := range [][]string{
			{"init", fmt.Sprint(dir, n)},
			{"push", "--thread", dir, "--source", "s", "--type", "m", "--content", fmt.Sprint(n), "--quiet"},
			{"peek", "--thread", dir, "--last-event-id", "0"},
			{"pop", "--thread", dir, "--consumer", "c", "--last-event-id", "0"},
			{"check", "--thread", dir},
		} {
			limited := append([]string{"-c", `ulimit -n "$0" && exec "$@"`, fmt.Sprint(n), small}, args...)
			r := run(t, "", "sh", limited...)
			switch {
			case r.code == 0 && r.stderr == "":
				if args[0] == "push" {
					stored++
				}
			case r.code != 1 || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "Error: ") ||
				!strings.Contains(r.stderr, "too many open files - "):
				t.Errorf("%d descriptors: %s: %v", n, args[0], r)
			}
		}
		if info := thread(t, "", "info", "--thread", dir); !strings.Contains(info, fmt.Sprintf("Events: %d\n", stored)) {
			t.Errorf("%d descriptors: not %d events: %s", n, stored, info)
		}
	}
	if stored == 0 {
		t.Error("nothing was stored with any number of descriptors")
	}
	if r := run(t, "", program, "check", "--thread", dir); r.code != 0 {
		t.Error(r)
	}
}
