package torture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/fsck"
)

// asVictim makes the test binary take the messages of a spool into a thread, once:
// "DIR QUEUE SETTLE".
const asVictim = "THREAD_TORTURE_VICTIM"

// victim takes and settles what is in the queue, and ends. Of two messages, the
// consumer succeeds at the first and fails at the second.
func victim(args string) error {
	words := strings.Fields(args)
	dir, queue, settle := words[0], words[1], words[2]
	th, err := engine.Open(dir)
	if err != nil {
		return err
	}
	defer th.Close()
	spec, err := adapter.Find("mock")
	if err != nil {
		return err
	}
	c := victimConfig(settle)
	src, err := spec.Source(&adapter.Settings{Keys: spec.Keys, Connection: map[string]string{"dir": queue}})
	if err != nil {
		return err
	}
	tr, err := trigger.New(th, src, c, trigger.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Drain: time.Second})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := tr.Start(ctx); err != nil {
		return err
	}
	feed := th.Feed(c.Consumer, c.Policy())
	defer feed.Close()
	var result *engine.Result
	working := func() bool { return left(queue) > 0 || tr.Metrics().Read().Parked > 0 }
	for working() {
		changed := tr.Changed()
		if settle == trigger.SettleHandled {
			d, err := feed.Next(ctx, result)
			if err != nil {
				return errors.Join(err, tr.Stop())
			}
			if result = nil; len(d.Events) > 0 {
				result = &engine.Result{Verdict: engine.Succeeded}
				if strings.Contains(d.Events[0].Content, `"n":2`) {
					result = &engine.Result{Verdict: engine.Failed, ExitCode: 1, Error: "no"}
				}
				continue
			}
		}
		if !working() {
			break
		}
		select {
		case <-changed:
		case <-tr.Ended():
			return tr.Stop()
		case <-ctx.Done():
			return errors.Join(ctx.Err(), tr.Stop())
		}
	}
	return tr.Stop()
}

func victimConfig(settle string) trigger.Config {
	c := trigger.NewConfig()
	c.Name, c.Queue, c.Group, c.Adapter, c.Settle, c.Consumer = "v", "q", "g", "mock", settle, "v"
	c.MaxRetries, c.BackoffBase, c.AckPolicy = 0, 0.001, trigger.PolicyDLQ
	c.Complete()
	return c
}

// left returns how many messages a spool holds.
func left(queue string) int {
	files, _ := filepath.Glob(filepath.Join(queue, "*.json"))
	return len(files)
}

// injected are the system calls at which the victim is killed, and which fail.
var injected = map[string]string{"openat": "EIO", "write": "ENOSPC", "pwrite64": "ENOSPC", "fsync": "EIO", "fdatasync": "EIO", "ftruncate": "ENOSPC",
	"renameat": "EIO", "linkat": "EIO", "unlinkat": "EIO", "mkdirat": "EACCES", "fchmod": "EIO", "fchmodat": "EIO", "flock": "ENOLCK", "pread64": "EIO", "newfstatat": "EIO"} // what stays after a failure of fdatasync is not known

// scene is a thread with a queue of two messages next to it.
type scene struct{ dir, queue, settle string }

func newScene(t *testing.T, settle string) *scene {
	t.Helper()
	s := &scene{settle: settle}
	base := t.TempDir()
	s.dir, s.queue = filepath.Join(base, "t"), filepath.Join(base, "queue")
	th, err := engine.Init(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	if settle == trigger.SettleHandled {
		if err := th.Subscribe(context.Background(), engine.Subscription{Consumer: "v", Handler: "true"}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 1; n <= 2; n++ {
		if err := adapter.Spool(s.queue, &trigger.Message{ID: fmt.Sprintf("m-%d", n), Body: fmt.Appendf(nil, `{"n":%d}`, n)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *scene) run(t *testing.T, before ...string) (string, error) {
	t.Helper()
	args := append(before, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), asVictim+"="+s.dir+" "+s.queue+" "+s.settle, "GOMAXPROCS=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// judge runs the victim once more, unless it has done all, and counts.
func (s *scene) judge(t *testing.T, done bool) error {
	t.Helper()
	if !done {
		if out, err := s.run(t); err != nil {
			return fmt.Errorf("afterwards: %w\n%s", err, out)
		}
	}
	th, err := engine.Open(s.dir)
	if err != nil {
		return err
	}
	defer th.Close()
	seen := map[string]int{}
	for e, err := range th.Events(context.Background(), engine.Query{}) {
		if err != nil {
			return err
		}
		seen[regexp.MustCompile(`"n":\d`).FindString(e.Content)]++
	}
	if !maps.Equal(seen, map[string]int{`"n":1`: 1, `"n":2`: 1}) {
		return fmt.Errorf("events: %v", seen)
	}
	if n := left(s.queue); n > 0 {
		return fmt.Errorf("%d messages are left in the queue", n)
	}
	if dead := left(filepath.Join(s.queue, "dlq")); (dead > 0) != (s.settle == trigger.SettleHandled) {
		return fmt.Errorf("%d in the dead letter queue", dead)
	}
	rep, err := fsck.Check(context.Background(), th)
	if err == nil && len(rep.Faults) > 0 {
		err = fmt.Errorf("%v", rep.Faults)
	}
	return err
}

// Proof 2: killed at each system call of one intake and one settling, and with each
// of them failing once, nothing is lost or there twice. THREAD_KILLS=200 tries all of
// them, else there is a sample.
func TestSystemCalls(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("STRACE IS MISSING: nothing was tried")
	}
	names := "trace=?" + strings.Join(slices.Sorted(maps.Keys(injected)), ",?")
	for _, settle := range []string{trigger.SettleStored, trigger.SettleHandled} {
		t.Run(settle, func(t *testing.T) {
			t.Parallel()
			s, log := newScene(t, settle), filepath.Join(t.TempDir(), "log")
			if out, err := s.run(t, "strace", "-f", "-qq", "-o", log, "-e", names); err != nil {
				if strings.Contains(out, "ptrace") {
					t.Skip("STRACE MAY NOT TRACE HERE: nothing was tried")
				}
				t.Fatalf("%v\n%s", err, out)
			}
			if err := s.judge(t, true); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			most, ordinals := map[string]int{}, map[string]int{}
			for _, m := range regexp.MustCompile(`(?m)^(\d+) +([a-z0-9]+)\(`).FindAllStringSubmatch(string(text), -1) {
				ordinals[m[1]+m[2]]++
				most[m[2]] = max(most[m[2]], ordinals[m[1]+m[2]])
			}
			came := 0
			for _, call := range slices.Sorted(maps.Keys(most)) {
				for n := 1; n <= most[call]; n++ {
					for _, effect := range []string{"signal=KILL", "error=" + injected[call]} {
						reads := call == "pread64" || call == "newfstatat"
						if reads && (effect == "signal=KILL" || kills(t) < 200) || kills(t) < 200 && n != most[call]/2+1 && !strings.HasSuffix(call, "sync") {
							continue // it changes nothing; or the sample
						}
						s := newScene(t, settle)
						out, err := s.run(t, "strace", "-f", "-qq", "-o", log, "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:%s:when=%d", call, effect, n))
						if text, _ := os.ReadFile(log); err != nil || strings.Contains(string(text), "INJECTED") {
							came++
						}
						if err := s.judge(t, err == nil && left(s.queue) == 0); err != nil {
							t.Errorf("%s at %s %d: %v\nbefore: %s", effect, call, n, err, out)
						}
					}
				}
			}
			t.Logf("%d faults", came)
			if came < 5 {
				t.Errorf("only %d faults: this proves nothing", came)
			}
		})
	}
}
