//go:build unix

package consume

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

var ctx = context.Background()

// TestMain is also the program that the tests kill: with CONSUME_DIR set it
// consumes, says on stdout when it has reached the place that CONSUME_KILL_AT
// counts, and waits there for its death.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CONSUME_DIR"); dir != "" {
		os.Exit(child(dir))
	}
	if os.Getenv("CONSUME_ECHO") != "" && len(os.Args) == 1 {
		os.Exit(echo())
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	at, _ := strconv.Atoi(os.Getenv("CONSUME_KILL_AT"))
	batch, _ := strconv.ParseInt(os.Getenv("CONSUME_BATCH"), 10, 64)
	parallel, _ := strconv.ParseInt(os.Getenv("CONSUME_PARALLEL"), 10, 64)
	most := int64(attempts)
	if parallel > 0 {
		most = 1000 // what many kills meet again and again is not a dead letter there
	}
	var n atomic.Int64
	testPoint = func(place string) {
		if n.Add(1) == int64(at) {
			fmt.Println("reached", place)
			time.Sleep(time.Hour) // a deadlock would end the program
		}
	}
	t, err := engine.Open(dir)
	if err == nil {
		_, err = Run(ctx, t, "c", Options{
			Command: []string{"sh", "-c", os.Getenv("CONSUME_COMMAND")}, Batch: batch, MaxAttempts: most, FirstDelay: time.Millisecond,
			Parallel: parallel, Key: map[bool]string{true: "source"}[parallel > 0], Worker: os.Getenv("CONSUME_WORKER") != "", Stderr: os.Stderr,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const (
	events   = 6
	bad      = 4
	attempts = 3
)

// run starts a child, kills it at the place, and returns where that was; "" when
// it came to its end before. What is left of its command is waited for.
func runChild(t *testing.T, dir, log string, batch, killAt int) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CONSUME_DIR="+dir, "CONSUME_LOG="+log, "CONSUME_BATCH="+strconv.Itoa(batch), "CONSUME_KILL_AT="+strconv.Itoa(killAt),
		`CONSUME_COMMAND=code=0; while IFS= read -r line; do id=${line#*:}; id=${id%%,*}; echo $id >>"$CONSUME_LOG"; test $id = `+strconv.Itoa(bad)+` && code=1; done; exit $code`)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	leftAlone := holdPipe(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "" {
		cmd.Process.Kill()
		cmd.Wait()
		leftAlone()
		return strings.TrimSpace(strings.TrimPrefix(line, "reached "))
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return ""
}

// holdPipe gives a process that is to be started, and whatever it starts, a pipe to
// hold. The function that it returns waits until none of them is left.
func holdPipe(t *testing.T, cmd *exec.Cmd) (wait func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{w}
	return func() {
		w.Close()
		io.Copy(io.Discard, r)
		r.Close()
	}
}

// TestKillAtEveryPlace kills a consume at each place between two steps, one place
// per round, until a round comes to its end unharmed. After each kill another
// consume ends the work. Whatever the place: every event is delivered, the bad
// one alone becomes a dead letter after exactly the attempts allowed, and a good
// one is redelivered only if it was out when the kill came.
func TestKillAtEveryPlace(t *testing.T) {
	for _, batch := range []int{1, 4} {
		places := map[string]int{}
		for at := 1; ; at++ {
			dir := filepath.Join(t.TempDir(), "t")
			log := filepath.Join(t.TempDir(), "log")
			th, err := engine.Init(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
				t.Fatal(err)
			}
			ds := make([]event.Draft, events)
			for i := range ds {
				ds[i] = event.Draft{Source: "s", Type: "t"}
			}
			if _, err := th.PushBatch(ctx, ds); err != nil {
				t.Fatal(err)
			}
			place := runChild(t, dir, log, batch, at)
			places[place]++
			if place != "" {
				runChild(t, dir, log, batch, 0)
			}
			check(t, th, log, fmt.Sprintf("batch %d, killed at %d (%s)", batch, at, place), place, batch)
			if place == "" {
				break
			}
		}
		for _, place := range []string{"begun", "running", "ended", "stored", ""} {
			if places[place] == 0 {
				t.Errorf("batch %d: never killed at %q: %v", batch, place, places)
			}
		}
	}
}

func check(t *testing.T, th *engine.Thread, log, when, place string, batch int) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]int{}
	for _, id := range strings.Fields(string(text)) {
		runs[id]++
	}
	more := 0
	if place != "" {
		more = 1
	}
	for id := 1; id <= events; id++ {
		// In a group of four a good event comes with the group, its half and alone.
		least, most := 1, 1+more
		if batch > 1 {
			most = 3 + more
		}
		if id == bad {
			// The attempt that was killed may not have begun.
			least, most = attempts-more, attempts+more+batch
		}
		if n := runs[strconv.Itoa(id)]; n < least || n > most {
			t.Errorf("%s: event %d came %d times, want %d to %d", when, id, n, least, most)
		}
	}
	info, err := th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if c := info.Subscriptions[0]; c.LastAcked != events || c.Dead != 1 || c.Failing != 0 {
		t.Errorf("%s: progress %d, %d dead, failing %d", when, c.LastAcked, c.Dead, c.Failing)
	}
	for l, err := range th.DeadLetters(ctx, engine.DeadLetterQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if l.Event.ID != bad || l.Attempts != attempts {
			t.Errorf("%s: event %d is dead after %d attempts, want event %d after %d", when, l.Event.ID, l.Attempts, bad, attempts)
		}
	}
}
