package history

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxKeyBytes bounds ids and all other text that an index holds.
const MaxKeyBytes = 1024

// clip returns what an index can hold of a text.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ToValidUTF8(s[:min(len(s), MaxKeyBytes)], "")
}

// The values that the columns may have.
var (
	roles        = []string{"user", "assistant", "tool", "system"}
	triggerTypes = []string{"message", "manual_action", "api_action", "hook", "system"}
	runStates    = []string{Queued, Running, WaitingTool, Waiting, Completed, Failed, Cancelled, TimedOut}
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
	if err := validContent(r.Content); err != nil {
		return err
	}
	return firstOf(required("id", r.ID, "session_id", r.SessionID), indexed("run_id", r.RunID), oneOf("role", r.Role, roles))
}

// validContent checks the content of a message: a string, or an array of parts as the AI SDK
// has them, each an object with a text type. What else a part has is the application's.
func validContent(content json.RawMessage) error {
	switch {
	case len(content) > 0 && content[0] == '"':
		return nil
	case len(content) == 0 || content[0] != '[':
		return invalidf("content is neither a JSON string nor an array of parts")
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(content, &parts); err != nil {
		return invalidf("content is not JSON: %v", err)
	}
	for i, p := range parts {
		var part struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(p, &part) != nil || part.Type == "" {
			return invalidf("part %d of content is not an object with a text type", i+1)
		}
	}
	return nil
}

// ModelCallType is the type of a step that is a call of a model.
const ModelCallType = "model_call"

// validModelCall checks that a call of a model has the request that was sent, and, once it
// is completed, the response. One that has failed has what there is.
func (r *StepRow) validModelCall() error {
	if r.Status == Failed {
		return nil
	}
	if !hasObject(r.Input, "request") {
		return invalidf("input of a %s has no object request", ModelCallType)
	}
	if r.Status == Completed && !hasObject(r.Output, "response") {
		return invalidf("output of a completed %s has no object response", ModelCallType)
	}
	return nil
}

// hasObject reports whether a JSON object has an object as that member.
func hasObject(in json.RawMessage, name string) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(in, &members) == nil && bytes.HasPrefix(members[name], []byte("{"))
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
	if r.StepType == ModelCallType {
		if err := r.validModelCall(); err != nil {
			return err
		}
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

// Check completes a row as [Tx.Put] does, except for its id, and returns the [ErrInvalid] that
// this would return.
func Check(r Row) error {
	if *idOf(r) == "" {
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
	if id := idOf(r); *id == "" {
		*id = newID(r.Entity())
	}
	for _, name := range []string{"created_at", "updated_at"} {
		if at, ok := column(r, name).(*time.Time); ok {
			orNow(at, now)
		}
	}
	switch r := r.(type) {
	case *WorkspaceRow:
		orElse(&r.Status, "active")
		orElse(&r.Kind, "project")
	case *SessionRow:
		orElse(&r.Status, "active")
		orElse(&r.ActiveAgentName, r.AgentName)
	case *RunRow:
		orElse(&r.TriggerType, "system")
		orElse(&r.EffectiveAgentName, r.AgentName)
	case *StepRow:
		done(&r.Status, &r.StartedAt, &r.EndedAt, now)
	case *ToolCallRow:
		orElse(&r.SourceType, "tool")
		done(&r.Status, &r.StartedAt, &r.EndedAt, now)
	case *HookRunRow:
		done(&r.Status, &r.StartedAt, &r.EndedAt, now)
	case *ActionRunRow:
		done(&r.Status, &r.StartedAt, &r.EndedAt, now)
	}
}

func orElse(v *string, or string) {
	if *v == "" {
		*v = or
	}
}

// Belongs makes a row that hangs on a run one of that run, with that id if it is not
// "". It returns [ErrExists] for one of another run.
func Belongs(r Row, run, id string) error {
	of := textOf(r, "run_id")
	if of == nil || r.Entity() == Message {
		return invalidf("a %s hangs on no run", r.Entity())
	}
	if *of != "" && *of != run {
		return fmt.Errorf("%w: %s %q of run %q", ErrExists, r.Entity(), id, *of)
	}
	*of = run
	orElse(idOf(r), id)
	return nil
}

func orNow(v *time.Time, now time.Time) {
	if v.IsZero() {
		*v = now
	}
}

// done completes what a run did: it has ended unless its status is of one that has not.
func done(status *string, started, ended *time.Time, now time.Time) {
	orElse(status, Completed)
	orNow(started, now)
	if *status != Running && *status != Queued && *status != WaitingTool && *status != Waiting {
		orNow(ended, now)
	}
}
