//go:build unix

package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// O-16: the example goes end to end, and the handler gets it with equal values.
func TestExampleIsDelivered(t *testing.T) {
	th := newThread(t)
	m, err := ParseMessage([]byte(example))
	noError(t, err)
	m.Extra = append(m.Extra, Member{"big", json.RawMessage("9007199254740993")})
	in := insert(t, th, m)
	out := filepath.Join(t.TempDir(), "got")
	sum := once(t, th, `cat >`+out+`; env | grep ^THREAD_ | sort >`+out+`.env; echo chatter
echo '{"status":"accepted","reason":"passed_filters","run_id":"run_20260226_001","next_retry_at":null}'; echo more chatter`)
	if sum != (Summary{Processed: 2, Triggered: 1, Notifications: 1}) { // with its feedback
		t.Errorf("got %+v", sum)
	}
	got, err := os.ReadFile(out)
	noError(t, err)
	want, err := parseObject([]byte(example))
	noError(t, err)
	members, err := parseObject(got)
	noError(t, err)
	want = append(want, Member{"big", json.RawMessage("9007199254740993")})
	if fmt.Sprintf("%s", members) != fmt.Sprintf("%s", want) {
		t.Errorf("got %s, want %s", members, want)
	}
	env, err := os.ReadFile(out + ".env")
	noError(t, err)
	// O-08, O-15, O-16
	for _, line := range []string{"THREAD_OUTBOX_EVENT_ID=evt_20260226_9f3a1c", "THREAD_OUTBOX_TRACE_ID=trc_7c1d2e", "THREAD_OUTBOX_ACTION_HINT=consider_reply",
		"THREAD_OUTBOX_ATTEMPT=1", "THREAD_OUTBOX_EVENT_TYPE=comment.replied", "THREAD_EVENT_ID=1", "THREAD_DIR=" + th.Dir()} {
		if !strings.Contains("\n"+string(env), "\n"+line+"\n") {
			t.Errorf("the environment has no %s:\n%s", line, env)
		}
	}
	rec := get(t, th, in.ID)
	if rec.Status != Processed || len(rec.Receipts) != 1 || rec.Error != nil || *rec.RunID != "run_20260226_001" || rec.ProcessedAt == nil {
		t.Fatalf("got %+v", rec)
	}
	if r := rec.Receipts[0]; r.Status != Accepted || r.Reason != "passed_filters" || *r.RunID != "run_20260226_001" || r.NextRetryAt != nil || r.TraceID != "trc_7c1d2e" || r.Attempt != 1 {
		t.Errorf("got %+v", r)
	}
}

// O-09: what each receipt does; all are stored, and told of by a feedback.
func TestReceipts(t *testing.T) {
	for _, c := range []struct {
		name, handler string
		status        Status // of the record
		receipt       string
		reason        string
		exit          int64
	}{
		{"accepted", `echo '{"status":"accepted","reason":"r","run_id":7}'`, Processed, Accepted, "r", 0},
		{"ignored", `echo '{"status":"ignored","reason":"filtered"}'`, Processed, Ignored, "filtered", 0},
		{"failed", `echo '{"status":"failed","reason":"busy"}'`, Pending, Refused, "busy", 0},
		{"none", `echo done`, Processed, Accepted, "exit 0, without a receipt", 0},
		{"the last one", `echo '{"status":"failed"}'; echo '{"status":"accepted"}'; echo '[1]'; echo 'no {'`, Processed, Accepted, "", 0},
		{"unknown", `echo '{"status":"ok"}'`, Pending, Refused, `the receipt is not valid: status "ok" is not accepted, ignored or failed`, 0},
		{"exit code", `echo oh no >&2; exit 3`, Pending, Refused, "exit 3: oh no", 3},
		{"exit code over accepted", `echo '{"status":"accepted"}'; exit 3`, Pending, Refused, "exit 3", 3},
		{"exit code with a reason", `echo '{"status":"failed","reason":"model is down"}'; exit 3`, Pending, Refused, "model is down", 3},
		{"signal", `kill -9 $$`, Pending, Refused, "killed by a signal", -1},
		{"never again", `echo bad >&2; exit 65`, Failed, Refused, "exit 65: bad", 65},
		{"not UTF-8", `printf 'a\377b' >&2; exit 3`, Pending, Refused, "exit 3: a\uFFFDb", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := newThread(t)
			in := insert(t, th, reply(1))
			once(t, th, c.handler)
			rec := get(t, th, in.ID)
			if rec.Status != c.status || len(rec.Receipts) != 1 {
				t.Fatalf("got %+v", rec)
			}
			r := rec.Receipts[0]
			if r.Status != c.receipt || r.Reason != c.reason || r.ExitCode != c.exit || (r.NextRetryAt != nil) != (c.status == Pending) {
				t.Errorf("got %+v", r)
			}
			if c.status == Pending && (rec.RetryCount != 1 || *rec.Error == "" || rec.AvailableAt != *r.NextRetryAt) {
				t.Errorf("got %+v", rec)
			}
			// A feedback begets none.
			once(t, th, "exit 1")
			feedback := records(t, th, Query{Type: ActionFeedback})
			if len(feedback) != 1 || feedback[0].Status != Processed || feedback[0].TraceID != rec.TraceID ||
				!strings.Contains(string(feedback[0].Payload), fmt.Sprintf(`"status":%q`, c.receipt)) || len(feedback[0].Receipts) != 0 {
				t.Errorf("got %+v", feedback)
			}
			// Nor is it a notification.
			if list := notifications(t, th, "12"); len(list) != 0 {
				t.Errorf("got %+v", list)
			}
		})
	}
}

// That no process reads what handlers print is not a failure of theirs.
func TestNobodyReads(t *testing.T) {
	th := newThread(t)
	m, err := ParseMessage([]byte(example))
	noError(t, err)
	in := insert(t, th, m)
	long := `i=0; while test $i -lt 1000; do printf '%0200d\n' $i; printf '%0200d\n' $i >&2; i=$((i+1)); done; echo '{"status":"accepted"}'`
	_, err = Relay(ctx, th, Options{Mode: Once, Command: []string{"sh", "-c", long}, Stdout: gone{}, Stderr: gone{}})
	noError(t, err)
	if rec := get(t, th, in.ID); rec.Status != Processed {
		t.Errorf("%s: %+v", rec.Status, rec.Receipts)
	}
}

// gone is a pipe without a reader.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// O-09, O-13: a feedback is a notification when that is set.
func TestFeedbackNotifies(t *testing.T) {
	th := newThread(t)
	set(t, th, func(s *Settings) { s.FeedbackNotifies = true })
	insert(t, th, reply(1))
	once(t, th, "true")
	if list := notifications(t, th, "12"); len(list) != 1 || list[0].Type != ActionFeedback {
		t.Errorf("got %+v", list)
	}
}

// O-17: the receipt's next_retry_at is when it is tried again.
func TestNextRetryAt(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	in := insert(t, th, reply(1))
	at := c.Now().Add(40 * time.Minute).UTC()
	refuse := fmt.Sprintf(`echo '{"status":"failed","reason":"later","next_retry_at":%q}'`, at.Format(time.RFC3339))
	once(t, th, refuse)
	if r := get(t, th, in.ID).Receipts[0]; *r.NextRetryAt != event.FormatTime(at) {
		t.Errorf("got %+v", r)
	}
	c.move(40*time.Minute - time.Millisecond)
	if sum := once(t, th, "true"); sum.Triggered != 0 {
		t.Errorf("too early: %+v", sum)
	}
	c.move(time.Millisecond)
	if sum := once(t, th, "true"); sum.Triggered != 1 {
		t.Errorf("got %+v", sum)
	}
}

// O-17: a next_retry_at that has ended leaves the wait to the back-off.
func TestNextRetryAtIsOver(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	in := insert(t, th, reply(1))
	once(t, th, fmt.Sprintf(`echo '{"status":"failed","next_retry_at":%q}'`, c.Now().Add(-time.Hour).UTC().Format(time.RFC3339)))
	rec := get(t, th, in.ID)
	if ms, _ := event.ParseTime(rec.AvailableAt); ms < c.Now().Add(time.Second).UnixMilli() || *rec.Receipts[0].NextRetryAt != rec.AvailableAt {
		t.Errorf("it is tried again at %s, the time is %v: %+v", rec.AvailableAt, c.Now(), rec.Receipts)
	}
}

// O-09: every receipt is stored, and told of by a feedback, also of what is to be tried
// later, and after a retry.
func TestEveryReceiptIsStored(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	set(t, th, func(s *Settings) { s.MaxAttempts = 1 })
	in := insert(t, th, reply(1))
	const later = 34
	for range later {
		once(t, th, "exit 75")
		c.move(10 * time.Minute)
	}
	once(t, th, "exit 9")
	noError(t, th.Update(ctx, func(tx *engine.Tx) error { _, err := Retry(tx, in.ID); return err }))
	once(t, th, "true")
	rec := get(t, th, in.ID)
	if len(rec.Receipts) != later+2 || rec.Receipts[0].ExitCode != 75 || rec.Receipts[later].ExitCode != 9 || rec.Status != Processed {
		t.Errorf("%d receipts: %+v", len(rec.Receipts), rec)
	}
	if feedback := records(t, th, Query{Type: ActionFeedback}); len(feedback) != later+2 {
		t.Errorf("%d feedbacks, want %d", len(feedback), later+2)
	}
}

// O-06: a message that has failed for good does not keep another one with its key out.
func TestDedupeAfterFailure(t *testing.T) {
	th := newThread(t)
	set(t, th, func(s *Settings) { s.MaxAttempts = 1 })
	m := reply(1)
	m.EventID = "evt_1"
	first := insert(t, th, m)
	once(t, th, "exit 9")
	if in := insert(t, th, m); !in.Duplicate || in.ID != first.ID {
		t.Errorf("an event_id counts for ever: %+v", in)
	}
	m.EventID = "evt_2"
	second := insert(t, th, m)
	if second.Duplicate {
		t.Fatalf("got %+v", second)
	}
	m.EventID = "evt_3"
	if in := insert(t, th, m); !in.Duplicate || in.EventID != "evt_2" {
		t.Errorf("got %+v", in)
	}
}

// O-15: the trace context of what inserts a message reaches its handler; without one it
// is made of the trace_id.
func TestTraceContext(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct{ traceID, parent, request, wantParent, wantRequest string }{
		{"trc_x", parent, "req_1", parent, "req_1"},
		{"trc_0af7651916cd43dd8448eb211c80319c", "", "", "00-0af7651916cd43dd8448eb211c80319c-", "trc_0af7651916cd43dd8448eb211c80319c"},
		{"trc_x", "no trace", "", "00-", "trc_x"},
	} {
		th := newThread(t)
		m := reply(1)
		m.TraceID = c.traceID
		m.Trace(c.parent, c.request)
		if c.request != "" {
			m.Trace("later", "later")
		}
		insert(t, th, m)
		var out strings.Builder
		rec := &recorder{}
		_, err := Relay(ctx, th, Options{Recorder: rec, Stdout: &out, Command: []string{"sh", "-c", `echo "$TRACEPARENT|$THREAD_REQUEST_ID|$THREAD_OUTBOX_ATTEMPT|$THREAD_RUN_ATTEMPT"`}})
		noError(t, err)
		got := strings.Split(strings.TrimSpace(out.String()), "|")
		if len(got) != 4 || !strings.HasPrefix(got[0], c.wantParent) || !event.IsTraceparent(got[0]) || got[1] != c.wantRequest || got[2] != "1" || got[3] != "1" {
			t.Errorf("%+v: got %q", c, got)
		}
		if r := rec.begun[0]; r.Traceparent != got[0] || r.RequestID != got[1] {
			t.Errorf("the run: %+v", r)
		}
	}
}

// O-07: waits double up to their bound, drawn out by up to a quarter; the last attempt makes the
// record failed, with its error, and a retry makes it pending again.
func TestBackoffAndFailure(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	in := insert(t, th, reply(1))
	want := time.Second
	for attempt := int64(1); attempt <= 5; attempt++ {
		once(t, th, "exit 9")
		rec := get(t, th, in.ID)
		if rec.RetryCount != attempt || *rec.Error != "exit 9" {
			t.Fatalf("got %+v", rec)
		}
		if attempt == 5 {
			if rec.Status != Failed {
				t.Fatalf("got %+v", rec)
			}
			break
		}
		ms, _ := event.ParseTime(rec.AvailableAt)
		if wait := time.UnixMilli(ms).Sub(c.Now()); rec.Status != Pending || wait < want-time.Millisecond || wait > want*5/4 {
			t.Errorf("attempt %d: %s after %v, want %v", attempt, rec.Status, wait, want)
		}
		want *= 2
		c.move(time.UnixMilli(ms).Sub(c.Now()))
	}
	c.move(24 * time.Hour)
	if sum := once(t, th, "true"); sum.Triggered != 0 {
		t.Errorf("a failed record was handed on: %+v", sum)
	}
	retried := false
	noError(t, th.Update(ctx, func(tx *engine.Tx) (err error) { retried, err = Retry(tx, in.ID); return err }))
	if rec := get(t, th, in.ID); !retried || rec.Status != Pending {
		t.Errorf("got %v, %+v", retried, rec)
	}
	once(t, th, "true")
	rec := get(t, th, in.ID)
	if rec.Status != Processed || rec.RetryCount != 5 || len(rec.Receipts) != 6 || rec.Receipts[5].Attempt != 6 {
		t.Errorf("got %+v", rec)
	}
	r := &relay{settings: DefaultSettings()}
	for n := int64(1); n < 100; n++ {
		if d := r.backoff(n); d > 5*time.Minute || d < min(time.Second<<min(n-1, 20), 4*time.Minute) {
			t.Errorf("wait %d is %v", n, d)
		}
	}
}

// O-07: exit code 75 counts nothing, and neither does a handler that is missing.
func TestNothingIsCounted(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	in := insert(t, th, reply(1))
	for _, handler := range []string{"exit 75", ""} {
		for range 8 {
			once(t, th, handler)
			c.move(10 * time.Minute)
		}
		if rec := get(t, th, in.ID); rec.Status != Pending || rec.RetryCount != 0 || rec.Error == nil {
			t.Errorf("%q: got %+v", handler, rec)
		}
	}
	_, err := Relay(ctx, th, Options{Command: []string{"/no/such/program"}})
	if rec := get(t, th, in.ID); !errors.Is(err, ErrCommand) || rec.RetryCount != 0 {
		t.Errorf("got %v, %+v", err, rec)
	}
	if sum := once(t, th, "true"); sum.Triggered != 1 {
		t.Errorf("got %+v", sum)
	}
}

// O-07: what fails holds up nothing, and a timeout ends a handler.
func TestTimeoutHoldsUpNothing(t *testing.T) {
	th := newThread(t)
	// Long enough for the good one on a busy host.
	set(t, th, func(s *Settings) { s.Timeout, s.Backoff = time.Second, time.Hour; s.MaxBackoff = time.Hour })
	stuck, good := insert(t, th, reply(1)), insert(t, th, reply(2))
	once(t, th, `case $(cat) in *'"comment_id":1,'*) exec sleep 600;; esac`)
	if rec := get(t, th, stuck.ID); rec.Status != Pending || !strings.Contains(*rec.Error, "timeout") {
		t.Errorf("got %+v", rec)
	}
	if rec := get(t, th, good.ID); rec.Status != Processed {
		t.Errorf("got %+v", rec)
	}
}

// O-12: what is counted, by type.
func TestStats(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	stats := func() (s Stats) {
		t.Helper()
		noError(t, th.View(ctx, func(tx *engine.Tx) (err error) { s, err = ReadStats(tx); return err }))
		return s
	}
	if s := stats(); s.Pending != 0 || s.OldestPending != nil {
		t.Errorf("an empty thread: %+v", s)
	}
	set(t, th, func(s *Settings) { s.MaxAttempts = 1 })
	insert(t, th, reply(1))
	once(t, th, "exit 1") // and its feedback
	c.move(time.Second)
	insert(t, th, reply(2))
	c.move(time.Minute)
	insert(t, th, like(3))
	s := stats()
	want := map[string]Counts{CommentReplied: {Pending: 1, Failed: 1}, LikeCreated: {Pending: 1}}
	if s.Pending != 2 || s.Failed != 1 || *s.OldestSeconds != 60 || fmt.Sprint(s.Types) != fmt.Sprint(want) {
		t.Errorf("got %+v", s)
	}
	if list := records(t, th, Query{Status: Failed}); len(list) != 1 || list[0].Status != Failed {
		t.Errorf("got %+v", list)
	}
	if list := records(t, th, Query{Status: Pending, Type: LikeCreated}); len(list) != 1 {
		t.Errorf("got %+v", list)
	}
}

// O-13: one notification per event and user, in the transaction that marks the event
// processed; listed, grouped by thread and read.
func TestNotifications(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	var ids []int64
	for i := range int64(4) {
		m := like(i)
		m.ThreadID, m.ContentPreview = NumberID(i%2), fmt.Sprint("text ", i)
		ids = append(ids, insert(t, th, m).ID)
		c.move(time.Second)
	}
	m := like(9)
	m.TargetUserID = TextID("70")
	insert(t, th, m)
	if list := notifications(t, th, "7"); len(list) != 0 {
		t.Errorf("before they are processed: %+v", list)
	}
	once(t, th, "")
	// Handed on again, because progress was moved back, it is the same notification.
	noError(t, th.Seek(ctx, Consumer, 0))
	once(t, th, "")
	list := notifications(t, th, "7")
	if len(list) != 4 || list[0].ID != ids[3] || list[0].Preview != "text 3" || list[0].ReadAt != nil || list[0].EventID == "" || list[0].User != "7" {
		t.Fatalf("got %+v", list)
	}
	noError(t, th.Update(ctx, func(tx *engine.Tx) error {
		for i, want := range []bool{true, false} {
			found, changed, err := MarkRead(tx, ids[3])
			if !found || changed != want || err != nil {
				t.Errorf("read %d: %v, %v, %v", i, found, changed, err)
			}
		}
		found, _, err := MarkRead(tx, 4711)
		if found {
			t.Error("there is no such notification")
		}
		return err
	}))
	noError(t, th.View(ctx, func(tx *engine.Tx) error {
		unread, err := Notifications(tx, "7", true, 2)
		if len(unread) != 2 || unread[0].ID != ids[2] {
			t.Errorf("got %+v", unread)
		}
		return err
	}))
	groups := ByThread(notifications(t, th, "7"))
	if len(groups) != 2 || groups[0].ThreadID.String() != "1" || groups[0].Count != 2 || groups[0].Unread != 1 || groups[1].Unread != 2 || groups[0].Latest.ID != ids[3] {
		t.Errorf("got %+v", groups)
	}
	if list := notifications(t, th, "70"); len(list) != 1 {
		t.Errorf("got %+v", list)
	}
}

// recorder is a Recorder that remembers.
type recorder struct {
	begun []Run
	ended []RunEnd
	fail  error

	cancel bool // each run at once
}

func (r *recorder) Begin(ctx context.Context, run Run) (context.Context, string, error) {
	if r.fail != nil {
		return ctx, "", r.fail
	}
	if r.cancel {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	}
	run.Message = nil
	r.begun = append(r.begun, run)
	return ctx, fmt.Sprint("run_", len(r.begun)), nil
}

func (r *recorder) End(_ context.Context, id string, e RunEnd) error {
	if id != fmt.Sprint("run_", len(r.ended)+1) {
		return fmt.Errorf("unknown run %s", id)
	}
	r.ended = append(r.ended, e)
	return nil
}

func (r *recorder) Left(_ context.Context, o Run) string {
	if o.TriggerRef != "evt_left" || o.Initiator != "12" || o.Attempt != 1 {
		return ""
	}
	return "run_left"
}

// O-14, O-15: only what triggers is a run, whose id is the receipt's; it and the
// receipt have the trace.
func TestRuns(t *testing.T) {
	c := newClock()
	th := newThread(t, engine.WithClock(c.Now))
	m := reply(1)
	m.TraceID, m.EventID = "trc_x", "evt_x"
	in := insert(t, th, m)
	insert(t, th, like(1))
	insert(t, th, Message{EventType: ThreadCreated, ThreadID: NumberID(5)})
	rec := &recorder{}
	var log []string
	relayOnce := func() (Summary, error) {
		return Relay(ctx, th, Options{Recorder: rec, Command: []string{"sh", "-c", `echo "$THREAD_RUN_ID"; echo '{"status":"accepted","run_id":"own"}'`},
			Log: func(_ bool, format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }})
	}
	rec.fail = errors.New("disk full")
	if _, err := relayOnce(); err != nil {
		t.Fatal(err)
	}
	if got := get(t, th, in.ID); got.Status != Pending || got.RetryCount != 0 || *got.Error != "its run could not be started: disk full" {
		t.Errorf("a run that cannot be recorded: %+v", got)
	}
	rec.fail = nil
	c.move(time.Minute)
	if _, err := relayOnce(); err != nil {
		t.Fatal(err)
	}
	want := Run{TriggerType: "message", TriggerRef: "evt_x", Initiator: "12", TraceID: "trc_x", Traceparent: m.traceparent(), RequestID: "trc_x", ThreadID: "101", Agent: "5", Attempt: 1}
	if len(rec.begun) != 1 || fmt.Sprint(rec.begun[0]) != fmt.Sprint(want) || len(rec.ended) != 1 || !strings.HasPrefix(string(rec.ended[0].Output), "run_1\n") || rec.ended[0].Receipt.Status != Accepted {
		t.Fatalf("got %+v, %+v", rec.begun, rec.ended)
	}
	got := get(t, th, in.ID)
	if *got.RunID != "run_1" || *got.Receipts[0].RunID != "run_1" || *got.Receipts[0].ExternalRunID != "own" || *rec.ended[0].ExternalRunID != "own" || got.Receipts[0].TraceID != "trc_x" {
		t.Errorf("got %+v", got)
	}
	// One that is cancelled has failed for good.
	rec.cancel = true
	in = insert(t, th, reply(2))
	if _, err := Relay(ctx, th, Options{Recorder: rec, Command: []string{"sh", "-c", "exec sleep 600"}}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, th, in.ID); got.Status != Failed || !rec.ended[1].Cancelled || rec.ended[1].TimedOut {
		t.Errorf("a run that is cancelled: %+v, %+v", got, rec.ended[1])
	}
	if all := strings.Join(log, "\n"); !strings.Contains(all, "trace_id=trc_x") || !strings.Contains(all, "run_id=run_1") {
		t.Errorf("the log: %s", all)
	}
}

// O-04: who polls finds a new thread among the events of the thread.
func TestBroadcastIsPolled(t *testing.T) {
	th := newThread(t)
	insert(t, th, like(1))
	in := insert(t, th, Message{EventType: ThreadCreated, ThreadID: NumberID(5)})
	if sum := once(t, th, "exit 1"); sum.Processed != 2 || sum.Triggered != 0 || sum.Notifications != 1 {
		t.Errorf("got %+v", sum)
	}
	noError(t, th.Subscribe(ctx, engine.Subscription{Consumer: "poller", Handler: "true", Filter: event.Text("source = 'outbox' AND type = 'thread.created'")}))
	page, err := th.Pop(ctx, "poller", engine.PopQuery{Limit: 10})
	noError(t, err)
	var ids []int64
	for e, err := range page.Events {
		noError(t, err)
		ids = append(ids, e.ID)
	}
	if !slices.Equal(ids, []int64{in.ID}) {
		t.Errorf("got %v, want %d", ids, in.ID)
	}
}

// O-07: two relays never handle one record: the second is refused while the first
// one lives.
func TestTwoRelays(t *testing.T) {
	th := newThread(t)
	const n = 12
	for i := range int64(n) {
		insert(t, th, reply(i))
	}
	dir := t.TempDir()
	handler := []string{"sh", "-c", `mkdir "` + dir + `/$THREAD_OUTBOX_EVENT_ID"`} // which fails for the second one
	var wg sync.WaitGroup
	var refused, triggered int64
	var mu sync.Mutex
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			own, err := engine.Open(th.Dir())
			if err != nil {
				t.Error(err)
				return
			}
			for done := false; !done; {
				sum, err := Relay(ctx, own, Options{Command: handler})
				mu.Lock()
				triggered += sum.Triggered
				if errors.Is(err, ErrRelaying) {
					refused++
					time.Sleep(time.Millisecond) // leave the processor to who relays
				} else if err != nil || sum.Failures > 0 {
					t.Errorf("got %+v, %v", sum, err)
				}
				done = triggered >= n || t.Failed()
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if triggered != n {
		t.Errorf("%d were handled, want %d", triggered, n)
	}
	t.Logf("%d calls were refused", refused)
}

// O-10: a relay that follows looks once a second, is woken by an insert before that, and
// ends with its context.
func TestFollow(t *testing.T) {
	if PollInterval != time.Second {
		t.Errorf("it looks every %v", PollInterval)
	}
	th := newThread(t)
	noError(t, th.Update(ctx, Subscribe))
	run, stop := context.WithCancel(ctx)
	handled := make(chan string, 8)
	ended := make(chan error)
	go func() {
		_, err := Relay(run, th, Options{Mode: Follow, Log: func(_ bool, format string, args ...any) { handled <- fmt.Sprintf(format, args...) }})
		ended <- err
	}()
	for i := range int64(3) {
		in := insert(t, th, like(i))
		if line := <-handled; !strings.Contains(line, in.EventID) {
			t.Errorf("got %s, want %s", line, in.EventID)
		}
	}
	stop()
	noError(t, <-ended)
}

// An event that is only called an outbox record is refused, and holds up nothing.
func TestForeignEvent(t *testing.T) {
	th := newThread(t)
	noError(t, th.Update(ctx, Subscribe))
	for _, content := range []string{example, "x"} {
		_, err := th.Push(ctx, event.Draft{Source: Source, Type: "t", Content: content})
		noError(t, err)
	}
	in := insert(t, th, like(1))
	once(t, th, "exit 1")
	var dead []int64
	for l, err := range th.DeadLetters(ctx, engine.DeadLetterQuery{Consumer: Consumer}) {
		noError(t, err)
		dead = append(dead, l.Event.ID)
	}
	if !slices.Equal(dead, []int64{1, 2}) || get(t, th, in.ID).Status != Processed {
		t.Errorf("dead letters %v", dead)
	}
}

// O-13, O-14: messages that start nothing are settled together, each with its notification,
// up to the next one that runs the handler.
func TestQuietTogether(t *testing.T) {
	defer func() { reached = func(string) {} }()
	th := newThread(t)
	const quiet = 230
	noError(t, th.Update(ctx, func(tx *engine.Tx) error {
		for n := range int64(quiet) {
			if _, err := Insert(tx, like(n+1)); err != nil {
				return err
			}
		}
		return nil
	}))
	commits := 0
	reached = func(place string) {
		if place == "stored" {
			commits++
		}
	}
	sum, err := Relay(ctx, th, Options{})
	noError(t, err)
	if sum.Processed != quiet || sum.Notifications != quiet || sum.Triggered != 0 {
		t.Errorf("got %+v", sum)
	}
	if commits > quiet/4 {
		t.Errorf("%d messages took %d commits", quiet, commits)
	}
	for _, rec := range records(t, th, Query{}) {
		if rec.Status != Processed {
			t.Fatalf("got %+v", rec)
		}
	}
}
