//go:build unix

package consume

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// keyedThread returns a thread with n events, the key of event id being id modulo keys,
// and the path of a log for commands to append to.
func keyedThread(t testing.TB, n, keys int) (*engine.Thread, string) {
	th := newThread(t)
	ds := make([]event.Draft, n)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprintf("s%d", (i+1)%keys), Type: "t", Content: strconv.Itoa(i)}
	}
	if _, err := th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
	return th, filepath.Join(t.TempDir(), "log")
}

// deliveries is what commands have logged, by key: ids in the order of their begins.
type deliveries map[string][]int64

func readDeliveries(t testing.TB, log string) deliveries {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	d := deliveries{}
	for line := range strings.Lines(string(text)) {
		var key string
		var id int64
		if _, err := fmt.Sscan(line, &key, &id); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		d[key] = append(d[key], id)
	}
	return d
}

// Several deliveries are in flight at once, and events of one key one after the other.
func TestParallelKeys(t *testing.T) {
	th, log := keyedThread(t, 120, 6)
	t.Setenv("LOG", log)
	// Each waits for a second one to be out, of another key: one after the other this
	// never ends.
	sum, err := Run(ctx, th, "c", Options{
		Command:  []string{"sh", "-c", `mkdir "$LOG.$THREAD_EVENT_KEY" || exit 65; test $THREAD_EVENT_ID -gt 6 || while test $(ls -d "$LOG".s* "$LOG".met 2>/dev/null | wc -l) -lt 2; do :; done; mkdir "$LOG.met" 2>/dev/null; echo $THREAD_EVENT_KEY $THREAD_EVENT_ID >>"$LOG"; rmdir "$LOG.$THREAD_EVENT_KEY"`},
		Parallel: 4, Key: "source",
	})
	if err != nil || sum != (Summary{Delivered: 120}) {
		t.Fatalf("got %+v, %v", sum, err)
	}
	for key, ids := range readDeliveries(t, log) {
		for i, id := range ids {
			if want := int64(i*6) + ids[0]; id != want {
				t.Fatalf("key %s: event %d, want %d", key, id, want)
			}
		}
	}
	if info, err := th.Info(ctx); err != nil || info.Subscriptions[0].LastAcked != 120 || info.Subscriptions[0].Settled != 0 {
		t.Fatalf("got %+v, %v", info, err)
	}
}

// A key that waits for its next attempt holds up only itself, and a batch has events
// of one key.
func TestParallelFailures(t *testing.T) {
	th, log := keyedThread(t, 60, 3)
	t.Setenv("LOG", log)
	sum, err := Run(ctx, th, "c", Options{
		Command: []string{"sh", "-c", `code=0; while IFS= read -r line; do id=${line#*:}; id=${id%%,*}; echo $THREAD_EVENT_KEY $id >>"$LOG"; test $id = 31 && code=1; done; exit $code`},
		Batch:   8, Parallel: 4, Key: "source", MaxAttempts: 3, FirstDelay: time.Millisecond,
	})
	if err != nil || sum.Delivered != 59 || sum.Dead != 1 {
		t.Fatalf("got %+v, %v", sum, err)
	}
	for key, ids := range readDeliveries(t, log) {
		last, times := int64(0), map[int64]int{}
		for _, id := range ids {
			if "s"+strconv.FormatInt(id%3, 10) != key {
				t.Fatalf("event %d comes with key %s", id, key)
			}
			if times[id]++; times[id] == 1 {
				if last != 0 && id != last+3 {
					t.Fatalf("key %s: event %d comes after %d", key, id, last)
				}
				last = id
			}
			if id != 31 && times[id] > 4 {
				t.Fatalf("event %d comes %d times", id, times[id])
			}
		}
	}
}

// workerScript is a worker in shell: it logs key and id, and does what the content of
// an event says.
const workerScript = `while IFS= read -r line; do
	id=${line#*:}; id=${id%%,*}
	key=${line#*'"source":"'}; key=${key%%'"'*}
	echo $key $id >>"$LOG"
	case $line in
	*'"content":"die"'*) exit 3 ;;
	*'"content":"garbage"'*) echo hello ;;
	*'"content":"fail"'*) echo '{"id":'$id',"error":"no such user"}' ;;
	*'"content":"dead"'*) echo '{"id":'$id',"error":"never","dead":true}' ;;
	*'"content":"delay"'*) test -e "$LOG.delayed" && echo '{"id":'$id',"ok":true}' || { : >"$LOG.delayed"; echo '{"id":'$id',"delay":"10ms"}'; } ;;
	*) echo '{"id":'$id',"ok":true}' ;;
	esac
done; echo bye >>"$LOG.ended"`

func TestWorkers(t *testing.T) {
	th := newThread(t)
	contents := []string{"x", "fail", "x", "die", "x", "garbage", "x", "dead", "delay", "x"}
	for i, c := range contents {
		if _, err := th.Push(ctx, event.Draft{Source: "s" + strconv.Itoa(i), Type: "t", Content: c}); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("LOG", log)
	sum, err := Run(ctx, th, "c", Options{Command: []string{"sh", "-c", workerScript}, Worker: true, Parallel: 3, Key: "source", MaxAttempts: 2, FirstDelay: time.Millisecond})
	if err != nil || sum.Delivered != 6 || sum.Dead != 4 {
		t.Fatalf("got %+v, %v", sum, err)
	}
	want := map[int64]string{2: "no such user", 4: "the worker ended without a result: exit 3", 6: "which is not a result", 8: "never"}
	attempts := map[int64]int64{2: 2, 4: 2, 6: 2, 8: 1}
	for l, err := range th.DeadLetters(ctx, engine.DeadLetterQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if w := want[l.Event.ID]; w == "" || !strings.Contains(l.LastError, w) || l.Attempts != attempts[l.Event.ID] {
			t.Errorf("event %d is dead after %d attempts: %s", l.Event.ID, l.Attempts, l.LastError)
		}
	}
	times := map[int64]int{}
	for _, ids := range readDeliveries(t, log) {
		for _, id := range ids {
			times[id]++
		}
	}
	for i, c := range contents {
		most := map[string]int{"fail": 2, "die": 2, "garbage": 2, "delay": 2}[c]
		if id := int64(i + 1); times[id] != max(1, most) {
			t.Errorf("event %d (%s) came %d times", id, c, times[id])
		}
	}
	// The workers that are left were told to end, and have.
	if text, _ := os.ReadFile(log + ".ended"); len(text) == 0 {
		t.Error("no worker came to its end")
	}
}

// What a worker has left behind may have its stdout open: no caller waits for its end, neither
// when the worker has died nor when the work is done.
func TestWorkerLeavesAProcess(t *testing.T) {
	for _, end := range []string{"kill -9 $$", `echo '{"id":1,"ok":true}'; exit`, `echo '{"id":1,"ok":true}'; read x`} {
		th := newThread(t, "x")
		left := filepath.Join(t.TempDir(), "left")
		t.Setenv("LEFT", left)
		sum, err := Run(ctx, th, "c", Options{Command: []string{"sh", "-c", "sleep 600 2>&1 & echo $! >$LEFT; read x; " + end}, Worker: true, Parallel: 1, MaxAttempts: 1})
		text, _ := os.ReadFile(left)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		if pid <= 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
			t.Errorf("%s: the process that was left behind was waited for", end)
		}
		if want := strings.Contains(end, "ok"); err != nil || (sum.Delivered == 1) != want || (sum.Dead == 1) == want {
			t.Errorf("%s: got %+v, %v", end, sum, err)
		}
	}
}

// A worker that prints before it has read a long event has failed it. Neither waits for
// the other.
func TestWorkerPrintsInsteadOfReading(t *testing.T) {
	th := newThread(t, strings.Repeat("x", 4<<20))
	sum, err := Run(ctx, th, "c", Options{Command: []string{"cat"}, Worker: true, Parallel: 1, MaxAttempts: 1})
	if err != nil || sum.Dead != 1 {
		t.Errorf("got %+v, %v", sum, err)
	}
}

// A key that no environment can hold holds up nothing.
func TestHugeKey(t *testing.T) {
	th := newThread(t, `{"k":"`+strings.Repeat("k", 1<<20)+`"}`, `{"k":"x"}`)
	check := `case $THREAD_EVENT_ID in 1) test -z "${THREAD_EVENT_KEY+set}" ;; 2) test "$THREAD_EVENT_KEY" = x ;; esac`
	sum, err := Run(ctx, th, "c", Options{Command: []string{"sh", "-c", check}, Parallel: 2, Key: "$.k", MaxAttempts: 1})
	if err != nil || sum.Delivered != 2 {
		t.Errorf("got %+v, %v", sum, err)
	}
}

func TestWorkerAnswers(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":7,"ok":true}`:               "0",
		`{"id":7,"error":"x"}`:             "1",
		`{"id":7,"error":"x","dead":true}`: "2",
		`{"id":7,"delay":"5s"}`:            "3",
		`{"id":8,"ok":true}`:               "it has event 7",
		`{"ok":true}`:                      "it has event 7",
		`{"id":7}`:                         "one of ok, error and delay",
		`{"id":7,"ok":true,"error":"x"}`:   "one of ok, error and delay",
		`{"id":7,"ok":true,"dead":true}`:   "dead only with error",
		`{"id":7,"delay":"soon"}`:          "a duration such as 5s",
		`{"id":7,"delay":"-5s"}`:           "a duration such as 5s",
		`ok`:                               `"ok"`,
		`{"id":"7","ok":true}`:             "not a result",
		strings.Repeat("x", 1000):          "…",
	} {
		r, err := parseAnswer([]byte(line), 7)
		got := strconv.Itoa(int(r.Verdict))
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || len(got) > 250 {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

// A worker that cannot be started ends the run, and its events are as they were.
func TestNoWorker(t *testing.T) {
	th := newThread(t, "x")
	if _, err := Run(ctx, th, "c", Options{Command: []string{"/no/such/program"}, Worker: true, Parallel: 2}); err == nil || !strings.Contains(err.Error(), ErrCommand.Error()) {
		t.Fatalf("got %v", err)
	}
	sum, err := Run(ctx, th, "c", Options{Command: []string{"sh", "-c", `test "$THREAD_EVENT_ATTEMPT" = 1`}})
	if err != nil || sum != (Summary{Delivered: 1}) {
		t.Fatalf("got %+v, %v", sum, err)
	}
}

// TestParallelKill kills a consume again and again, each time after some deliveries
// have begun, until the work is done. Nothing is lost, each key is in order, and an
// event is redelivered only if it was out when a kill came.
func TestParallelKill(t *testing.T) {
	for _, worker := range []bool{false, true} {
		const n, keys = 200, 20
		th, log := keyedThread(t, n, keys)
		script := `echo $THREAD_EVENT_KEY $THREAD_EVENT_ID >>"$CONSUME_LOG"`
		if worker {
			script = strings.ReplaceAll(workerScript, "$LOG", "$CONSUME_LOG")
		}
		kills := 0
		for done := false; !done; kills++ {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "CONSUME_DIR="+th.Dir(), "CONSUME_LOG="+log, "CONSUME_BATCH=1", "CONSUME_PARALLEL=4",
				"CONSUME_WORKER="+map[bool]string{true: "1"}[worker], "CONSUME_KILL_AT="+strconv.Itoa(30+kills*7), "CONSUME_COMMAND="+script)
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
			}
			err = cmd.Wait()
			leftAlone()
			if done = line == ""; done && err != nil {
				t.Fatal(err)
			}
		}
		if kills < 3 {
			t.Fatalf("killed %d times only", kills-1)
		}
		again := 0
		seen := map[int64]int{}
		for key, ids := range readDeliveries(t, log) {
			next := int64(0)
			for _, id := range ids {
				if next == 0 {
					next = id
				}
				switch id {
				case next:
					next += keys
				case next - keys: // the one that was out
					again++
				default:
					t.Fatalf("worker %v, key %s: event %d, want %d", worker, key, id, next)
				}
				seen[id]++
			}
		}
		if len(seen) != n {
			t.Fatalf("worker %v: %d events of %d came", worker, len(seen), n)
		}
		if most := 2 * 4 * kills; again > most+kills*reserveOfAll {
			t.Fatalf("worker %v: %d events came again after %d kills", worker, again, kills)
		}
		info, err := th.Info(ctx)
		if err != nil || info.Subscriptions[0].LastAcked != n || info.Subscriptions[0].Dead != 0 {
			t.Fatalf("got %+v, %v", info, err)
		}
	}
}

// BenchmarkWorker is what an event costs next to the work of the worker, which has none.
func BenchmarkWorker(b *testing.B) {
	for _, n := range []int64{1, 16} {
		b.Run(strconv.FormatInt(n, 10), func(b *testing.B) {
			th := newThread(b)
			const events = 20000
			drafts := make([]event.Draft, events)
			for i := range drafts {
				drafts[i] = event.Draft{Source: "s" + strconv.Itoa(i%1000), Type: "t", Content: "x"}
			}
			b.Setenv("CONSUME_ECHO", "1")
			for b.Loop() {
				b.StopTimer()
				if _, err := th.PushBatch(ctx, drafts); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				sum, err := Run(ctx, th, "c", Options{Command: []string{os.Args[0]}, Worker: true, Parallel: n, Key: "source", Stderr: os.Stderr})
				if err != nil || sum.Delivered != events {
					b.Fatal(sum, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*events), "µs/event")
		})
	}
}

// echo is a worker that succeeds with everything.
func echo() int {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var e struct{ ID int64 }
		if json.Unmarshal(line, &e) != nil {
			return 1
		}
		fmt.Printf("{\"id\":%d,\"ok\":true}\n", e.ID)
	}
}
