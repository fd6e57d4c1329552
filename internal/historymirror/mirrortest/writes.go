package mirrortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/history"
)

// Writes returns writes of all kinds to a history, for [rapid.T.Repeat], and says of a
// workspace, by its id, whether its rows belong into a mirror after them.
func Writes(h *history.History) (actions map[string]func(*rapid.T), has func(t rapid.TB, workspace string) bool) {
	ctx := context.Background()
	chat := map[string]bool{}
	workspaces := rapid.SampledFrom([]string{"", "shop", "talk"})
	sessions := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	pick := func(t *rapid.T) string {
		id := "none"
		for r, err := range h.Runs(ctx, history.Query{Limit: rapid.Int64Range(1, 4).Draw(t, "nth")}) {
			Must(t, err)
			id = r.ID
		}
		return id
	}
	n := 0
	actions = map[string]func(*rapid.T){
		"start session": func(t *rapid.T) {
			_, err := h.StartSession(ctx, history.SessionRow{ID: sessions.Draw(t, "session"), WorkspaceID: workspaces.Draw(t, "workspace"), SubjectRef: "u"})
			expected(t, err)
		},
		"start run": func(t *rapid.T) {
			_, err := h.StartRun(ctx, history.RunRow{SessionID: sessions.Draw(t, "session"), AgentName: "x"})
			expected(t, err)
		},
		"run without a session": func(t *rapid.T) {
			_, err := h.StartRun(ctx, history.RunRow{WorkspaceID: workspaces.Draw(t, "workspace")})
			expected(t, err)
		},
		"enqueue": func(t *rapid.T) {
			_, err := h.Enqueue(ctx, history.RunRow{SessionID: sessions.Draw(t, "session")})
			expected(t, err)
		},
		"claim": func(t *rapid.T) { _, _, err := h.Claim(ctx); expected(t, err) },
		"end": func(t *rapid.T) {
			expected(t, h.Attach(pick(t), 0).End(ctx, history.End{Status: history.Failed, ErrorMessage: "no"}))
		},
		"requeue": func(t *rapid.T) { _, err := h.Requeue(ctx, pick(t)); expected(t, err) },
		"switch":  func(t *rapid.T) { expected(t, h.Attach(pick(t), 0).Switch(ctx, "y")) },
		"message": func(t *rapid.T) {
			content, err := json.Marshal(rapid.String().Draw(t, "content"))
			Must(t, err)
			expected(t, h.Put(ctx, &history.MessageRow{ID: rapid.SampledFrom([]string{"", "m"}).Draw(t, "id"), SessionID: sessions.Draw(t, "session"), Role: "user", Content: content}))
		},
		"hangs on a run": func(t *rapid.T) {
			r := h.Attach(pick(t), 0)
			expected(t, r.Update(ctx, func(tx *history.Tx, row *history.RunRow) error {
				n++
				return errors.Join(tx.Put(&history.StepRow{RunID: row.ID, StepType: "model_call", Input: json.RawMessage(fmt.Sprintf(`{"request": {"n": %d}}`, n)), Output: json.RawMessage(`{"response": {}}`)}),
					tx.Put(&history.ToolCallRow{RunID: row.ID, ToolName: "sh"}), tx.Put(&history.HookRunRow{RunID: row.ID, HookName: "h"}),
					tx.Put(&history.ActionRunRow{RunID: row.ID, ActionName: "a"}), tx.Put(&history.ArtifactRow{RunID: row.ID, Path: "p"}))
			}))
		},
		"delete session": func(t *rapid.T) { expected(t, h.DeleteSession(ctx, sessions.Draw(t, "session"))) },
		"set workspace": func(t *rapid.T) {
			id := workspaces.Draw(t, "workspace")
			kind := rapid.SampledFrom([]string{"project", "chat"}).Draw(t, "kind")
			_, err := h.SetWorkspace(ctx, id, func(w *history.WorkspaceRow) { w.Kind = kind })
			Must(t, err)
			chat[id] = kind == "chat"
		},
		"prune": func(t *rapid.T) {
			keep := rapid.Int64Range(0, 5).Draw(t, "keep")
			_, _, err := h.Prune(ctx, engine.Retention{KeepLast: &keep})
			Must(t, err)
		},
	}
	return actions, func(t rapid.TB, id string) bool {
		w, err := h.Workspace(ctx)
		Must(t, err)
		if id == w.ID {
			id = ""
		}
		return !chat[id]
	}
}
