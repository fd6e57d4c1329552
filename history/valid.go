package history

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxKeyBytes bounds ids and all other text that an index holds.
const MaxKeyBytes = 1024

// The values that the columns may have.
var (
	roles        = []string{"user", "assistant", "tool", "system"}
	triggerTypes = []string{"message", "manual_action", "api_action", "hook", "system"}
	runStates    = []string{Queued, Running, WaitingTool, Completed, Failed, Cancelled, TimedOut}
	sourceTypes  = []string{"native", "action", "skill", "tool"}
	kinds        = []string{"project", "chat"}
)

func oneOf(column, value string, of []string) error {
	if slices.Contains(of, value) {
		return nil
	}
	return invalidf("%s %q is none of %s", column, value, strings.Join(of, ", "))
}

// indexed checks pairs of a column's name and its text, which an index holds.
func indexed(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		switch v := pairs[i+1]; {
		case len(v) > MaxKeyBytes:
			return invalidf("%s is %d bytes long, the limit is %d", pairs[i], len(v), MaxKeyBytes)
		case !utf8.ValidString(v):
			return invalidf("%s is not valid UTF-8", pairs[i])
		}
	}
	return nil
}

// required is indexed for columns that may not be empty.
func required(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return invalidf("%s is empty", pairs[i])
		}
	}
	return indexed(pairs...)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *WorkspaceRow) valid() error {
	return firstOf(required("id", r.ID), oneOf("kind", r.Kind, kinds),
		indexed("root_path", r.RootPath, "external_ref", r.ExternalRef, "status", r.Status))
}

func (r *SessionRow) valid() error {
	return firstOf(required("id", r.ID), indexed("workspace_id", r.WorkspaceID, "subject_ref", r.SubjectRef, "status", r.Status))
}

func (r *MessageRow) valid() error {
	if len(r.Content) == 0 || r.Content[0] != '"' && r.Content[0] != '[' {
		return invalidf("content is neither a JSON string nor an array of parts")
	}
	return firstOf(required("id", r.ID, "session_id", r.SessionID), indexed("run_id", r.RunID), oneOf("role", r.Role, roles))
}

func (r *RunRow) valid() error {
	return firstOf(required("id", r.ID), indexed("session_id", r.SessionID, "workspace_id", r.WorkspaceID,
		"parent_run_id", r.ParentRunID, "initiator_ref", r.InitiatorRef),
		oneOf("trigger_type", r.TriggerType, triggerTypes), oneOf("status", r.Status, runStates))
}

func (r *StepRow) valid() error {
	if r.Seq < 1 {
		return invalidf("seq %d is not above 0", r.Seq)
	}
	return firstOf(required("id", r.ID, "run_id", r.RunID, "step_type", r.StepType), indexed("status", r.Status))
}

func (r *ToolCallRow) valid() error {
	return firstOf(required("id", r.ID, "run_id", r.RunID, "tool_name", r.ToolName),
		indexed("step_id", r.StepID, "status", r.Status), oneOf("source_type", r.SourceType, sourceTypes))
}

func (r *HookRunRow) valid() error {
	return firstOf(required("id", r.ID, "run_id", r.RunID, "hook_name", r.HookName), indexed("status", r.Status))
}

func (r *ActionRunRow) valid() error {
	return firstOf(required("id", r.ID, "run_id", r.RunID, "action_name", r.ActionName), indexed("status", r.Status))
}

func (r *ArtifactRow) valid() error {
	return firstOf(required("id", r.ID, "run_id", r.RunID), indexed("type", r.Type))
}

// Check completes a row as [Tx.Put] does, but for its id, and returns the [ErrInvalid] that
// this would return.
func Check(r Row) error {
	if *r.id() == "" {
		return invalidf("id is empty")
	}
	fill(r, time.Now())
	return r.valid()
}

// newID returns an id for a row of that entity.
func newID(e Entity) string {
	return string(e) + "_" + strings.ToLower(rand.Text())
}

// fill sets what the caller has left out.
func fill(r Row, now time.Time) {
	if id := r.id(); *id == "" {
		*id = newID(r.Entity())
	}
	switch r := r.(type) {
	case *WorkspaceRow:
		orElse(&r.Status, "active")
		orElse(&r.Kind, "project")
		orNow(&r.CreatedAt, now)
		orNow(&r.UpdatedAt, now)
	case *SessionRow:
		orElse(&r.Status, "active")
		orElse(&r.ActiveAgentName, r.AgentName)
		orNow(&r.CreatedAt, now)
		orNow(&r.UpdatedAt, now)
	case *MessageRow:
		orNow(&r.CreatedAt, now)
	case *RunRow:
		orElse(&r.TriggerType, "system")
		orElse(&r.EffectiveAgentName, r.AgentName)
		orNow(&r.CreatedAt, now)
	case *StepRow:
		orElse(&r.Status, Completed)
		orNow(&r.StartedAt, now)
		endNow(&r.EndedAt, r.Status, now)
	case *ToolCallRow:
		orElse(&r.SourceType, "tool")
		orElse(&r.Status, Completed)
		orNow(&r.StartedAt, now)
		endNow(&r.EndedAt, r.Status, now)
	case *HookRunRow:
		orElse(&r.Status, Completed)
		orNow(&r.StartedAt, now)
		endNow(&r.EndedAt, r.Status, now)
	case *ActionRunRow:
		orElse(&r.Status, Completed)
		orNow(&r.StartedAt, now)
		endNow(&r.EndedAt, r.Status, now)
	case *ArtifactRow:
		orNow(&r.CreatedAt, now)
	case *LimitRow:
		orNow(&r.CreatedAt, now)
	}
}

func orElse(v *string, or string) {
	if *v == "" {
		*v = or
	}
}

func orNow(v *time.Time, now time.Time) {
	if v.IsZero() {
		*v = now
	}
}

func endNow(v *time.Time, status string, now time.Time) {
	if status != Running && status != Queued && status != WaitingTool {
		orNow(v, now)
	}
}
