//go:build linux

package survive

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
	"thread/event"
)

// TestSnapshot: what a snapshot of the file system has of a thread that is used is whole. All
// processes that push and compact are stopped in the middle of what they do, and the directory is
// copied as it is then: a check finds nothing, what was acknowledged is there, and it can be used.
func TestSnapshot(t *testing.T) {
	moments := 6
	if full || sample {
		moments = 60
	}
	base := t.TempDir()
	dir := base + "/t"
	fresh(t, dir)
	work := exec.Command("sh", "-c", `for n in 1 2 3; do
	(while :; do "$P" push --thread "$D" --source s$n --type t --content text || echo failed; done) &
done
(while :; do printf '%s' "$B" | "$P" push --thread "$D" --batch >/dev/null || echo failed; "$P" compact --thread "$D" >/dev/null || echo failed; done) &
wait`)
	work.Env = append(environment(), "P="+program, "D="+dir, "B="+batch(40, "text"))
	work.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := work.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	group := work.Process.Pid
	defer func() {
		syscall.Kill(-group, syscall.SIGKILL)
		work.Wait()
	}()
	lines := bufio.NewScanner(out)
	var acked int64
	for n := range moments {
		for range 1 + n%5 {
			if !lines.Scan() {
				t.Fatal("nobody pushes")
			}
			var id int64
			if _, err := fmt.Sscan(lines.Text(), &id); err != nil {
				t.Fatalf("%v: %q", err, lines.Text())
			}
			acked = max(acked, id)
		}
		stop(t, group)
		to := fmt.Sprintf("%s/%d", base, n)
		copyDir(t, dir, to)
		if err := syscall.Kill(-group, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		c, err := read(to)
		if err == nil {
			err = faultless(to)
		}
		if err == nil && (c.lastID < acked || int64(len(c.ids)) != c.lastID) {
			err = fmt.Errorf("%d events up to %d, and %d was acknowledged", len(c.ids), c.lastID, acked)
		}
		if err == nil {
			err = works(t, to, nil, c)
		}
		if err != nil {
			t.Fatalf("moment %d: %v", n, err)
		}
		removeAll(t, to)
	}
}

// stop returns when every process of the group has stopped, or is a shell that has called vfork and
// is held by the kernel (state D) until its stopped child executes a program: it can neither stop nor run.
func stop(t *testing.T, group int) {
	t.Helper()
	for {
		if err := syscall.Kill(-group, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		running := false
		all, err := filepath.Glob("/proc/[0-9]*/task/*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}
			// PID (NAME) STATE PARENT GROUP …
			end := bytes.LastIndexByte(text, ')')
			var state string
			var parent, of int
			if _, err := fmt.Sscan(string(text[end+1:]), &state, &parent, &of); err != nil {
				t.Fatal(err)
			}
			held := state == "D" && bytes.HasSuffix(text[:end], []byte("(sh"))
			running = running || of == group && state != "T" && state != "Z" && !held
		}
		if !running {
			return
		}
	}
}

// TestCopyWhilePushing: a plain copy of events.db that is made while another process pushes may have
// pages of different moments. Then check, or the command itself, says so, and never is an event
// shown, or saved by repair, that was not pushed; a copy in which check finds nothing is the thread of
// one moment. One that no process pushes to meanwhile is whole.
func TestCopyWhilePushing(t *testing.T) {
	rounds := 6
	if full || sample {
		rounds = 40
	}
	base := t.TempDir()
	mixed := 0
	for n := range rounds {
		dir, to := fmt.Sprintf("%s/t%d", base, n), fmt.Sprintf("%s/c%d", base, n)
		half(t, dir)
		quiet := to + "-quiet"
		copyDir(t, dir, quiet)
		if is, err := readSame(quiet, dir); err != nil || !is {
			t.Fatalf("a copy of a thread that nobody writes to: %v, the same is %v", err, is)
		}
		r := rand.New(rand.NewPCG(23, uint64(n)))
		th, err := engine.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		copyDir(t, dir, to)
		slowly(t, dir+"/events.db", to+"/events.db", func() {
			if r.IntN(4) > 0 {
				return
			}
			_, err := th.Push(ctx, event.Draft{Source: fmt.Sprint("s", r.IntN(7)), Type: "t", Content: strings.Repeat("later ", r.IntN(900))})
			if err == nil && r.IntN(3) == 0 {
				err = th.Ack(ctx, "c", int64(400+r.IntN(1000)))
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.IntN(2) == 0 { // the journal leaves the pages as they are
				fold(t, dir)
			}
		})
		th.Close()
		pushed := map[string]bool{}
		for line := range strings.Lines(events(t, dir)) {
			pushed[line] = true
		}
		only := func(what, shown string) (n int) {
			for line := range strings.Lines(shown) {
				if n++; !pushed[line] {
					t.Errorf("round %d: %s shows what was not pushed: %.200q", n, what, line)
				}
			}
			return n
		}
		only("peek", run(t, "", program, "peek", "--thread", to, "--last-event-id", "0", "--limit", "1000000").stdout)
		check := run(t, "", program, "check", "--thread", to)
		switch check.code {
		case 0:
			c, err := read(to)
			if err != nil || int64(len(c.ids)) != c.lastID || c.lastID < 2000 {
				t.Errorf("round %d: check finds nothing, and there are %v (%v)", n, c, err)
			}
		case 1:
			mixed++
			// events.jsonl of the copy is of the moment before.
			saved := run(t, "", program, "repair", "--thread", to, "--to", to+"-saved")
			if saved.code > 1 {
				t.Errorf("round %d: %v", n, saved)
			}
			if engine.Exists(to + "-saved") {
				if count := only("repair", events(t, to+"-saved")); count < 2000 {
					t.Errorf("round %d: repair saves %d events: %v", n, count, saved)
				}
				if err := faultless(to + "-saved"); err != nil {
					t.Errorf("round %d: what repair saved: %v", n, err)
				}
			} else {
				t.Errorf("round %d: repair saves nothing: %v", n, saved)
			}
		default:
			t.Errorf("round %d: %v", n, check)
		}
	}
	t.Logf("%d of %d copies were of different moments", mixed, rounds)
	if mixed == 0 {
		t.Error("no copy was of different moments: nothing was tried")
	}
}

func readSame(a, b string) (bool, error) {
	x, err := read(a)
	if err != nil {
		return false, err
	}
	y, err := read(b)
	if err == nil {
		err = faultless(a)
	}
	return x.same(y), err
}

// slowly copies a file as cp does, a page at a time, and calls between before each.
func slowly(t *testing.T, from, to string, between func()) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []byte
	page := make([]byte, pageBytes)
	for {
		between()
		n, err := f.Read(page)
		all = append(all, page[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(to, all, 0o600); err != nil {
		t.Fatal(err)
	}
}
