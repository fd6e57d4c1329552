//go:build linux

package survive

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/history"
	"thread/jsonlog"
)

// TestCrashOfDispatch kills each kind of process that runs handlers at every
// system call that changes something, and TestFailureOfDispatch lets its calls
// fail. Scheduled events fall due meanwhile. Afterwards every event must have been
// handled by every consumer that it matches, at the latest by the next dispatch
// and where another process is there to take over without one; no consumer had two
// handlers at once; and what was scheduled is an event once.
func TestCrashOfDispatch(t *testing.T) {
	handlers(t, []string{"dispatch", "supervise work", "supervise guard", takingOver, "pop", stopping}, (*calls).killPoints)
}

func TestFailureOfDispatch(t *testing.T) {
	if !full && !sample {
		t.Skip("who cannot read the thread tries for 15 s: run make crash")
	}
	handlers(t, []string{"dispatch", "supervise work", stopping}, (*calls).failurePoints)
}

const (
	stopping   = "serve"                  // the role of a server that was asked to end
	takingOver = "supervise guard, alone" // of a standby whose supervisor has been killed
)

// perCall is how many ordinals of one system call are tried: who looks for what is
// left of a handler makes thousands.
const perCall = 40

// atOnce is how many of these run at once: most of the time they wait for the
// back-off of a handler that was killed.
const atOnce = 4

func handlers(t *testing.T, roles []string, points func(c *calls, atMost int) []point) {
	s := &scene{program: needMeeting(t), base: t.TempDir()}
	s.prepare(t)
	tried.Store(0)
	missed.Store(0)
	t.Cleanup(func() {
		t.Logf("%d points were tried; at %d more the call did not come", tried.Load(), missed.Load())
		if tried.Load() == 0 {
			t.Error("nothing was tried")
		}
	})
	for _, role := range roles {
		t.Run(strings.NewReplacer(" ", "_", ",", "").Replace(role), func(t *testing.T) {
			t.Parallel()
			log, _, err := s.play(t.TempDir(), role, nil)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(filepath.Dir(log), "thread")
			c := readCalls(t, log, dir)
			for i := range c.paths {
				c.paths[i] = strings.TrimPrefix(c.paths[i], dir)
			}
			list := points(&c, perCall)
			if len(list) == 0 {
				t.Fatalf("%s makes no calls", role)
			}
			var all sync.WaitGroup
			places := make(chan struct{}, atOnce)
			for _, p := range spread(list, fewHandlers()) {
				places <- struct{}{}
				dir := t.TempDir()
				all.Go(func() {
					defer func() { <-places }()
					hit, err := s.playOften(dir, role, &p)
					switch {
					case err != nil:
						t.Errorf("%v: %v", p, err)
					case hit:
						tried.Add(1)
					default:
						missed.Add(1)
					}
				})
			}
			all.Wait()
		})
	}
}

// fewHandlers is how many points are tried of one role.
func fewHandlers() int {
	switch {
	case full:
		return 1 << 30
	case sample:
		return 20
	}
	return 2
}

// drainAlone is a handler that pops until nothing is left, and says so when it is
// not alone. The first one of each consumer is held up where the test wants it.
const drainAlone = `
exec 9>"$D/alone-$THREAD_CONSUMER"; flock -n 9 || echo "$THREAD_CONSUMER is not alone" >> "$D/violations"
if [ -e "$D/let" ] && mkdir "$D/first-$THREAD_CONSUMER" 2>/dev/null; then
	echo $$ > "$D/at"; read x < "$D/let"
fi
n=$THREAD_LAST_ACKED_ID
while :; do
	page=$("$T" pop --thread "$THREAD_DIR" --consumer "$THREAD_CONSUMER" --last-event-id "$n") || exit 1
	[ -n "$page" ] || exit 0
	printf '%s\n' "$page" >> "$D/delivered-$THREAD_CONSUMER"
	n=$(printf '%s\n' "$page" | tail -n 1 | sed 's/^{"id":\([0-9]*\).*/\1/')
done`

type scene struct {
	program string
	base    string
}

// prepare makes the thread that every take begins with.
func (s *scene) prepare(t *testing.T) {
	t.Helper()
	dir := s.template()
	thread(t, "", "init", dir)
	thread(t, batch(3, "old"), "push", "--thread", dir, "--batch")
	script := filepath.Join(s.base, "handler")
	if err := os.WriteFile(script, []byte(drainAlone), 0o600); err != nil {
		t.Fatal(err)
	}
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "exec sh "+script)
	thread(t, "", "subscribe", "--thread", dir, "--consumer", "d", "--handler", "exec sh "+script, "--filter", "source <> 's1'")
	late(t, dir)
}

func (s *scene) template() string { return filepath.Join(s.base, "template") }

// take is one thread, its handlers' surroundings, and the process that has a fault.
type take struct {
	*scene
	dir  string
	held holdup
}

func (tk *take) path(name string) string { return filepath.Join(tk.dir, name) }

// mark is in the environment of every process of this take.
func (tk *take) mark() string { return "D=" + tk.dir }

func (tk *take) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(tk.program, append(args, "--thread", tk.path("thread"))...)
	cmd.Env = append(os.Environ(), append(env, tk.mark(), "T="+tk.program, "THREAD_DISPATCH=spawn")...)
	return cmd
}

// playOften plays until the fault comes to pass, but not for ever: which thread of
// the process makes the calls that are counted varies.
func (s *scene) playOften(dir, role string, p *point) (hit bool, err error) {
	for try := 0; try < 4 && !hit && err == nil; try++ {
		_, hit, err = s.play(filepath.Join(dir, fmt.Sprint(try)), role, p)
	}
	return hit, err
}

// play lets the handlers of a thread be run while the process of the role has the
// fault p, or none, and judges what came of it. It returns where the process's
// calls are noted, and whether the fault came to pass.
func (s *scene) play(dir, role string, p *point) (log string, hit bool, err error) {
	tk := &take{scene: s, dir: dir}
	defer tk.held.close()
	if err := os.CopyFS(tk.path("thread"), os.DirFS(s.template())); err != nil {
		return "", false, err
	}
	log = tk.path("strace")
	args := []string{"-e", "trace=?" + strings.Join(slices.Sorted(maps.Keys(faults)), ",?")}
	if p != nil {
		args = []string{"-e", "trace=write," + p.call, "-e", "inject=" + p.call + ":" + p.effect + ":when=" + p.when}
		for _, path := range p.paths {
			args = append(args, "-P", tk.path("thread")+path)
		}
	}
	run := tk.started
	if role == stopping {
		run = tk.stopped
	}
	killed, injected, err := run(role, log, args)
	if err != nil {
		killAll(tk.mark(), 0)
		return log, false, fmt.Errorf("%w\n%s", err, tk.log())
	}
	if hit = injected; p != nil && p.effect == "signal=KILL" {
		hit = killed
	}
	err = tk.judge(killed && tk.heir(role))
	if err == nil {
		err = tk.recordedRuns(p == nil || p.effect == "signal=KILL")
	}
	if err != nil {
		return log, hit, fmt.Errorf("%w\n%s", err, tk.log())
	}
	return log, hit, nil
}

// handlersLimit is when processes count as not ending: a supervisor that cannot
// read the thread tries for 15 s.
const handlersLimit = 60 * time.Second

// judge waits until no process works any more, and requires that everything was done.
// With an heir, it was done without another dispatch.
func (tk *take) judge(heir bool) error {
	if err := awaitAll(tk.mark(), handlersLimit); err != nil {
		return err
	}
	if heir {
		if err := tk.handled(); err != nil {
			return fmt.Errorf("without another dispatch: %w", err)
		}
	}
	if out, err := tk.command(nil, "dispatch").CombinedOutput(); err != nil {
		return fmt.Errorf("the next dispatch: %w: %s", err, out)
	}
	if err := awaitAll(tk.mark(), handlersLimit); err != nil {
		return err
	}
	return tk.handled()
}

// heir reports whether, when the process of the role was killed, another one is
// there to do its work. A dispatch has none, and a supervisor once it has started
// its standby, which is the next thing that it says.
func (tk *take) heir(role string) bool {
	switch role {
	case "dispatch":
		return false
	case "supervise work", takingOver:
		said, _ := os.ReadFile(tk.path("strace"))
		return bytes.Contains(said, []byte("supervise: standby pid="))
	}
	return true
}

func (tk *take) log() string {
	text, _ := os.ReadFile(filepath.Join(tk.path("thread"), "logs", "thread.log"))
	return string(text)
}

// handled compares what the handlers were given with what is stored, and that with
// what was pushed and scheduled.
func (tk *take) handled() error {
	if text, err := os.ReadFile(tk.path("violations")); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s%v", text, err)
	}
	c, err := read(tk.path("thread"))
	if err != nil {
		return err
	}
	if want := []string{"old 0", "old 1", "old 2", "late 0", "late 1", "tick"}; !c.holds(want) {
		return fmt.Errorf("stored are not %q with rising ids, but %v", want, c)
	}
	for consumer, want := range map[string][]int64{"c": {1, 2, 3, 4, 5, 6}, "d": {1, 3, 4, 5, 6}} {
		text, err := os.ReadFile(tk.path("delivered-" + consumer))
		if err != nil {
			return err
		}
		var got []int64
		for line := range bytes.Lines(text) {
			id, ok := jsonlog.LineID(bytes.TrimSuffix(line, []byte("\n")))
			if !ok {
				return fmt.Errorf("consumer %s was given %q", consumer, line)
			}
			got = append(got, id)
		}
		slices.Sort(got) // what was not acked is redelivered
		if got = slices.Compact(got); !slices.Equal(got, want) {
			return fmt.Errorf("consumer %s was given %v, not %v", consumer, got, want)
		}
	}
	return faultless(tk.path("thread"))
}

// recordedRuns takes the runs that were left into the history. A process that was killed, and
// wherever, each consumer has a run there, and all that are there have ended; where a
// call has failed, a run may be missing, and nothing else. A run that ended when no process
// was left to see it is recorded with the next one of its consumer.
func (tk *take) recordedRuns(all bool) error {
	runs, err := tk.takenRuns()
	if err != nil || !all || runs["c"] > 0 && runs["d"] > 0 {
		return err
	}
	if out, err := tk.command(nil, "push", "--source", "s2", "--type", "t", "--content", "again").CombinedOutput(); err != nil {
		return fmt.Errorf("a push afterwards: %w: %s", err, out)
	}
	if err := awaitAll(tk.mark(), handlersLimit); err != nil {
		return err
	}
	again, err := tk.takenRuns()
	for _, consumer := range []string{"c", "d"} {
		if err == nil && again[consumer] < 2 {
			err = fmt.Errorf("recorded are the runs %v, and with one more of each %v", runs, again)
		}
	}
	return err
}

// takenRuns takes the runs that were left, and counts the runs of each consumer.
func (tk *take) takenRuns() (runs map[string]int, err error) {
	h, err := history.Open(ctx, tk.path("thread"), history.LeaveRuns())
	if err != nil {
		return nil, err
	}
	defer h.Close()
	if _, err := h.TakeRuns(ctx); err != nil {
		return nil, fmt.Errorf("the runs cannot be taken: %w", err)
	}
	runs = map[string]int{}
	for r, err := range h.HandlerRuns(ctx, history.HandlerQuery{}) {
		if err != nil {
			return nil, err
		}
		if !r.Ended() || r.TriggerType != "message" || r.EndedAt.Before(r.StartedAt) {
			return nil, fmt.Errorf("a run is recorded as %+v", r)
		}
		runs[r.AgentName]++
	}
	for _, ending := range []string{"ok", "failed"} {
		if left, _ := filepath.Glob(filepath.Join(tk.path("thread"), "logs", "runs", "*."+ending)); len(left) > 0 {
			return nil, fmt.Errorf("left after taking: %q", left)
		}
	}
	return runs, nil
}

// holds reports whether the events have these contents, and the ids from 1 on.
func (c content) holds(want []string) bool {
	if len(c.ids) != len(want) {
		return false
	}
	for i, id := range c.ids {
		if id != int64(i+1) || !strings.Contains(c.events[i], fmt.Sprintf("%q", want[i])) {
			return false
		}
	}
	return true
}
