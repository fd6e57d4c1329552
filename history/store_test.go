package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// TestHistoryEvents is H-06: every write of a row is one history event of its
// transaction, with the whole row; deleting a session deletes what hangs on it, in
// the order of the documents.
func TestHistoryEvents(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "R", SessionID: "S"}))
	one[MessageRow](t)(r.Message(ctx, MessageRow{ID: "M", Role: "user", Content: raw(`"hi"`)}))
	one[StepRow](t)(r.Step(ctx, StepRow{ID: "P", StepType: "x"}))
	one[ToolCallRow](t)(r.ToolCall(ctx, ToolCallRow{ID: "T", StepID: "P", ToolName: "sh"}))
	one[HookRunRow](t)(r.HookRun(ctx, HookRunRow{ID: "H", HookName: "h"}))
	one[ActionRunRow](t)(r.ActionRun(ctx, ActionRunRow{ID: "A", ActionName: "a"}))
	one[ArtifactRow](t)(r.Artifact(ctx, ArtifactRow{ID: "F", Type: "file"}))
	if err := h.DeleteSession(ctx, "S"); !errors.Is(err, ErrActive) {
		t.Error(err)
	}
	ok(t, r.End(ctx, End{Status: Completed}))
	ok(t, h.DeleteSession(ctx, "S"))
	var got []string
	for _, c := range all(t, h.Changes(ctx, 0, "")) {
		if c.Entity == Workspace {
			continue
		}
		if c.Session != "S" || (c.Row == nil) != (c.Op == OpDelete) {
			t.Errorf("%+v", c)
		}
		if c.Op != OpDelete {
			row := NewRow(c.Entity)
			if ok(t, ParseJSON(row, c.Row)); *idOf(row) != c.EntityID {
				t.Errorf("%+v", c)
			}
		}
		got = append(got, fmt.Sprintf("%s %s %s", c.Op, c.Entity, c.EntityID))
	}
	want := `upsert session S
upsert run R
upsert session S
upsert message M
upsert run_step P
upsert tool_call T
upsert hook_run H
upsert action_run A
upsert artifact F
upsert run R
delete artifact F
delete action_run A
delete hook_run H
delete tool_call T
delete run_step P
delete run R
delete message M
delete session S`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s", s)
	}
	// Subtypes are what a filter asks for.
	for filter, n := range map[string]int{
		"type = 'run' AND subtype = 'completed'": 1, "type = 'message' AND subtype = 'user'": 1, "subtype = 'deleted'": 8,
		"source = 'session:S'": 18, "source = 'workspace'": 1,
	} {
		if got := len(all(t, h.Changes(ctx, 0, filter))); got != n {
			t.Errorf("%s: %d", filter, got)
		}
	}
	if len(contents(t, h)) > 1000 {
		t.Errorf("left over: %s", contents(t, h))
	}
	rebuilt(t, h)
}

// TestQueries is H-01 and H-20: each index answers in its order.
func TestQueries(t *testing.T) {
	h := inbox(t)
	for _, s := range []SessionRow{{ID: "s1", SubjectRef: "u"}, {ID: "s2", SubjectRef: "v", WorkspaceID: "W"}, {ID: "s3", SubjectRef: "u", Status: "closed"}, {ID: "s4"}} {
		one[SessionRow](t)(h.StartSession(ctx, s))
	}
	if _, err := h.StartSession(ctx, SessionRow{ID: "s1"}); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	for _, r := range []RunRow{
		{ID: "r1", SessionID: "s1"}, {ID: "r2", SessionID: "s2"}, {ID: "r3", InitiatorRef: "u"}, {ID: "r4", SessionID: "s1", ParentRunID: "r1"},
	} {
		one[*Run](t)(h.StartRun(ctx, r))
	}
	ok(t, h.Attach("r3", 1).End(ctx, End{Status: Failed}))
	var s SessionRow
	ok(t, h.Get(ctx, &s, "s1"))
	ok(t, h.Put(ctx, &s)) // changed last
	for i := range 200 {
		r := h.Attach("r1", 1)
		one[MessageRow](t)(h.Attach("r4", 1).Message(ctx, MessageRow{ID: fmt.Sprintf("m%03d", i), Role: "user", Content: raw(`""`)}))
		if i < 3 {
			one[ToolCallRow](t)(r.ToolCall(ctx, ToolCallRow{ID: fmt.Sprint("t", i), SourceType: "native", ToolName: []string{"sh", "cat", "sh"}[i]}))
			one[HookRunRow](t)(r.HookRun(ctx, HookRunRow{ID: fmt.Sprint("h", i), HookName: "h"}))
			one[ActionRunRow](t)(r.ActionRun(ctx, ActionRunRow{ID: fmt.Sprint("a", i), ActionName: "a"}))
			one[ArtifactRow](t)(r.Artifact(ctx, ArtifactRow{ID: fmt.Sprint("f", i)}))
			one[StepRow](t)(r.Step(ctx, StepRow{ID: fmt.Sprint("p", i), Seq: int64(9 - i), StepType: "x"}))
		}
	}
	for what, tt := range map[string][2]string{
		"sessions":      {ids(t, h.Sessions(ctx, Query{})), "s4 s3 s2 s1 "},
		"of a subject":  {ids(t, h.Sessions(ctx, Query{Subject: "u"})), "s3 s1 "},
		"of a status":   {ids(t, h.Sessions(ctx, Query{Status: "active"})), "s1 s2 s4 "}, // s1 and s2 had runs
		"elsewhere":     {ids(t, h.Sessions(ctx, Query{Workspace: "W"})), "s2 "},
		"runs":          {ids(t, h.Runs(ctx, Query{})), "r4 r3 r2 r1 "},
		"of a session":  {ids(t, h.Runs(ctx, Query{Session: "s1"})), "r4 r1 "},
		"of a user":     {ids(t, h.Runs(ctx, Query{Subject: "u"})), "r4 r3 r1 "},
		"failed":        {ids(t, h.Runs(ctx, Query{Status: Failed})), "r3 "},
		"running":       {ids(t, h.Runs(ctx, Query{Status: Running, Oldest: true})), "r1 r2 r4 "},
		"of a parent":   {ids(t, h.Runs(ctx, Query{Run: "r1"})), "r4 "},
		"in W":          {ids(t, h.Runs(ctx, Query{Workspace: "W"})), "r2 "},
		"both":          {ids(t, h.Runs(ctx, Query{Session: "s1", Status: Running, Limit: 1})), "r4 "},
		"active":        {ids(t, h.Runs(ctx, Query{Active: true})), "r4 r2 r1 "},
		"steps":         {ids(t, h.Steps(ctx, "r1")), "p2 p1 p0 "},
		"tools of run":  {ids(t, h.ToolCalls(ctx, Query{Run: "r1"})), "t0 t1 t2 "},
		"tools by name": {ids(t, h.ToolCalls(ctx, Query{Source: "native", Tool: "sh"})), "t2 t0 "},
		"hooks":         {ids(t, h.HookRuns(ctx, "r1")), "h0 h1 h2 "},
		"actions":       {ids(t, h.ActionRuns(ctx, "r1")), "a0 a1 a2 "},
		"artifacts":     {ids(t, h.Artifacts(ctx, "r1")), "f0 f1 f2 "},
		"last message":  {ids(t, h.Messages(ctx, Query{Session: "s1", Oldest: true, Limit: 2})), "m199 m198 "},
	} {
		if tt[0] != tt[1] {
			t.Errorf("%s: %q, want %q", what, tt[0], tt[1])
		}
	}
	for _, q := range []Query{{Session: "s1"}, {Run: "r4"}} {
		list := all(t, h.Messages(ctx, q))
		if len(list) != 200 || list[0].ID != "m000" || list[199].ID != "m199" {
			t.Errorf("%d messages", len(list))
		}
	}
	if err := second(first(h.Messages(ctx, Query{}))); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	one[WorkspaceRow](t)(h.SetWorkspace(ctx, "W", func(w *WorkspaceRow) { w.RootPath, w.ExternalRef, w.Kind = "/w", "ext", "chat" }))
	for _, q := range []WorkspaceQuery{{RootPath: "/w"}, {ExternalRef: "ext"}} {
		if s := ids(t, h.Workspaces(ctx, q)); s != "W " {
			t.Errorf("%+v: %q", q, s)
		}
	}
	if n := len(all(t, h.Workspaces(ctx, WorkspaceQuery{Status: "active"}))); n != 2 {
		t.Errorf("%d workspaces", n)
	}
	rebuilt(t, h)
}

func first[T any](seq func(func(T, error) bool)) (v T, err error) {
	for v, err = range seq {
		break
	}
	return v, err
}

// TestCopiedDirectory is H-15: a copy is another workspace, with a new id and the same
// rows; a directory that was moved, or restored in its place, keeps its id.
func TestCopiedDirectory(t *testing.T) {
	base := t.TempDir()
	h := openIn(t, base)
	session(t, h, "S")
	id := one[WorkspaceRow](t)(h.Workspace(ctx)).ID
	at := func(name string) WorkspaceRow {
		t.Helper()
		h := reopen(t, filepath.Join(base, name))
		if s := ids(t, h.Sessions(ctx, Query{})); s != "S " {
			t.Errorf("%s: %q", name, s)
		}
		rebuilt(t, h)
		w := one[WorkspaceRow](t)(h.Workspace(ctx))
		for _, q := range []WorkspaceQuery{{}, {RootPath: w.RootPath}} {
			if s := ids(t, h.Workspaces(ctx, q)); s != w.ID+" " {
				t.Errorf("%s: the index has %q, want %q", name, s, w.ID)
			}
		}
		if again := one[WorkspaceRow](t)(reopen(t, filepath.Join(base, name)).Workspace(ctx)); again.ID != w.ID || !again.Own {
			t.Errorf("%s is bound twice: %s, %s", name, text(&w), text(&again))
		}
		if root, _ := filepath.EvalSymlinks(filepath.Join(base, name)); w.RootPath != root {
			t.Errorf("%s", text(&w))
		}
		return w
	}
	cp := func(from, to string) {
		t.Helper()
		if out, err := exec.Command("cp", "-a", filepath.Join(base, from), filepath.Join(base, to)).CombinedOutput(); err != nil {
			t.Fatalf("%s", out)
		}
	}
	if w := at("inbox"); w.ID != id {
		t.Errorf("%s", text(&w))
	}
	cp("inbox", "copy")
	if w := at("copy"); w.ID == id || w.ID == "" {
		t.Errorf("a copy is the same workspace: %s", text(&w))
	}
	ok(t, os.Rename(filepath.Join(base, "inbox"), filepath.Join(base, "moved")))
	if w := at("moved"); w.ID != id {
		t.Errorf("a move made another workspace: %s", text(&w))
	}
	cp("moved", "backup")
	ok(t, os.RemoveAll(filepath.Join(base, "moved")))
	ok(t, os.Rename(filepath.Join(base, "backup"), filepath.Join(base, "moved")))
	if w := at("moved"); w.ID != id {
		t.Errorf("a restore made another workspace: %s", text(&w))
	}
}

// TestTwins is H-15: of a directory that was renamed, and its copy at the old path, each has
// an id, whichever is opened first. What was put aside for a restored one takes nothing.
func TestTwins(t *testing.T) {
	for _, order := range [][]string{{"inbox", "renamed"}, {"renamed", "inbox"}} {
		base := t.TempDir()
		h := openIn(t, base)
		session(t, h, "S")
		id := one[WorkspaceRow](t)(h.Workspace(ctx)).ID
		at := func(name string) string {
			t.Helper()
			return one[WorkspaceRow](t)(reopen(t, filepath.Join(base, name)).Workspace(ctx)).ID
		}
		sh := func(script string) {
			t.Helper()
			cmd := exec.Command("sh", "-ec", script)
			cmd.Dir = base
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s", out)
			}
		}
		sh("tar cf t.tar inbox; mv inbox renamed")
		if order[0] == "renamed" {
			at("renamed") // it notes its place before the other is there
		}
		sh("tar xf t.tar")
		first, second := at(order[0]), at(order[1])
		if first == second || first != id && second != id || first == "" || second == "" {
			t.Errorf("%v: %s and %s, were %s", order, first, second, id)
		}
		if again := []string{at(order[0]), at(order[1])}; again[0] != first || again[1] != second {
			t.Errorf("%v: %s became %s, %s became %s", order, first, again[0], second, again[1])
		}
	}
	base := t.TempDir()
	session(t, openIn(t, base), "S")
	inbox := filepath.Join(base, "inbox")
	id := one[WorkspaceRow](t)(reopen(t, inbox).Workspace(ctx)).ID
	ok(t, os.Rename(inbox, inbox+".damaged"))
	if out, err := exec.Command("cp", "-a", inbox+".damaged", inbox).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	if w := one[WorkspaceRow](t)(reopen(t, inbox).Workspace(ctx)); w.ID != id {
		t.Errorf("what was restored in its place became %s", text(&w))
	}
}

// TestChatStore is H-19: the store of a chat workspace is not below its root.
func TestChatStore(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	chat := func(id, root string) (WorkspaceRow, error) {
		return h.SetWorkspace(ctx, id, func(w *WorkspaceRow) {
			if w.Kind = "chat"; root != "" {
				w.RootPath = root
			}
		})
	}
	if w := one[WorkspaceRow](t)(chat("", "")); w.RootPath != "" || w.Kind != "chat" {
		t.Errorf("the directory itself: %s", text(&w))
	}
	for _, root := range []string{filepath.Dir(h.parent), h.parent, "/"} {
		if w, err := chat("W", root); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %s, %v", root, text(&w), err)
		}
	}
	for _, root := range []string{h.parent + "-work", filepath.Join(h.parent, "below"), ""} {
		one[WorkspaceRow](t)(chat("W", root))
	}
}

// TestWorkspaceQueries is H-01: what belongs to a workspace, the directory's own too, and
// the runs that were silent for the longest time.
func TestWorkspaceQueries(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	session(t, h, "S")
	own := one[WorkspaceRow](t)(h.Workspace(ctx)).ID
	one[WorkspaceRow](t)(h.SetWorkspace(ctx, "W", func(*WorkspaceRow) {}))
	one[SessionRow](t)(h.StartSession(ctx, SessionRow{ID: "T", WorkspaceID: "W"}))
	for _, r := range []RunRow{{ID: "a", SessionID: "S"}, {ID: "b", SessionID: "T"}, {ID: "c", WorkspaceID: "W"}} {
		run := one[*Run](t)(h.StartRun(ctx, r))
		one[ToolCallRow](t)(run.ToolCall(ctx, ToolCallRow{ID: "t" + r.ID, SourceType: "skill", ToolName: "sh"}))
		c.add(time.Second)
	}
	ok(t, h.Attach("a", 1).BeatOnce(ctx))
	for want, got := range map[string]string{
		"a ":        ids(t, h.Runs(ctx, Query{Workspace: own})),
		"c b ":      ids(t, h.Runs(ctx, Query{Workspace: "W"})),
		"S ":        ids(t, h.Sessions(ctx, Query{Workspace: own})),
		"T ":        ids(t, h.Sessions(ctx, Query{Workspace: "W"})),
		"tc tb ta ": ids(t, h.ToolCalls(ctx, Query{Source: "skill"})),
		"b c a ":    ids(t, h.ActiveByHeartbeat(ctx, Query{})),
		"b c ":      ids(t, h.ActiveByHeartbeat(ctx, Query{Limit: 2})),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for workspace, want := range map[string]string{own: "S a S ta ", "W": "W T b T tb c tc "} {
		got := ""
		for change := range h.OfWorkspace(ctx, workspace, h.Changes(ctx, 0, "")) {
			if change.EntityID != own {
				got += change.EntityID + " "
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", workspace, got, want)
		}
	}
}

// TestNothingYet: reading makes nothing, and a directory that is not a thread is refused.
func TestNothingYet(t *testing.T) {
	h := inbox(t)
	if n := len(all(t, h.Runs(ctx, Query{}))); n != 0 {
		t.Error(n)
	}
	if _, _, err := h.Claim(ctx); !errors.Is(err, ErrNoneReady) {
		t.Error(err)
	}
	if _, err := h.Recover(ctx, RecoverOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading made a history: %v", err)
	}
	if _, err := Open(ctx, t.TempDir()); !errors.Is(err, engine.ErrNotThread) {
		t.Error(err)
	}
}

// TestFollow is H-11: the process that follows gets every history event once and in order, with
// writers at work all the time, and continues after the last one that it had.
func TestFollow(t *testing.T) {
	h := inbox(t)
	const writers, each = 3, 30
	session(t, h, "S")
	for w := range writers {
		go func() {
			for i := range each {
				if err := h.Put(ctx, &MessageRow{ID: fmt.Sprintf("%d-%d", w, i), SessionID: "S", Role: "user", Content: raw(`""`)}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	seen := map[string]bool{}
	last := int64(0)
	for len(seen) < writers*each {
		following, cancel := context.WithTimeout(ctx, time.Minute)
		n := 0
		for c, err := range h.Follow(following, last, "source = 'session:S' AND type = 'message'") {
			ok(t, err)
			if c.ID <= last || seen[c.EntityID] {
				t.Fatalf("%d %s after %d", c.ID, c.EntityID, last)
			}
			last, seen[c.EntityID] = c.ID, true
			if n++; n == 7 || len(seen) == writers*each { // the connection breaks
				break
			}
		}
		cancel()
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := first(h.Follow(ended, last, "")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPrune is H-25: pruning drops old history events and keeps every row, in its
// order, by writing it again as replace.
func TestPrune(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	session(t, h, "S")
	for i := range 30 {
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: fmt.Sprintf("r%02d", i), SessionID: "S"}))
		ok(t, r.End(ctx, End{Status: Completed}))
		c.add(time.Hour)
	}
	before := contents(t, h)
	count := len(all(t, h.Changes(ctx, 0, "")))
	old := engine.Retention{OlderThan: c.Now().Add(-10 * time.Hour), DryRun: true}
	dry, replaced, err := h.Prune(ctx, old)
	if ok(t, err); dry.Dropped == 0 || replaced == 0 || len(all(t, h.Changes(ctx, 0, ""))) != count {
		t.Errorf("%+v, %d", dry, replaced)
	}
	old.DryRun = false
	done, again, err := h.Prune(ctx, old)
	if ok(t, err); done.Dropped != dry.Dropped || again != replaced {
		t.Errorf("%+v, %d; it said %+v, %d", done, again, dry, replaced)
	}
	if now := contents(t, h); now != before {
		t.Errorf("was %s\nis %s", before, now)
	}
	rebuilt(t, h)
	if n := len(all(t, h.Changes(ctx, 0, ""))); n != count-int(done.Dropped)+int(replaced) {
		t.Errorf("%d events", n)
	}
	ops := map[string]int64{}
	for _, c := range all(t, h.Changes(ctx, 0, "")) {
		ops[c.Op]++
	}
	if ops[OpReplace] != replaced || replaced != 21 { // 20 runs and the workspace; the session changed since
		t.Errorf("%v, %d", ops, replaced)
	}
}

// TestRowsStay: a row stays in its session, run and workspace, and the id of the own
// workspace is in no row.
func TestRowsStay(t *testing.T) {
	h := inbox(t)
	session(t, h, "a")
	session(t, h, "b")
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r", SessionID: "a"}))
	one[*Run](t)(h.StartRun(ctx, RunRow{ID: "q", SessionID: "b"}))
	one[StepRow](t)(r.Step(ctx, StepRow{ID: "p", StepType: "x"}))
	ok(t, h.Put(ctx, &MessageRow{ID: "m", SessionID: "a", Role: "user", Content: raw(`"x"`)}))
	for _, row := range []Row{
		&MessageRow{ID: "m", SessionID: "b", Role: "user", Content: raw(`"x"`)},
		&StepRow{ID: "p", RunID: "q", StepType: "x"},
		&RunRow{ID: "r", SessionID: "b", Status: Running},
		&RunRow{ID: "r", SessionID: "a", WorkspaceID: "shop", Status: Running},
		&SessionRow{ID: "a", WorkspaceID: "shop"},
	} {
		if err := h.Put(ctx, row); !errors.Is(err, ErrExists) {
			t.Errorf("%s: %v", text(row), err)
		}
	}
	w := one[WorkspaceRow](t)(h.Workspace(ctx))
	s := SessionRow{ID: "c", WorkspaceID: w.ID}
	ok(t, h.Put(ctx, &s))
	var stored SessionRow
	if ok(t, h.Get(ctx, &stored, "c")); stored.WorkspaceID != "" {
		t.Errorf("a row holds the id of the own workspace: %s", text(&stored))
	}
	rebuilt(t, h)
}

// TestPage: what a mirror reads of the log (H-07): in order, none twice, with whose each
// row is, and how far it goes.
func TestPage(t *testing.T) {
	h := inbox(t)
	if p := one[Page](t)(h.Page(ctx, 0, 10, 1000)); len(p.Changes) != 0 || p.Last != 0 || p.Oldest != 0 {
		t.Errorf("of no history: %+v", p)
	}
	session(t, h, "a")
	one[SessionRow](t)(h.StartSession(ctx, SessionRow{ID: "b", WorkspaceID: "shop"}))
	r := one[*Run](t)(h.StartRun(ctx, RunRow{WorkspaceID: "shop"}))
	one[StepRow](t)(r.Step(ctx, StepRow{StepType: "x"}))
	ok(t, h.DeleteSession(ctx, "a"))
	w := one[WorkspaceRow](t)(h.Workspace(ctx))
	want := []string{"", "", "shop", "shop", "shop", ""} // the workspace, a that is deleted by now, b, run, step, the delete
	for size := 1; size < 8; size++ {
		after, got := int64(0), 0
		for {
			p := one[Page](t)(h.Page(ctx, after, size, 1<<20))
			if p.Head != 6 || p.Oldest != 1 || p.Own != w.ID || len(p.Workspaces) != 1 || (p.At == "") != (after == 0) {
				t.Fatalf("%+v", p)
			}
			for _, c := range p.Changes {
				if got++; c.ID != int64(got) || c.Workspace != want[got-1] {
					t.Errorf("event %d is %d, of %q", got, c.ID, c.Workspace)
				}
			}
			if after = p.Last; after == p.Head {
				break
			}
		}
		if got != 6 {
			t.Errorf("pages of %d: %d events", size, got)
		}
	}
	if p := one[Page](t)(h.Page(ctx, 0, 100, 1)); len(p.Changes) != 1 || p.Last != 1 {
		t.Errorf("one byte: %d events, up to %d", len(p.Changes), p.Last)
	}
}

// TestLog is H-13: what a handle writes about runs and calls is told with the fields of
// the structured log, after the commit, and nothing of a commit that came to nothing.
func TestLog(t *testing.T) {
	var lines []string
	var at []int64
	h := inbox(t, WithLog(func(r Record) {
		lines, at = append(lines, r.LogLine()), append(at, r.HistoryEventID)
	}))
	session(t, h, "a")
	one[*Run](t)(h.StartRun(ctx, RunRow{ID: "p", AgentName: "boss"}))
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r", SessionID: "a", ParentRunID: "p", Metadata: raw(`{"request_id":"q 1"}`)}))
	one[ToolCallRow](t)(r.ToolCall(ctx, ToolCallRow{ID: "c", SourceType: "native", ToolName: "sh=", DurationMS: 7}))
	one[HookRunRow](t)(r.HookRun(ctx, HookRunRow{HookName: "redact"}))
	one[ActionRunRow](t)(r.ActionRun(ctx, ActionRunRow{ActionName: "deploy"}))
	ok(t, r.Switch(ctx, "reviewer"))
	ok(t, r.End(ctx, End{Status: Failed, ErrorCode: "exit"}))
	if err := h.Update(ctx, func(tx *Tx) error {
		ok(t, tx.Put(&RunRow{Status: Queued}))
		return ErrState
	}); !errors.Is(err, ErrState) {
		t.Fatal(err)
	}
	w := one[WorkspaceRow](t)(h.Workspace(ctx))
	who := "run_id=r session_id=a workspace_id=" + w.ID + " subject_ref=user:a agent_name=coder effective_agent_name=coder parent_run_id=p"
	want := []string{
		"run running: run_id=p workspace_id=" + w.ID + " agent_name=boss effective_agent_name=boss history_event_id=3 status=running",
		"run running: " + who + " history_event_id=4 status=running request_id=\"q 1\"",
		"tool_call completed: " + who + " tool_call_id=c source_type=native tool_name=\"sh=\" history_event_id=6 status=completed duration_ms=7 request_id=\"q 1\"",
		"hook_run completed: " + who + " hook_name=redact history_event_id=7 status=completed request_id=\"q 1\"",
		"action_run completed: " + who + " action_name=deploy history_event_id=8 status=completed request_id=\"q 1\"",
		"run running: " + strings.Replace(who, "effective_agent_name=coder", "effective_agent_name=reviewer", 1) + " history_event_id=9 status=running request_id=\"q 1\"",
		"run failed: " + strings.Replace(who, "effective_agent_name=coder", "effective_agent_name=reviewer", 1) + " history_event_id=11 status=failed error_code=exit request_id=\"q 1\"",
	}
	for i, l := range lines {
		l = regexp.MustCompile(` duration_ms=[0-9]+( error|$| request)`).ReplaceAllString(l, "$1")
		if i == 2 {
			l = lines[i]
		}
		if i >= len(want) || l != want[i] {
			t.Errorf("line %d: %s", i, lines[i])
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d lines, want %d", len(lines), len(want))
	}
	for _, id := range at { // the events are there
		th := one[*engine.Thread](t)(h.Thread())
		if err := th.View(ctx, func(tx *engine.Tx) error {
			if _, ok, err := tx.Event(id); !ok || err != nil {
				t.Errorf("history event %d is not there: %v", id, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIndexFails: an error of a server during a loop over an index ends the loop, and is the
// error of the transaction.
func TestIndexFails(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	lost := errors.New("the connection is lost")
	for _, run := range []func(context.Context, func(*Tx) error) error{h.Update, h.View} {
		err := run(ctx, func(tx *Tx) error {
			failing := func(yield func(engine.Record, error) bool) { yield(engine.Record{}, lost) }
			for rec := range tx.by.whole(failing) {
				t.Errorf("a record %v", rec)
			}
			return ErrNoneReady
		})
		if !errors.Is(err, lost) {
			t.Error(err)
		}
	}
}
