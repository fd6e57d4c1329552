//go:build linux

package survive

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/event"
)

// The bounds of a push of the largest content, as multiples of its length.
const (
	maxLargeMemory  = 3.0 // resident, the program's and the database's pages included
	maxLargeWritten = 1.3 // to events.db
)

// TestLargePush pushes the largest content, plain and one that JSON makes six times
// as long, next to others of that size, from a file and from a pipe, and a small
// event next to them.
func TestLargePush(t *testing.T) {
	work := t.TempDir()
	dir := filepath.Join(work, "inbox")
	thread(t, "", "init", dir)
	contents := []string{"x", "\x01"}
	if sample || full {
		contents = []string{"x", "x", "\x01", "x"}
	}
	for i, c := range contents {
		file := filepath.Join(work, "content")
		if err := os.WriteFile(file, bytes.Repeat([]byte(c), event.MaxContentBytes), 0o600); err != nil {
			t.Fatal(err)
		}
		from, stdin := []string{"--content-file", file}, ""
		if i == 1 {
			from, stdin = []string{"--content-file", "/dev/stdin"}, strings.Repeat(c, event.MaxContentBytes)
		}
		what := fmt.Sprintf("push %d of %d bytes of %q", i, event.MaxContentBytes, c)
		memory, written := pushed(t, stdin, append([]string{"push", "--thread", dir, "--source", "s", "--type", "t"}, from...)...)
		t.Logf("%s: %.2f of it resident, %.2f written", what, float64(memory)/event.MaxContentBytes, float64(written)/event.MaxContentBytes)
		if memory == 0 {
			t.Errorf("%s: the memory was not seen", what)
		}
		if float64(memory) > maxLargeMemory*event.MaxContentBytes {
			t.Errorf("%s: %d bytes were resident", what, memory)
		}
		if float64(written) > maxLargeWritten*event.MaxContentBytes {
			t.Errorf("%s: %d bytes were written", what, written)
		}
	}
	small := []string{"push", "--thread", dir, "--source", "s", "--type", "t", "--content", "small"}
	beside, written := pushed(t, "", small...)
	alone := filepath.Join(work, "alone")
	thread(t, "", "init", alone)
	small[2] = alone
	memory, least := pushed(t, "", small...)
	t.Logf("a small one beside them: %d bytes resident, %d written; alone %d, %d", beside, written, memory, least)
	const pages = 64 << 10
	if written > least+pages {
		t.Errorf("a small push writes %d bytes beside large ones, and %d alone", written, least)
	}
	thread(t, "", "compact", "--thread", dir)
	if got := thread(t, "", "peek", "--thread", dir, "--last-event-id", "0", "--limit", "1"); len(got) < event.MaxContentBytes || strings.Trim(got[len(got)-100:], "x") != "\"}\n" {
		t.Errorf("peek prints %d bytes", len(got))
	}
}

// highWater returns the peak resident memory, so far, of a process that runs a
// program. What wait4 tells of it is not less than what its parent had, this test.
func highWater(pid int, program string) (bytes int64) {
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || exe != program {
		return 0 // not yet, or not any more
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if m := peakKiB.FindSubmatch(status); err == nil && m != nil {
		bytes, _ = strconv.ParseInt(string(m[1]), 10, 64)
	}
	return bytes << 10
}

var peakKiB = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

var writtenBytes = regexp.MustCompile(`pwrite64\(\d+<[^>]*/events\.(?:db|journal)>.* = (\d+)`)

// pushed runs the program twice, for its peak resident memory and for how much it
// writes to events.db and its journal, -1 where there is no strace.
func pushed(t *testing.T, stdin string, args ...string) (memory, written int64) {
	t.Helper()
	start := func(name string, args ...string) (peak int64) {
		cmd := exec.Command(name, args...)
		cmd.Env = environment()
		cmd.Stdin = strings.NewReader(stdin)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for {
			peak = max(peak, highWater(cmd.Process.Pid, name))
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("%s: %v: %.1000s", name, err, out.Bytes())
				}
				return peak
			case <-time.After(time.Millisecond):
			}
		}
	}
	memory = start(program, args...)
	if _, err := exec.LookPath("strace"); err != nil {
		t.Log("NOT COUNTED: there is no strace")
		return memory, -1
	}
	trace := filepath.Join(t.TempDir(), "trace")
	start("strace", append([]string{"-f", "-y", "-qq", "-s", "0", "-e", "trace=pwrite64", "-e", "signal=none", "-o", trace, program}, args...)...)
	out, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range writtenBytes.FindAllSubmatch(out, -1) {
		n, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		written += n
	}
	if written == 0 {
		t.Fatalf("nothing was written: %.500s", out)
	}
	return memory, written
}
