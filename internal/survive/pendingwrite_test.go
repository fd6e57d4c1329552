package survive

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/fsck"
	"thread/lock"
)

// TestCrashInGroupCommit lets one push commit the pending write of another, kills either
// at every system call, or makes it fail, and requires that the other succeeds, that
// both are stored at most once, and that who was told of success is stored.
func TestCrashInGroupCommit(t *testing.T) {
	needStrace(t)
	tried.Store(0)
	t.Cleanup(func() { t.Logf("%d points were tried", tried.Load()) })
	for _, victim := range []string{"committer", "owner"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			m := meeting{t: t, template: filepath.Join(t.TempDir(), "template")}
			thread(t, "", "init", m.template)
			for _, call := range []string{"pwrite64", "write", "fdatasync", "flock", "openat", "renameat", "unlinkat", "ftruncate", "close"} {
				for when := 1; when <= 60; when++ {
					if !full && when%5 != 0 && call != "fdatasync" && call != "renameat" {
						continue
					}
					p := point{call: call, when: fmt.Sprint(when), effect: "signal=KILL"}
					hit, err := m.hold(p, victim)
					if err != nil {
						t.Fatalf("%s, %v: %v", victim, p, err)
					}
					if !hit {
						break // it makes fewer calls
					}
					tried.Add(1)
				}
			}
		})
	}
}

// TestUnsyncedReceipt kills the committer between writing its commit and syncing it.
// The owner of the pending write sees its receipt, and must sync before it says so.
func TestUnsyncedReceipt(t *testing.T) {
	needStrace(t)
	m := meeting{t: t, template: filepath.Join(t.TempDir(), "template")}
	thread(t, "", "init", m.template)
	m.syncs = filepath.Join(t.TempDir(), "syncs")
	misses := 0
	for when := 1; ; when++ {
		hit, err := m.hold(point{call: "fdatasync", when: fmt.Sprint(when), effect: "signal=KILL"}, "committer")
		if err != nil {
			t.Fatal(err)
		}
		if !hit && when < 3 && misses < 5 {
			misses++ // on a busy host the owner may have stored it itself
			when--
			continue
		}
		if !hit {
			if when < 3 {
				t.Errorf("the committer was killed at %d syncs only", when-1)
			}
			return
		}
		text, err := os.ReadFile(m.syncs)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "fdatasync(") {
			t.Errorf("killed at sync %d: the owner said that its event is stored without a sync", when)
		}
	}
}

// meeting lets two pushes meet at the gate of a thread.
type meeting struct {
	t        *testing.T
	template string
	syncs    string // where the owner's syncs are noted
}

// hold starts a committer, which is kept waiting for the database, then an owner that
// leaves its event to it, and lets them continue. The victim has the fault p.
func (m *meeting) hold(p point, victim string) (hit bool, err error) {
	dir := filepath.Join(m.t.TempDir(), "thread")
	copyDir(m.t, m.template, dir)
	reader, err := lock.Open(ctx, filepath.Join(dir, "events.db"), lock.Shared)
	if err != nil {
		return false, err
	}
	defer reader.Close()

	type outcome struct {
		result
		hit bool
	}
	start := func(name string) chan outcome {
		c := make(chan outcome, 1)
		args := []string{"push", "--thread", dir, "--source", name, "--type", "t", "--content", name}
		go func() {
			var o outcome
			switch {
			case name == victim:
				o.result, o.hit = p.inject(m.t, "", args...)
			case m.syncs != "" && name == "owner":
				argv := []string{"-f", "-qq", "-o", m.syncs, "-e", "trace=fdatasync", program}
				o.result = run(m.t, "", "strace", append(argv, args...)...)
			default:
				o.result = run(m.t, "", program, args...)
			}
			c <- o
		}()
		return c
	}
	// until waits for a state, or for a process that is killed on the way to it.
	until := func(ok func() bool, processes ...chan outcome) {
		for begin := time.Now(); !ok() && time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
			for _, c := range processes {
				if len(c) > 0 {
					return
				}
			}
		}
	}
	committer := start("committer")
	until(func() bool {
		gate, err := lock.Try(filepath.Join(dir, "run", ".gate"), lock.Exclusive)
		if err == nil {
			gate.Close()
		}
		return err != nil
	}, committer)
	owner := start("owner")
	until(func() bool {
		names, _ := filepath.Glob(filepath.Join(dir, "run", ".offers", "*.new"))
		return len(names) > 0
	}, committer, owner)
	reader.Close()
	results := map[string]outcome{"committer": <-committer, "owner": <-owner}
	for name, o := range results {
		if o.code != 0 && name != victim {
			return false, fmt.Errorf("the %s: %v", name, o.result)
		}
	}

	c, err := read(dir)
	if err != nil {
		return false, err
	}
	for name, o := range results {
		n := 0
		for _, e := range c.events {
			if strings.Contains(e, `"source":"`+name+`"`) {
				n++
			}
		}
		if n > 1 || n == 0 && o.code == 0 {
			return false, fmt.Errorf("the %s is stored %d times, %v", name, n, o.result)
		}
	}
	if err := works(m.t, dir, nil, c); err != nil {
		return false, err
	}
	left, err := filepath.Glob(filepath.Join(dir, "run", ".offers", "*"))
	if err != nil || len(left) > 0 {
		return false, fmt.Errorf("left: %q, %v", left, err)
	}
	th, err := engine.Open(dir)
	if err != nil {
		return false, err
	}
	report, err := fsck.Check(ctx, th)
	if err == nil && len(report.Faults) > 0 {
		err = fmt.Errorf("check: %v", report.Faults)
	}
	return results[victim].hit, err
}
