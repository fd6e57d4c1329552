//go:build linux

package survive

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/history"
)

// The command of a run of 20 steps, and the effect of each: it takes a lock, and writes a
// log of when it begins and ends. The first process of the step $AT is killed at a system call, if there is one.
const (
	stepsCommand = `[ $THREAD_RUN_ID = R ] || STEPS=1
i=1
while [ $i -le $STEPS ]; do
	if [ $i = "$AT" ] && mkdir struck 2>/dev/null; then
		strace -f -b execve -qq -o /dev/null -e trace=$CALL -e inject=$CALL:signal=KILL:when=$WHEN "$PROGRAM" run do --key k$i -- sh effect.sh k$i 0.1 || exit
	else
		"$PROGRAM" run do --key k$i -- sh effect.sh k$i 0 || exit
	fi
	i=$((i+1))
done`
	stepsEffect = `exec 9>lock
flock -n 9 || echo "overlap $THREAD_RUN_ID $1" >>log
echo "begin $THREAD_RUN_ID $1" >>log
[ $2 = 0 ] || sleep $2
echo "end $THREAD_RUN_ID $1" >>log`
)

const doSteps = 20

// stepsTry is one kill during a run of 20 steps, R, which another run of its session follows, S, with one.
type stepsTry struct {
	dir    string
	worker bool // the worker is killed, and not a process of thread run do
	at     int  // the step
	point  point
}

// TestCrashSteps kills thread run do, or its worker, at a system call during a run of 20
// steps. Steps that have ended never run again, effects never overlap, the next run of the session
// comes after all of them, and nothing is stuck or left.
func TestCrashSteps(t *testing.T) {
	needStrace(t)
	template := t.TempDir()
	inbox := filepath.Join(template, "inbox")
	thread(t, "", "init", inbox)
	thread(t, "", "session", "start", "--thread", inbox, "--id", "one")
	thread(t, "", "run", "start", "--thread", inbox, "--id", "free")
	do := record(t, inbox, "", "run", "do", "--thread", inbox, "--run", "free", "--key", "k", "--", "true")
	thread(t, "", "run", "end", "--thread", inbox, "--status", "completed", "free")
	thread(t, "", "run", "enqueue", "--thread", inbox, "--id", "recorded")
	work := record(t, inbox, "", "run", "work", "--thread", inbox, "--once", "--", "true")
	for _, id := range []string{"R", "S"} {
		thread(t, "", "run", "enqueue", "--thread", inbox, "--id", id, "--session", "one", "--retries", "9", "--backoff", "1ms..1ms")
	}
	for name, text := range map[string]string{"run.sh": stepsCommand, "effect.sh": stepsEffect, "log": ""} {
		if err := os.WriteFile(filepath.Join(template, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	most := 2 // of each victim
	if sample {
		most = 10
	}
	for i, victim := range []struct {
		name  string
		calls calls
	}{{"do", do}, {"work", work}} {
		points := victim.calls.killPoints(1000)
		if !full {
			points = spread(points, most)
		}
		if len(points) == 0 {
			t.Fatal("nothing is tried")
		}
		for n, p := range points {
			t.Run(fmt.Sprintf("%s/%s_%s", victim.name, p.call, p.when), func(t *testing.T) {
				t.Parallel()
				try := stepsTry{t.TempDir(), i == 1, 1 + 7*n%doSteps, p}
				copyDir(t, template, try.dir)
				if err := try.run(t); err != nil {
					t.Errorf("step %d: %v\n%s", try.at, err, strings.Join(try.log(t), ", "))
				}
			})
		}
	}
}

func (s *stepsTry) log(t *testing.T) []string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// work runs a worker in the directory of the try.
func (s *stepsTry) work(t *testing.T, strace []string, flags ...string) {
	entry := "SURVIVE_STEPS=" + s.dir
	argv := []string{"-C", s.dir, entry, "PROGRAM=" + program, fmt.Sprint("STEPS=", doSteps), "CALL=" + s.point.call, "WHEN=" + s.point.when, "THREAD_DIR=" + filepath.Join(s.dir, "inbox")}
	if !s.worker {
		argv = append(argv, fmt.Sprint("AT=", s.at))
	}
	argv = append(append(argv, strace...), program, "run", "work", "--strategy", "requeue_all", "--max-attempts", "9")
	run(t, "", "env", append(append(argv, flags...), "--", "sh", "run.sh")...)
}

// run kills once, lets workers complete both runs, and judges the log of the effects.
func (s *stepsTry) run(t *testing.T) error {
	var strace []string
	if s.worker {
		strace = []string{"strace", "-f", "-b", "execve", "-qq", "-o", os.DevNull, "-e", "trace=" + s.point.call, "-e", "inject=" + s.point.call + ":signal=KILL:when=" + s.point.when}
	}
	s.work(t, strace, "--once")
	h, err := history.Open(ctx, filepath.Join(s.dir, "inbox"))
	if err != nil {
		return err
	}
	defer h.Close()
	ended := map[string]int{} // how often each step that has ended has begun
	for row, err := range h.Steps(ctx, "R") {
		if err != nil {
			return err
		}
		if row.StepType == history.DoType && row.Status == history.Completed {
			ended[row.Name] = s.count(t, "begin R "+row.Name)
		}
	}
	for begun := time.Now(); ; {
		var last history.RunRow
		if err := h.Get(ctx, &last, "S"); err != nil {
			return err
		}
		if last.Ended() {
			break
		}
		if time.Since(begun) > 2*runLimit {
			return fmt.Errorf("the run S is %s", last.Status)
		}
		s.work(t, nil, "--drain")
	}
	for key, n := range ended {
		if now := s.count(t, "begin R "+key); now != n {
			return fmt.Errorf("the step %s had ended, and has begun %d times, then %d", key, n, now)
		}
	}
	if err := s.judge(t, h); err != nil {
		return err
	}
	if err := awaitAll("SURVIVE_STEPS="+s.dir, runLimit); err != nil {
		return err
	}
	return faultless(h.Dir())
}

func (s *stepsTry) count(t *testing.T, line string) (n int) {
	for _, l := range s.log(t) {
		if l == line {
			n++
		}
	}
	return n
}

// judge judges the log of the effects.
func (s *stepsTry) judge(t *testing.T, h *history.History) error {
	for _, id := range []string{"R", "S"} {
		var row history.RunRow
		if err := h.Get(ctx, &row, id); err != nil || row.Status != history.Completed {
			return fmt.Errorf("%s is %s: %s, %w", id, row.Status, row.ErrorMessage, err)
		}
	}
	log := s.log(t)
	twice := 0
	for _, id := range []string{"R", "S"} {
		for i := range doSteps {
			if id == "S" && i > 0 {
				break
			}
			key := fmt.Sprint(id, " k", i+1)
			begun, done := s.count(t, "begin "+key), s.count(t, "end "+key)
			if twice += begun - 1; begun == 0 || done == 0 {
				return fmt.Errorf("%s has begun %d times, and ended %d times", key, begun, done)
			}
			if !s.worker && begun > 1 && i+1 != s.at {
				return fmt.Errorf("%s has begun %d times", key, begun)
			}
		}
	}
	first := slices.IndexFunc(log, func(l string) bool { return strings.HasPrefix(l, "begin S") })
	switch {
	case twice > 1:
		return fmt.Errorf("%d steps have begun again", twice)
	case slices.ContainsFunc(log, func(l string) bool { return strings.HasPrefix(l, "overlap") }):
		return fmt.Errorf("two effects overlap")
	case slices.ContainsFunc(log[first:], func(l string) bool { return strings.Contains(l, " R ") }):
		return fmt.Errorf("S began before R ended")
	}
	return nil
}
