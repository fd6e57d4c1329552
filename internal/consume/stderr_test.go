//go:build unix

package consume

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"thread/engine"
)

// letters returns the last errors of the dead letters of c, by event.
func letters(t *testing.T, th *engine.Thread) map[int64]string {
	t.Helper()
	found := map[int64]string{}
	for l, err := range th.DeadLetters(ctx, engine.DeadLetterQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		found[l.Event.ID] = l.LastError
	}
	return found
}

// lockedBuffer is what several commands may print into at once, as into a file.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// A dead letter ends with the last that its command has printed on stderr, in each way
// of running it, and what was printed is passed on.
func TestDeadLetterHasStderr(t *testing.T) {
	for name, c := range map[string]struct {
		script string // prints on stderr
		want   string // behind "exit 65"
	}{
		"a line":      {`echo boom >&2`, ": boom"},
		"no newline":  {`printf 'no newline' >&2`, ": no newline"},
		"nothing":     {`echo this is stdout`, ""},
		"blank":       {`printf '\n \n' >&2`, ""},
		"lines":       {`printf 'one\ntwo\n' >&2`, ": one\ntwo"},
		"no UTF-8":    {`printf 'a\377b\000c' >&2`, ": a\uFFFDb\x00c"},
		"huge":        {`head -c 300000 /dev/zero | tr '\0' x >&2; echo >&2; echo END >&2`, ": " + strings.Repeat("x", 1024-len("exit 65: \nEND")) + "\nEND"},
		"left behind": {`(exec sleep 1000) >/dev/null & echo $! >>pids; echo boom >&2`, ": boom"},
		"characters":  {`for i in 1 2 3 4 5 6 7 8 9 10; do printf '%100s' | sed 's/ /ä/g' >&2; done`, ": " + strings.Repeat("ä", (1024-len("exit 65: "))/2)},
	} {
		for mode, o := range map[string]Options{"single": {}, "batch": {Batch: 5}, "parallel": {Parallel: 3}, "worker": {Worker: true}} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				th := newThread(t, "x", "y")
				var passed lockedBuffer
				o.Stderr, o.MaxAttempts, o.FirstDelay = &passed, 1, time.Millisecond
				o.Command = []string{"sh", "-c", "cd '" + dir + "'; cat >/dev/null; " + c.script + "; exit 65"}
				want := "exit 65" + c.want
				if o.Worker {
					o.Command[2] = "cd '" + dir + "'; read line; " + strings.ReplaceAll(c.script, "this is", "") + "; exit 65"
				}
				if o.Worker && name == "nothing" {
					t.Skip("a worker's stdout is its answer")
				}
				t.Cleanup(func() {
					pids, _ := os.ReadFile(filepath.Join(dir, "pids"))
					for _, pid := range strings.Fields(string(pids)) {
						if n, err := strconv.Atoi(pid); err == nil {
							syscall.Kill(n, syscall.SIGKILL)
						}
					}
				})
				if _, err := Run(context.Background(), th, "c", o); err != nil {
					t.Fatal(err)
				}
				if o.Worker { // it is not asked whether 65 is never
					want = "the worker ended without a result: " + want
					want = want[:len(want)-len(c.want)] + cutFront(c.want, len(want)-1024)
				}
				got := letters(t, th)
				if len(got) != 2 || got[1] != want || got[2] != want {
					t.Errorf("%q and %q, want %q twice", got[1], got[2], want)
				}
				for _, text := range got {
					if len(text) > engine.MaxErrorBytes || !utf8.ValidString(text) {
						t.Errorf("%d bytes, valid %v", len(text), utf8.ValidString(text))
					}
				}
				if name == "huge" && passed.Len() < 600_000 || name == "a line" && !strings.Contains(passed.String(), "boom\n") {
					t.Errorf("%d bytes were passed on", passed.Len())
				}
			})
		}
	}
}

// cutFront takes n bytes out of a text behind ": ", and what is left of a character.
func cutFront(s string, n int) string {
	if n <= 0 {
		return s
	}
	s = s[2+n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return ": " + s
}

// What a worker says is followed by what it has printed for this event, and not for
// an earlier one.
func TestWorkerStderrIsOfItsEvent(t *testing.T) {
	th := newThread(t, "x", "y", "z")
	script := `read a; echo first >&2; echo '{"id":1,"ok":true}'; read b; echo '{"id":2,"error":"no","dead":true}'
read c; echo third >&2; echo '{"id":3,"error":"no","dead":true}'; read d`
	if _, err := Run(ctx, th, "c", Options{Worker: true, Command: []string{"sh", "-c", script}}); err != nil {
		t.Fatal(err)
	}
	got := letters(t, th)
	if len(got) != 2 || got[2] != "no" || got[3] != "no: third" {
		t.Errorf("%q and %q", got[2], got[3])
	}
}

// Commands that leave processes behind do not use up the descriptors.
func TestLeftStderrIsBounded(t *testing.T) {
	th := newThread(t)
	r := newRun(th, "c", Options{})
	var writers []*os.File
	for range 3 * maxLeft {
		s, err := r.newStderr()
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, s.Writer)
		r.leave(s)
	}
	if len(r.left) != maxLeft {
		t.Errorf("%d are left, want %d", len(r.left), maxLeft)
	}
	r.closeLeft()
	for _, w := range writers {
		w.Close()
	}
}
