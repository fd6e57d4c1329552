package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/lock"
)

// leave writes what a supervisor leaves of a run.
func leave(t *testing.T, h *History, f handlerFile) string {
	t.Helper()
	b, err := json.Marshal(f)
	ok(t, err)
	return leaveText(t, h, f, string(b))
}

func leaveText(t *testing.T, h *History, f handlerFile, text string) string {
	t.Helper()
	dir := filepath.Join(h.parent, "logs", "runs")
	ok(t, os.MkdirAll(dir, 0o700))
	ending := ".failed"
	if f.Status == Completed {
		ending = ".ok"
	}
	path := filepath.Join(dir, fmt.Sprintf("%015d-%s%s", f.EndedAt.UnixMilli(), f.RunID, ending))
	ok(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func ended(id string, at time.Time, status string) handlerFile {
	f := handlerFile{RunID: id, Consumer: "mail", Handler: "./work.sh", Status: status, Exit: "exit 0", StartedAt: at.Add(-time.Second), EndedAt: at,
		EventID: 42, Source: "external:mail", AckedFrom: 41, AckedTo: 42, Output: "one\nit is broken\n", OutputBytes: 17}
	if status != Completed {
		three := int64(3)
		f.Exit, f.ExitCode = "exit 3", &three
	}
	return f
}

// TestHandlerRun is H-23: the run of a handler is triggered by a message, its event, and
// its initiator is the event's source.
func TestHandlerRun(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	if n := one[int64](t)(h.TakeRuns(ctx)); n != 0 {
		t.Fatalf("took %d of none", n)
	}
	if _, err := os.Stat(h.Dir()); err == nil {
		t.Fatal("a history was made for nothing")
	}
	leave(t, h, ended("r1", c.Now(), Failed))
	leave(t, h, ended("r2", c.Now().Add(time.Millisecond), Completed))
	h = reopen(t, h.parent, WithClock(c.Now)) // which takes them
	row := RunRow{}
	ok(t, h.Get(ctx, &row, "r1"))
	want := `{"id":"r1","workspace_id":null,"session_id":null,"parent_run_id":null,"trigger_type":"message","trigger_ref":"42","initiator_ref":"external:mail",` +
		`"agent_name":"mail","effective_agent_name":"mail","switch_count":0,"status":"failed","cancel_requested_at":null,"started_at":"2026-03-18T09:59:59.000Z",` +
		`"ended_at":"2026-03-18T10:00:00.000Z","heartbeat_at":null,"error_code":"exit","error_message":"exit 3: it is broken",` +
		`"metadata":{"handler":{"exit":"exit 3","exit_code":3,"acked_from":41,"acked_to":42}},"created_at":"2026-03-18T09:59:59.000Z","attempt":1,"supervised":null,"beat_every_ms":null}`
	if text(&row) != want {
		t.Errorf("%s\nwant\n%s", text(&row), want)
	}
	if out := one[CommandOutput](t)(h.Command(ctx, "r1")); out.Output != "one\nit is broken\n" || *out.ExitCode != 3 || out.Truncated {
		t.Errorf("%+v", out)
	}
	for q, want := range map[HandlerQuery]string{{}: "r2 r1 ", {Oldest: true}: "r1 r2 ", {Failed: true}: "r1 ", {Consumer: "mail"}: "r2 r1 ",
		{Consumer: "mail", Failed: true}: "r1 ", {Consumer: "other"}: "", {Limit: 1}: "r2 "} {
		if got := ids(t, h.HandlerRuns(ctx, q)); got != want {
			t.Errorf("%+v: %q, want %q", q, got, want)
		}
	}
	// One commit for both: two runs, two steps, and the workspace.
	if n := one[int64](t)(h.Head(ctx)); n != 5 {
		t.Errorf("%d history events", n)
	}
	if left, _ := filepath.Glob(filepath.Join(h.parent, "logs", "runs", "*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	rebuilt(t, h)
}

// A run that is left twice, as after a kill between the commit and the removal of its
// file, is there once; what is damaged is passed over, and holds up nothing.
func TestHandlerRunTakenOnce(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	f := ended("r1", c.Now(), Failed)
	path := leave(t, h, f)
	reached = func(string) { panic("killed") }
	func() {
		defer func() { _ = recover() }()
		_, _ = h.TakeRuns(ctx)
	}()
	reached = func(string) {}
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	second := f
	second.EndedAt, second.Status, second.Exit = f.EndedAt.Add(time.Second), Completed, "exit unknown"
	leave(t, h, second)
	for i, text := range []string{"", "{", "null", `{"run_id":"x"}`, strings.Repeat("x", 100), `{"run_id":"` + strings.Repeat("x", 2000) + `","consumer":"c"}`} {
		leaveText(t, h, ended(fmt.Sprint("bad", i), c.Now(), Failed), text)
	}
	leaveText(t, h, ended("r3", c.Now(), Failed), `{"run_id":"r3","consumer":"c","status":"strange","source":"`+strings.Repeat("é", 2000)+`"}`)
	before := one[int64](t)(h.Head(ctx))
	if n := one[int64](t)(h.TakeRuns(ctx)); n != 1 {
		t.Errorf("took %d", n)
	}
	if got := ids(t, h.HandlerRuns(ctx, HandlerQuery{Oldest: true})); got != "r1 r3 " || one[int64](t)(h.Head(ctx)) != before+2 {
		t.Errorf("%q, %d history events after %d", got, one[int64](t)(h.Head(ctx)), before)
	}
	if left, _ := filepath.Glob(filepath.Join(h.parent, "logs", "runs", "*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	rebuilt(t, h)
}

// TestRunRetention is H-24: only runs of handlers have a retention, of a day, or of a
// week when they failed, and those to which more was added stay.
func TestRunRetention(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	if r := one[RunRetention](t)(h.RunRetention(ctx)); r != DefaultRunRetention || r.OK != 24*time.Hour || r.Failed != 168*time.Hour {
		t.Fatalf("%+v", r)
	}
	other := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "agent"}))
	ok(t, other.End(ctx, End{Status: Completed}))
	leave(t, h, ended("ok", c.Now(), Completed))
	leave(t, h, ended("more", c.Now(), Completed))
	leave(t, h, ended("failed", c.Now(), Failed))
	one[int64](t)(h.TakeRuns(ctx))
	ok(t, h.Put(ctx, &ArtifactRow{RunID: "more", Path: "p"}))
	runs := func(after time.Duration, want string) {
		t.Helper()
		c.add(after)
		leave(t, h, ended(fmt.Sprint("at", after), c.Now(), Failed))
		one[int64](t)(h.TakeRuns(ctx))
		got := ""
		for _, id := range []string{"agent", "ok", "more", "failed"} {
			if h.Get(ctx, &RunRow{}, id) == nil {
				got += id + " "
			}
		}
		if got != want {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
		rebuilt(t, h)
	}
	runs(24*time.Hour, "agent ok more failed ")
	runs(time.Second, "agent more failed ")
	runs(6*24*time.Hour-time.Second, "agent more failed ")
	runs(time.Second, "agent more ")
	ok(t, h.SetRunRetention(ctx, RunRetention{Off: true, OK: time.Hour, Failed: 2 * time.Hour}))
	if r := one[RunRetention](t)(h.RunRetention(ctx)); r != (RunRetention{Off: true, OK: time.Hour, Failed: 2 * time.Hour}) {
		t.Errorf("%+v", r)
	}
	if err := h.SetRunRetention(ctx, RunRetention{}); err == nil {
		t.Error("a retention of nothing was taken")
	}
}

// The history events of runs that were let go go too, as far as no other rows come
// before them.
func TestHandlerEventsPruned(t *testing.T) {
	defer func(n int) { pruneEvents = n }(pruneEvents)
	pruneEvents = 100
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	first := func() int64 {
		th := one[*engine.Thread](t)(h.Thread())
		for e, err := range th.Events(ctx, engine.Query{}) {
			ok(t, err)
			return e.ID
		}
		return 0
	}
	id := 0
	round := func() {
		for range pruneEvents / 2 {
			id++
			f := ended(fmt.Sprintf("%032x", id), c.Now(), Failed)
			f.Output = ""
			leave(t, h, f)
		}
		one[int64](t)(h.TakeRuns(ctx))
	}
	round()
	if first() != 1 {
		t.Fatalf("the first is %d", first())
	}
	c.add(8 * 24 * time.Hour)
	round() // lets the runs of the first go, and their events
	kept := first()
	if kept <= int64(pruneEvents) {
		t.Errorf("the first is %d", kept)
	}
	if n := len(all(t, h.HandlerRuns(ctx, HandlerQuery{}))); n != pruneEvents/2 {
		t.Errorf("%d runs are left", n)
	}
	rebuilt(t, h)
}

// In a history that others write, too, their events between the events of handlers go with
// them and their rows stay, unchanged and in their order; where most events are of
// others, all of them stay.
func TestMixedEventsPruned(t *testing.T) {
	defer func(n int) { pruneEvents = n }(pruneEvents)
	pruneEvents = 12
	const rounds = 4
	for _, tt := range []struct {
		agents int // runs of agents in each round, of three events each
		pruned bool
	}{{1, true}, {8, false}} {
		t.Run(fmt.Sprint(tt.agents), func(t *testing.T) {
			c := newClock()
			h := inbox(t, WithClock(c.Now))
			session(t, h, "S")
			id, most := 0, 0
			var rows string
			said := map[string]Record{} // what the audit says of the runs of agents, which no pruning changes
			for round := range rounds {
				for i := range tt.agents {
					r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: fmt.Sprintf("a%d-%03d", round, i), SessionID: "S"}))
					ok(t, r.End(ctx, End{Status: Completed}))
				}
				ok(t, h.Put(ctx, &MessageRow{ID: fmt.Sprint("m", round), SessionID: "S", Role: "user", Content: raw(`"x"`)}))
				for range pruneEvents {
					id++
					f := ended(fmt.Sprintf("%032x", id), c.Now(), Failed)
					f.Output = ""
					leave(t, h, f)
				}
				one[int64](t)(h.TakeRuns(ctx))
				most = max(most, len(all(t, h.Changes(ctx, 0, ""))))
				for _, r := range all(t, h.Audit(ctx, "triggers", time.Time{})) {
					if was, known := said[r.RunID]; known && !reflect.DeepEqual(r, was) {
						t.Errorf("%+v, and was %+v", r, was)
					} else if r.SessionID == "S" {
						said[r.RunID] = r
					}
				}
				c.add(8 * 24 * time.Hour)
			}
			for i := range rounds * tt.agents {
				rows += fmt.Sprintf("a%d-%03d ", i/tt.agents, i%tt.agents)
			}
			if got := ids(t, h.Runs(ctx, Query{Session: "S", Oldest: true})); got != rows {
				t.Errorf("runs %q, want %q", got, rows)
			}
			if len(said) != rounds*tt.agents || len(all(t, h.Audit(ctx, "triggers", time.Time{}))) != len(said)+pruneEvents {
				t.Errorf("the audit tells of %d runs of agents", len(said))
			}
			if got := ids(t, h.Messages(ctx, Query{Session: "S"})); got != "m0 m1 m2 m3 " {
				t.Errorf("messages %q", got)
			}
			if n := len(all(t, h.HandlerRuns(ctx, HandlerQuery{}))); n != pruneEvents {
				t.Errorf("%d runs of handlers", n)
			}
			kept, replaced := 0, 0
			for _, c := range all(t, h.Changes(ctx, 0, "source = 'session:S'")) {
				if kept++; c.Op == OpReplace {
					replaced++
				}
			}
			// Two rounds of what handlers leave, and what else there is.
			if bound := 2*4*pruneEvents + rounds*(3*tt.agents+1) + 2; tt.pruned && (most > bound || replaced == 0) {
				t.Errorf("%d history events at once, want at most %d; %d rows were written again", most, bound, replaced)
			}
			if want := 1 + rounds*(3*tt.agents+1); !tt.pruned && (kept != want || replaced != 0) {
				t.Errorf("%d history events of the session, want %d; %d rows were written again", kept, want, replaced)
			}
			rebuilt(t, h)
		})
	}
}

// A handler that says more about its run begins the row; while its supervisor has the
// record, recovery leaves it alone, and the end comes as any other run's.
func TestHandlerSaysMore(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	dir := filepath.Join(h.parent, "logs", "handlers")
	ok(t, os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, lock.Name("mail")+".run")
	ok(t, os.WriteFile(path, []byte(`{"run_id":"r1"}`), 0o600))
	ok(t, os.MkdirAll(filepath.Join(h.parent, "run"), 0o700))
	l := one[*lock.File](t)(lock.Try(filepath.Join(h.parent, "run", lock.Name("mail")+".busy"), lock.Exclusive))
	r := h.AttachHandler("r1", "mail")
	for range 2 {
		one[StepRow](t)(r.Step(ctx, ModelCall{Request: raw(`{}`), Response: raw(`{}`)}.Row()))
	}
	ok(t, os.RemoveAll(filepath.Join(h.Dir(), "run", ".beat")))
	for range 3 {
		c.add(time.Hour)
		if got := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(got) != 0 {
			t.Fatalf("recovered %+v", got)
		}
	}
	leave(t, h, ended("r1", c.Now(), Completed))
	l.Close()
	one[int64](t)(h.TakeRuns(ctx))
	var row RunRow
	ok(t, h.Get(ctx, &row, "r1"))
	if row.Status != Completed || row.TriggerRef != "42" || row.AgentName != "mail" || len(all(t, h.Steps(ctx, "r1"))) != 3 {
		t.Errorf("%s", text(&row))
	}
	if _, err := r.Step(ctx, StepRow{StepType: "late"}); err == nil {
		t.Error("a step was added to a run that has ended")
	}
	// One whose supervisor is gone is recovered.
	one[StepRow](t)(h.AttachHandler("r2", "mail").Step(ctx, ModelCall{Status: Running, Request: raw(`{}`)}.Row()))
	c.add(time.Hour)
	if got := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(got) != 1 || got[0].ID != "r2" {
		t.Errorf("recovered %+v", got)
	}
	rebuilt(t, h)
}
