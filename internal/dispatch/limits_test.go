//go:build linux

package dispatch

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/event"
)

// T-63.
func TestHandlerThatNeverAcks(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"`})
	for i := range 3 {
		b.push("s")
		b.dispatch(Options{})
		b.awaitLog("consumer=c stopped", i+1)
		b.awaitIdle()
		if got := len(b.lines("runs")); got != i+1 {
			t.Fatalf("%d runs after %d pushes", got, i+1)
		}
	}
	if s := b.state("c"); !s.Stopped || s.Stalled || s.LastExit != "exit 0" {
		t.Errorf("state %+v", s)
	}
}

func TestHandlerThatFails(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; exit 3`})
	b.subscribe(engine.Subscription{Consumer: "well", Handler: drain})
	for i := range 2 {
		last := b.push("s")
		b.dispatch(Options{})
		b.awaitLog("[ERROR] supervise: consumer=c stalled after 5 failed runs, the last one: exit 3", i+1)
		b.awaitIdle()
		if got := len(b.lines("runs")); got != (i+1)*maxTries {
			t.Fatalf("%d runs after %d pushes", got, i+1)
		}
		if s := b.state("c"); !s.Stalled || s.Failures != maxTries || s.LastExit != "exit 3" || s.Running {
			t.Errorf("state %+v", s)
		}
		if b.acked("well") != last {
			t.Error("the failing consumer stopped the other")
		}
	}
	for _, delay := range []string{"20ms", "40ms", "80ms", "160ms"} {
		if n := strings.Count(b.log(), "runs again in "+delay+": exit 3"); n != 2 {
			t.Errorf("%d retries after %s, want 2", n, delay)
		}
	}
}

// The table holds when nothing can be noted in run/, as on a full disk.
func TestNoteCannotBeWritten(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "idle", Handler: `echo run >> "$D/idle"`})
	b.subscribe(engine.Subscription{Consumer: "fails", Handler: `echo run >> "$D/fails"; exit 3`})
	for _, consumer := range []string{"idle", "fails"} {
		if err := os.MkdirAll(b.r.notePath(consumer)+".new", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		b.push("s")
		b.dispatch(Options{MaxHandlers: 1}) // one supervisor runs both
		b.awaitLog("consumer=idle stopped", i+1)
		b.awaitLog("consumer=fails stalled", i+1)
		b.awaitIdle()
		if idle, fails := len(b.lines("idle")), len(b.lines("fails")); idle != i+1 || fails != (i+1)*maxTries {
			t.Fatalf("%d and %d runs after %d pushes", idle, fails, i+1)
		}
	}
	// A note that another process has written since is the newer one.
	n := note{State: stateStopped, RunID: "ours"}
	if err := b.r.writeNote("idle", n); err == nil {
		t.Fatal("the note was written")
	}
	if got := b.r.readNote("idle"); got.RunID != "ours" {
		t.Errorf("note %+v", got)
	}
	if err := os.Remove(b.r.notePath("idle") + ".new"); err != nil {
		t.Fatal(err)
	}
	if err := newDispatcher(b.t, Options{}).writeNote("idle", note{State: stateIdle, RunID: "theirs"}); err != nil {
		t.Fatal(err)
	}
	if got := b.r.readNote("idle"); got.RunID != "theirs" {
		t.Errorf("note %+v", got)
	}
}

// A note takes the place of one that is longer, or shorter, in the same file.
func TestNoteInPlaceOfAnother(t *testing.T) {
	b := newBench(t)
	if err := b.r.prepare(); err != nil {
		t.Fatal(err)
	}
	var first os.FileInfo
	for i, size := range []int{0, 3 * noteBytes, 10, 5 * noteBytes, 0} {
		want := note{State: stateIdle, RunID: strconv.Itoa(i), Exit: strings.Repeat("x", size)}
		if err := b.r.writeNote("c", want); err != nil {
			t.Fatal(err)
		}
		if got := b.r.readNote("c"); got.RunID != want.RunID || got.Exit != want.Exit {
			t.Errorf("note %+v, want %+v", got, want)
		}
		info, err := os.Stat(b.r.notePath("c"))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = info
		}
		if !os.SameFile(first, info) || info.Size()%noteBytes != 0 {
			t.Errorf("note %d is in another file, or of %d bytes", i, info.Size())
		}
	}
}

// While a consumer waits for its retry it holds no lock and no slot, others run,
// and a push is left to the retry.
func TestBackoffHoldsUpNobody(t *testing.T) {
	b := newBench(t)
	// Its time has ended when this test says so.
	t.Setenv("DISPATCH_TEST_STOP_AT", "due")
	t.Setenv("DISPATCH_TEST_MEET", b.path("meet"))
	meeting, answer, at := b.fifo("meet"), b.fifo("meet.go"), b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "bad", Handler: `echo run >> "$D/runs"; [ -e "$D/mended" ] || exit 1; ` + drain})
	b.push("s")
	b.dispatch(Options{MaxHandlers: 1})
	meeting.line()
	b.subscribe(engine.Subscription{Consumer: "good", Handler: drain + `; echo $n > "$D/at"`})
	last := b.push("s")
	b.dispatch(Options{MaxHandlers: 1})
	b.awaitLog("dispatch: consumer=bad skipped (waiting to retry)", 1)
	if got := at.line(); got != strconv.FormatInt(last, 10) {
		t.Errorf("good popped up to %s", got)
	}
	if s := b.state("bad"); s.RetryAt == nil || s.Running || s.Failures != 1 {
		t.Errorf("state %+v", s)
	}
	if err := os.WriteFile(b.path("mended"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	answer.say()
	b.awaitIdle()
	if got := len(b.lines("runs")); got != 2 || b.acked("bad") != last {
		t.Errorf("%d runs, acked %d; want 2 and %d", got, b.acked("bad"), last)
	}
}

// A handler that pushes into its own subscription and never acks is slowed down.
func TestHandlerThatFeedsItself(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; [ $(wc -l < "$D/runs") -lt 6 ] && "$T" push "$THREAD_DIR" self; true`})
	b.push("s")
	b.dispatch(Options{})
	b.awaitLog("consumer=c stopped", 1)
	b.awaitIdle()
	for _, delay := range []string{"20ms", "40ms", "80ms", "160ms"} {
		if !strings.Contains(b.log(), "runs again in "+delay+": exit 0") {
			t.Errorf("no retry after %s:\n%s", delay, b.log())
		}
	}
	if got := len(b.lines("runs")); got != 6 {
		t.Errorf("%d runs, want 6", got)
	}
}

func TestTimeLimit(t *testing.T) {
	b := newBench(t)
	// First the shell ends at SIGTERM and its child does not, then both do not. On a
	// busy host the time may be up before the child is there: then once more.
	b.subscribe(engine.Subscription{Consumer: "c", Timeout: 300 * time.Millisecond, Handler: `
		: >> "$D/children"
		case $(wc -l < "$D/children") in
		0) ;;
		1) trap "" TERM ;;
		*) echo again >> "$D/again"; exit ;;
		esac
		sh -c 'trap "" TERM; echo $$ >> "$D/children"; while :; do sleep 1000; done' & while :; do wait; done`})
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	children := b.lines("children")
	if len(children) != 2 {
		t.Errorf("children: %v, want 2", children)
	}
	for _, text := range children {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		b.awaitGone(pid)
	}
	if !strings.Contains(b.log(), "runs again in 20ms: timed out after 300ms") {
		t.Error("the time limit is not in the log")
	}
	if len(b.lines("again")) == 0 {
		t.Error("the handler did not run again")
	}
}

// What a handler has printed is in its log when it has ended, and the end of the
// pipe is not waited for: a process that was left behind has it open.
func TestOutputOfLeftovers(t *testing.T) {
	b := newBench(t)
	o, err := b.r.openOutput("c")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(o.writer.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	text := strings.Repeat("x", 40<<10)
	if _, err := o.writer.WriteString(text); err != nil {
		t.Fatal(err)
	}
	o.begin()
	o.close()
	if got, err := os.ReadFile(OutputPath(b.t.Dir(), "c")); string(got) != text {
		t.Errorf("%d bytes in the log, want %d: %v", len(got), len(text), err)
	}
}

// T-60: The bound holds, the order of subscription is kept (except for what starts at the same time), and no process is left out.
func TestManyConsumers(t *testing.T) {
	n, slots := 60, 3
	if v, err := strconv.Atoi(os.Getenv("DISPATCH_CONSUMERS")); err == nil {
		n = v
	}
	b := newBench(t)
	err := b.t.Update(context.Background(), func(tx *engine.Tx) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b.subscribe(engine.Subscription{Consumer: fmt.Sprintf("c%04d", i), AckOnSuccess: true,
			Handler: `echo "+$THREAD_CONSUMER" >> "$D/order"; "$T" pop 0 >/dev/null; echo "-$THREAD_CONSUMER" >> "$D/order"`})
	}
	if _, err := b.t.PushBatch(context.Background(), []event.Draft{{Source: "s", Type: "message"}, {Source: "s", Type: "message"}}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	b.dispatch(Options{MaxHandlers: slots})
	b.dispatch(Options{MaxHandlers: slots}) // a second one changes nothing
	b.awaitIdle()
	t.Logf("%d handlers, %d at once, in %v", n, slots, time.Since(start).Round(time.Millisecond))
	running, most, begun, late := 0, 0, 0, 0
	for _, line := range b.lines("order") {
		if line[0] == '-' {
			running--
			continue
		}
		running++
		most = max(most, running)
		i, _ := strconv.Atoi(line[2:])
		if i > begun+20 || i < begun-20 {
			// One whose lock the other dispatch had just then comes with its next pass.
			if late++; late > 3 {
				t.Errorf("%s began as number %d", line, begun)
			}
		}
		begun++
	}
	if most > slots || most < 2 || begun != n {
		t.Errorf("%d handlers began, at most %d at once; want %d and %d", begun, most, n, slots)
	}
	for i := range n {
		if c := fmt.Sprintf("c%04d", i); b.acked(c) != 2 {
			t.Errorf("%s acked %d", c, b.acked(c))
		}
	}
}

func TestAckOnSuccess(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", AckOnSuccess: true, Handler: `"$T" pop $THREAD_LAST_ACKED_ID; [ ! -e "$D/fail" ]`})
	b.subscribe(engine.Subscription{Consumer: "d", Handler: `"$T" pop $THREAD_LAST_ACKED_ID`})
	if err := os.WriteFile(b.path("fail"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.push("s")
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	if c, d := b.acked("c"), b.acked("d"); c != 0 || d != 0 {
		t.Errorf("acked %d after failures, and %d without the option", c, d)
	}
	if err := os.Remove(b.path("fail")); err != nil {
		t.Fatal(err)
	}
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	if c, d := b.acked("c"), b.acked("d"); c != 3 || d != 0 {
		t.Errorf("acked %d after success, want 3, and %d without the option", c, d)
	}
}

func TestAckOnSuccessByEnvironment(t *testing.T) {
	t.Setenv(envAck, ackOnSuccess)
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `"$T" pop $THREAD_LAST_ACKED_ID`})
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	if c := b.acked("c"); c != 1 {
		t.Errorf("acked %d, want 1", c)
	}
}

// A push by a handler whose success acks does not make that the rule for the
// handlers that it starts.
func TestAckOnSuccessIsNotInherited(t *testing.T) {
	b := newBench(t)
	first := "source = 'first'"
	second := "source = 'second'"
	b.subscribe(engine.Subscription{Consumer: "a", Filter: &first, AckOnSuccess: true, Handler: `"$T" pop 0; "$T" push "$THREAD_DIR" second`})
	b.subscribe(engine.Subscription{Consumer: "b", Filter: &second, Handler: `"$T" pop 0; echo run >> "$D/runs"`})
	b.push("first")
	b.dispatch(Options{})
	b.awaitLog("consumer=b stopped", 1)
	b.awaitIdle()
	if a, c := b.acked("a"), b.acked("b"); a != 1 || c != 0 {
		t.Errorf("acked %d and %d, want 1 and 0", a, c)
	}
}

// A handler that never acks and answers into its own thread is not started by
// its own answers.
func TestHandlerIsNotWokenByItsAnswer(t *testing.T) {
	b := newBench(t)
	question := "source = 'question'"
	b.subscribe(engine.Subscription{Consumer: "c", Filter: &question, Handler: `echo run >> "$D/runs"; "$T" push "$THREAD_DIR" answer`})
	for i := range 2 {
		b.push("question")
		b.dispatch(Options{})
		b.awaitLog("consumer=c stopped", i+1)
		b.awaitIdle()
		if got := len(b.lines("runs")); got != i+1 {
			t.Errorf("%d runs after %d questions", got, i+1)
		}
	}
}
