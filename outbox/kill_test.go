//go:build unix

package outbox

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// TestMain is also the program that the tests kill: with OUTBOX_DIR set it inserts or
// relays, says on stdout when it has reached the place that OUTBOX_KILL_AT counts, and
// waits there for its death.
func TestMain(m *testing.M) {
	if dir := os.Getenv("OUTBOX_DIR"); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

// handle writes down which message it got; the relay that runs it may die meanwhile.
const handle = `echo "$THREAD_OUTBOX_EVENT_ID" >>"$THREAD_DIR.handled"; echo '{"status":"accepted"}'`

func child(dir string) int {
	at, _ := strconv.Atoi(os.Getenv("OUTBOX_KILL_AT"))
	n := 0
	reached = func(place string) {
		if n++; n == at {
			fmt.Println("reached", place)
			time.Sleep(time.Hour) // a deadlock would end the program
		}
	}
	t, err := engine.Open(dir)
	if err == nil && os.Getenv("OUTBOX_INSERT") != "" {
		err = t.Update(ctx, func(tx *engine.Tx) error { return business(tx, "child", reached) })
		reached("committed")
	} else if err == nil {
		_, err = Relay(ctx, t, Options{Mode: UntilEmpty, Command: []string{"sh", "-c", handle}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// business stores a comment and the message about it.
func business(tx *engine.Tx, id string, place func(string)) error {
	comments, err := tx.Records("comments")
	if err != nil {
		return err
	}
	place("begun")
	if err := comments.Put([]byte(id), []byte("a comment")); err != nil {
		return err
	}
	place("comment")
	m := reply(1)
	m.EventID = id
	_, err = Insert(tx, m)
	place("message")
	return err
}

// killAt runs the child until it has reached the n-th place, and kills it there. It
// returns the name of the place, "" when the child ended before.
func killAt(t *testing.T, dir string, n int, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "OUTBOX_DIR="+dir, fmt.Sprint("OUTBOX_KILL_AT=", n)), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	place, ok := strings.CutPrefix(strings.TrimSpace(line), "reached ")
	if !ok {
		noError(t, cmd.Wait())
		return ""
	}
	noError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	return place
}

// O-02: a writer that is killed leaves the comment and the message, or neither.
func TestKilledInsert(t *testing.T) {
	for n := 1; ; n++ {
		th := newThread(t)
		place := killAt(t, th.Dir(), n, "OUTBOX_INSERT=1")
		var comment, message bool
		noError(t, th.View(ctx, func(tx *engine.Tx) error {
			comments, err := tx.Records("comments")
			if err != nil {
				return err
			}
			comment = comments.Get([]byte("child")) != nil
			_, message, err = Find(tx, "child")
			return err
		}))
		if want := place == "committed" || place == ""; comment != want || message != want {
			t.Errorf("killed at %q: comment %v, message %v", place, comment, message)
		}
		if place == "" {
			if n != 5 {
				t.Errorf("%d places", n-1)
			}
			return
		}
	}
}

// O-09: the receipt of a relay that was killed names the run that it had begun.
func TestKilledRelayNamesItsRun(t *testing.T) {
	for n := 1; ; n++ {
		th := newThread(t)
		m := reply(1)
		m.EventID = "evt_left"
		in := insert(t, th, m)
		place := killAt(t, th.Dir(), n)
		if place == "" {
			t.Fatal("no handler ran")
		}
		if place != "running" {
			continue
		}
		_, err := Relay(ctx, th, Options{Recorder: &recorder{}, Command: []string{"sh", "-c", "true"}})
		noError(t, err)
		rec := get(t, th, in.ID)
		if len(rec.Receipts) == 0 || rec.Receipts[0].RunID == nil || *rec.Receipts[0].RunID != "run_left" || rec.Receipts[0].ExitCode != -1 {
			t.Errorf("got %+v", rec.Receipts)
		}
		return
	}
}

// O-07, O-08: a relay that is killed at any place leaves nothing undone: the next one
// hands every record on, what was already handled at most once more, and writes each
// notification once.
func TestKilledRelay(t *testing.T) {
	const each = 2
	places := map[string]int{}
	for n := 1; ; n++ {
		th := newThread(t)
		set(t, th, func(s *Settings) { s.Backoff = time.Millisecond })
		for i := range int64(each) {
			m := reply(i)
			m.EventID = fmt.Sprint("reply", i)
			insert(t, th, m)
			insert(t, th, like(i))
		}
		place := killAt(t, th.Dir(), n)
		sum, err := Relay(ctx, th, Options{Mode: UntilEmpty, Command: []string{"sh", "-c", handle}})
		noError(t, err)
		if sum.Failures > 1 || sum.Failed > 0 || place == "" && sum.Processed != 0 {
			t.Errorf("killed at %q (%d): %+v", place, n, sum)
		}
		for _, rec := range records(t, th, Query{}) {
			if rec.Status != Processed {
				t.Errorf("killed at %q (%d): %+v", place, n, rec)
			}
		}
		if a, b := len(notifications(t, th, "5")), len(notifications(t, th, "7")); a != each || b != each {
			t.Errorf("killed at %q (%d): %d and %d notifications, want %d", place, n, a, b, each)
		}
		text, err := os.ReadFile(filepath.Clean(th.Dir() + ".handled"))
		noError(t, err)
		twice := 0
		for i := range each {
			switch got := strings.Count(string(text), fmt.Sprintf("reply%d\n", i)); got {
			case 1:
			case 2:
				twice++
			default:
				t.Errorf("killed at %q (%d): reply%d was handled %d times", place, n, i, got)
			}
		}
		if twice > 1 {
			t.Errorf("killed at %q (%d): %d were handled twice", place, n, twice)
		}
		if places[place]++; place == "" {
			break
		}
	}
	for _, want := range []string{"stored", "begun", "running", "ended"} {
		if places[want] < each {
			t.Errorf("%d deaths at %s", places[want], want)
		}
	}
}
