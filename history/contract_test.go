package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What the lines of the contract say beyond the tests of each room.

// H-02: each role of the AI SDK is one, and the order of a session is the session of the
// writes, also where several come in one commit.
func TestRoles(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	want := ""
	ok(t, h.Update(ctx, func(tx *Tx) error {
		for i, role := range []string{"system", "user", "assistant", "tool"} {
			content := `"x"`
			if role == "tool" {
				content = `[{"type":"tool-result","toolCallId":"1","toolName":"sh","output":{"type":"text","value":"y"}}]`
			}
			// An id that would sort the other way round, and a clock that goes back.
			m := MessageRow{ID: fmt.Sprint(9 - i), SessionID: "S", Role: role, Content: raw(content), CreatedAt: time.Unix(int64(9-i), 0)}
			if err := tx.Put(&m); err != nil {
				return err
			}
			want += m.ID + " "
		}
		return nil
	}))
	if got := ids(t, h.Messages(ctx, Query{Session: "S"})); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	rebuilt(t, h)
}

// H-03, H-25: the four objects of a model_call have all members of the documents, and
// whatever is in them comes back byte for byte.
func TestModelCallMembers(t *testing.T) {
	h := inbox(t)
	r := one[*Run](t)(h.StartRun(ctx, RunRow{}))
	members := [4][]string{
		{"model", "canonicalModelRef", "provider", "temperature", "maxTokens", "messages"},
		{"messageCount", "activeToolNames", "runtimeTools", "toolServers"},
		{"text", "content", "reasoning", "toolCalls", "toolResults", "usage", "finishReason", "providerMetadata"},
		{"toolCallsCount", "toolResultsCount"},
	}
	value := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) string { b, _ := json.Marshal(s); return string(b) }),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`),
		rapid.SampledFrom([]string{"null", "true", "[]", "{}", ` [ 1 , "<&>" ] `, `{"a":{"b":[{"type":"text","text":"\u003c"}]}}`, `[{"role":"user","content":"hi"}]`}))
	for seed := range 20 {
		var objects [4]string
		for i, names := range members {
			var parts []string
			for j, name := range names {
				parts = append(parts, fmt.Sprintf("%q:%s", name, value.Example(100*seed+10*i+j)))
			}
			objects[i] = "{" + strings.Join(parts, ",") + "}"
		}
		s := one[StepRow](t)(r.Step(ctx, ModelCall{Request: raw(objects[0]), RequestRuntime: raw(objects[1]), Response: raw(objects[2]), ResponseRuntime: raw(objects[3])}.Row()))
		var got StepRow
		ok(t, h.Get(ctx, &got, s.ID))
		if in, out := string(got.Input), string(got.Output); in != `{"request":`+objects[0]+`,"runtime":`+objects[1]+`}` || out != `{"response":`+objects[2]+`,"runtime":`+objects[3]+`}` {
			t.Fatalf("%s\n%s\nof %s", in, out, objects)
		}
	}
}

// H-04, H-09: the beat is 5 s, 50 ms at least; a run is gone after three, at the start of
// a worker after two and not before 30 s, which is the time of a lock.
func TestStaleAfter(t *testing.T) {
	for _, tt := range []struct {
		every, of, stale, start time.Duration
	}{
		{0, 0, 15 * time.Second, 30 * time.Second},
		{time.Millisecond, 0, 150 * time.Millisecond, 30 * time.Second},
		{20 * time.Second, 0, time.Minute, 40 * time.Second},
		{0, time.Minute, 3 * time.Minute, 2 * time.Minute}, // as the run itself has said
	} {
		row := RunRow{BeatEvery: tt.of.Milliseconds()}
		if got := (&RecoverOptions{Every: tt.every}).staleAfter(&row); got != tt.stale {
			t.Errorf("every %v, %v: gone after %v, want %v", tt.every, tt.of, got, tt.stale)
		}
		if got := (&RecoverOptions{Every: tt.every, Start: true}).staleAfter(&row); got != tt.start {
			t.Errorf("every %v, %v: gone at a start after %v, want %v", tt.every, tt.of, got, tt.start)
		}
	}
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R"}))
	c.add(30 * time.Second)
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{Start: true})); len(list) != 0 {
		t.Error("recovered at a start after 30 s")
	}
	c.add(time.Millisecond)
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{Start: true})); len(list) != 1 {
		t.Error("not recovered at a start after 30 s and a little")
	}
}

// H-09: by hand a run is queued again after it has failed or timed out, and only then.
func TestRequeueStates(t *testing.T) {
	h := inbox(t)
	for _, status := range runStates {
		row := RunRow{ID: "r_" + status, Status: status, Attempt: 3}
		ok(t, h.Put(ctx, &row))
		_, err := h.Requeue(ctx, row.ID)
		if may := status == Failed || status == TimedOut; may != (err == nil) || !may && !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", status, err)
		}
	}
	if _, err := h.Requeue(ctx, "none"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	rebuilt(t, h)
}

// H-10: all state next to the log is taken away, at any moment, and no run is lost, none
// given out twice and none before its turn.
func TestNoStateIsNeeded(t *testing.T) {
	h := inbox(t)
	for _, s := range []string{"a", "b"} {
		session(t, h, s)
		for i := range 3 {
			one[RunRow](t)(h.Enqueue(ctx, RunRow{ID: fmt.Sprint(s, i), SessionID: s}))
		}
	}
	var order []string
	lose := func() {
		t.Helper()
		ok(t, os.RemoveAll(filepath.Join(h.Dir(), "run")))
		if _, err := h.Rebuild(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for {
		lose()
		r, row, err := h.Claim(ctx)
		if errors.Is(err, ErrNoneReady) {
			break
		}
		ok(t, err)
		order = append(order, row.ID)
		lose()
		if _, err := h.StartRun(ctx, RunRow{SessionID: row.SessionID}); !errors.Is(err, ErrActive) {
			t.Errorf("two runs of a session: %v", err)
		}
		if len(order) == 2 { // its worker is lost too, and it is redelivered in its place
			ok(t, h.Update(ctx, func(tx *Tx) error {
				return tx.recover(&row, &RecoverOptions{Strategy: RequeueAll}, time.Minute)
			}))
			if err := r.End(ctx, End{Status: Completed}); !errors.Is(err, ErrRecovered) {
				t.Errorf("who has lost the turn goes on: %v", err)
			}
			continue
		}
		ok(t, r.End(ctx, End{Status: Completed}))
	}
	if want := []string{"a0", "a1", "a1", "a2", "b0", "b1", "b2"}; !sameRuns(order, want) {
		t.Errorf("%v, want the runs of %v", order, want)
	}
	for _, s := range []string{"a", "b"} {
		var of []string
		for _, id := range order {
			if strings.HasPrefix(id, s) {
				of = append(of, id)
			}
		}
		if !slices.IsSorted(of) {
			t.Errorf("session %s: %v", s, of)
		}
	}
}

func sameRuns(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// H-12: where the truth cannot be read or written, that is an error, and nothing is said
// to be stored.
func TestTruthIsDown(t *testing.T) {
	for name, damage := range map[string]func(db string) error{
		"cut":     func(db string) error { return os.Truncate(db, 100) },
		"no file": func(db string) error { return errors.Join(os.Remove(db), os.Mkdir(db, 0o700)) },
		"zeros":   func(db string) error { return os.WriteFile(db, make([]byte, 1<<16), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			h := inbox(t)
			session(t, h, "S")
			ok(t, h.Close())
			ok(t, damage(filepath.Join(h.Dir(), "events.db")))
			h, err := Open(ctx, h.parent)
			if err == nil {
				err = h.Put(ctx, &MessageRow{SessionID: "S", Role: "user", Content: raw(`"x"`)})
			}
			if err == nil {
				t.Error("a message was stored")
			}
			// The runs of handlers wait, and are not an error of the program that opens the history.
			h = &History{parent: h.parent, dir: h.dir, now: time.Now}
			leave(t, h, ended("r1", time.Now(), Failed))
			_, _ = h.TakeRuns(ctx)
			if left, _ := filepath.Glob(filepath.Join(h.parent, "logs", "runs", "*")); len(left) != 1 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// H-14: each question is answered with the run's own words: who, where, by what, and
// when it ended.
func TestAudit(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	session(t, h, "S")
	p := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "p", SessionID: "S", TriggerType: "message", TriggerRef: "42", AgentName: "coder"}))
	k := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "k", SessionID: "S", ParentRunID: "p", AgentName: "helper", InitiatorRef: "user:9"}))
	one[ToolCallRow](t)(p.ToolCall(ctx, ToolCallRow{ID: "t", SourceType: "skill", ToolName: "sh", DurationMS: 7}))
	one[HookRunRow](t)(p.HookRun(ctx, HookRunRow{HookName: "redact", EventName: "before", Patch: raw(`{"a":1}`)}))
	ok(t, p.Switch(ctx, "reviewer"))
	c.add(time.Minute)
	ok(t, k.End(ctx, End{Status: TimedOut, ErrorCode: "timeout"}))
	end := c.Now()
	c.add(time.Minute)
	ok(t, p.End(ctx, End{Status: Completed}))
	w := one[WorkspaceRow](t)(h.Workspace(ctx))
	for question, want := range map[string]string{
		"triggers":  "k system  by user:9 in S, p message 42 by user:S in S, ",
		"agents":    "k helper helper, p coder reviewer, ",
		"switches":  "p 1 coder reviewer, ",
		"subagents": "k of p, ",
		"tools":     "p t skill sh 7, ",
		"failures":  "k timed_out timeout " + end.Format(time.RFC3339) + ", ",
		"hooks":     `p redact before {"a":1}, `,
		"mirror":    fmt.Sprintf("%d, ", one[int64](t)(h.Head(ctx))),
	} {
		got := ""
		for rec, err := range h.Audit(ctx, question, time.Time{}) {
			ok(t, err)
			if rec.WorkspaceID != w.ID {
				t.Errorf("%s: workspace %q", question, rec.WorkspaceID)
			}
			switch question {
			case "triggers":
				got += fmt.Sprintf("%s %s %s by %s in %s", rec.RunID, rec.TriggerType, rec.TriggerRef, rec.SubjectRef, rec.SessionID)
			case "agents":
				got += fmt.Sprint(rec.RunID, " ", rec.AgentName, " ", rec.EffectiveAgentName)
			case "switches":
				got += fmt.Sprint(rec.RunID, " ", rec.SwitchCount, " ", rec.AgentName, " ", rec.EffectiveAgentName)
			case "subagents":
				got += fmt.Sprint(rec.RunID, " of ", rec.ParentRunID)
			case "tools":
				got += fmt.Sprint(rec.RunID, " ", rec.ToolCallID, " ", rec.SourceType, " ", rec.ToolName, " ", rec.DurationMS)
			case "failures":
				got += fmt.Sprint(rec.RunID, " ", rec.Status, " ", rec.ErrorCode, " ", rec.At.Format(time.RFC3339))
			case "hooks":
				got += fmt.Sprint(rec.RunID, " ", rec.HookName, " ", rec.EventName, " ", string(rec.Patch))
			case "mirror":
				got += fmt.Sprint(rec.HistoryEventID)
			}
			got += ", "
		}
		if got != want {
			t.Errorf("%s: %s, want %s", question, got, want)
		}
	}
	for _, err := range h.Audit(ctx, "weather", time.Time{}) {
		if !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	}
}

// H-24: what is written about a run defines and changes no message.
func TestAuditChangesNoMessage(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	r := one[*Run](t)(h.StartRun(ctx, RunRow{SessionID: "S"}))
	one[MessageRow](t)(r.Message(ctx, MessageRow{ID: "m", Role: "assistant", Content: raw(`[{"type":"tool-call","toolCallId":"1"}]`)}))
	messages := func() (text string) {
		for _, m := range all(t, h.Messages(ctx, Query{Session: "S"})) {
			b, err := appendRow(nil, &m, true)
			ok(t, err)
			text += string(b)
		}
		return text
	}
	before := messages()
	one[StepRow](t)(r.Step(ctx, ModelCall{Request: raw(`{"messages":[{"role":"user","content":"other"}]}`), Response: raw(`{"text":"said"}`)}.Row()))
	one[ToolCallRow](t)(r.ToolCall(ctx, ToolCallRow{ToolName: "sh", Response: raw(`{"role":"tool"}`)}))
	one[HookRunRow](t)(r.HookRun(ctx, HookRunRow{HookName: "h", Patch: raw(`{"content":"changed"}`)}))
	one[ActionRunRow](t)(r.ActionRun(ctx, ActionRunRow{ActionName: "a"}))
	one[ArtifactRow](t)(r.Artifact(ctx, ArtifactRow{Path: "p"}))
	ok(t, r.End(ctx, End{Status: Failed}))
	if after := messages(); after != before {
		t.Errorf("%s became %s", before, after)
	}
}
