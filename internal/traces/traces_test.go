package traces

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"thread/engine"
	"thread/history"
	"thread/internal/spans"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recordRun records a run that has ended, with a step.
func recordRun(t *testing.T, h *history.History, row history.RunRow) {
	t.Helper()
	r, err := h.StartRun(t.Context(), row)
	ok(t, err)
	_, err = r.Step(t.Context(), history.StepRow{StepType: "plan", Name: row.ID, Status: history.Completed})
	ok(t, err)
	ok(t, r.End(t.Context(), history.End{Status: history.Completed}))
}

// TestFollow: what is recorded comes once, in one of two followers, and again after it could not be sent;
// what was recorded before does not come.
func TestFollow(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	_, err := engine.Init(dir)
	ok(t, err)
	h, err := history.Open(t.Context(), dir)
	ok(t, err)
	defer h.Close()
	recordRun(t, h, history.RunRow{ID: "before", TriggerType: "system", AgentName: "a"})

	var came []string
	down := errors.New("down")
	away := func(context.Context, []spans.Span) error { return down }
	take := func(_ context.Context, list []spans.Span) error {
		for _, s := range list {
			came = append(came, s.Name)
		}
		return nil
	}
	first, second := Follow(dir), Follow(dir)
	ok(t, first.Begin(t.Context()))
	const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
	recordRun(t, h, history.RunRow{ID: "one", TriggerType: "system", AgentName: "a", Metadata: json.RawMessage(`{"traceparent":"` + given + `01"}`)})
	recordRun(t, h, history.RunRow{ID: "quiet", TriggerType: "system", AgentName: "a", Metadata: json.RawMessage(`{"traceparent":"` + given + `00"}`)})
	if err := first.Look(t.Context(), away); !errors.Is(err, down) {
		t.Errorf("a look without an endpoint returned %v", err)
	}
	if err := second.Look(t.Context(), take); !errors.Is(err, ErrHeld) {
		t.Errorf("the second follower returned %v", err)
	}
	first.Close() // as a kill does
	ok(t, second.Look(t.Context(), take))
	if want := []string{"invoke_agent a", "plan one"}; !slices.Equal(came, want) {
		t.Errorf("%q came, want %q", came, want)
	}
	came = nil
	ok(t, second.Look(t.Context(), take))
	second.Close()
	third := Follow(dir)
	ok(t, third.Begin(t.Context()))
	ok(t, third.Look(t.Context(), take))
	if len(came) > 0 {
		t.Errorf("%q came again", came)
	}
	third.Close()
}

// TestFollowRests: a follower does not look where nothing was written, and looks after a
// commit, which leaves the database as it is and writes to its journal.
func TestFollowRests(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	_, err := engine.Init(dir)
	ok(t, err)
	h, err := history.Open(t.Context(), dir)
	ok(t, err)
	defer h.Close()
	recordRun(t, h, history.RunRow{ID: "before", TriggerType: "system", AgentName: "a"})
	f := Follow(dir)
	defer f.Close()
	ok(t, f.Begin(t.Context()))
	f.rests = 0 // a time tells each commit from the one before
	came := 0
	take := func(_ context.Context, list []spans.Span) error {
		came += len(list)
		return nil
	}
	ok(t, f.Look(t.Context(), take))
	if came != 0 {
		t.Errorf("%d spans came before anything was written", came)
	}
	recordRun(t, h, history.RunRow{ID: "after", TriggerType: "system", AgentName: "a"})
	ok(t, f.Look(t.Context(), take))
	if came != 2 {
		t.Errorf("%d spans came of a run with a step", came)
	}
}

// TestOf: a run that was started with the context of the run above is its child, and one with
// another context is a child of that.
func TestOf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	_, err := engine.Init(dir)
	ok(t, err)
	h, err := history.Open(t.Context(), dir)
	ok(t, err)
	defer h.Close()
	above, own := json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`), json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"}`)
	for _, row := range []history.RunRow{{ID: "root", Metadata: above}, {ID: "child", ParentRunID: "root", Metadata: above}, {ID: "bare", ParentRunID: "child"},
		{ID: "placed", ParentRunID: "root", Metadata: own}, {ID: "alone"}} {
		row.TriggerType, row.AgentName = "system", "a"
		recordRun(t, h, row)
	}
	for id, want := range map[string]string{"root": "b7ad6b7169203331", "child": spans.Run(dir, "root"), "bare": spans.Run(dir, "child"), "placed": "00f067aa0ba902b7", "alone": ""} {
		var row history.RunRow
		ok(t, h.Get(t.Context(), &row, id))
		c, parent, err := Of(t.Context(), h, dir, &row)
		ok(t, err)
		if parent != want || c.ID != spans.Run(dir, id) || (id == "alone") == (c.Trace == "0af7651916cd43dd8448eb211c80319c") {
			t.Errorf("run %s is %+v below %q, want %q", id, c, parent, want)
		}
	}
}
