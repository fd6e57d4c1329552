package history

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Question is something that an audit asks.
type Question struct{ Name, Help string }

// Questions are all of them.
var Questions = []Question{
	{"triggers", "who triggered which run, where, and by what"},
	{"agents", "which agent ran, and which one it was in the end"},
	{"switches", "which runs were handed to another agent"},
	{"subagents", "which runs were started by other runs"},
	{"tools", "which tools were called, with their source types"},
	{"failures", "what failed, was cancelled, timed out or was recovered, and when"},
	{"hooks", "which hooks ran, and what they changed"},
	{"mirror", "how far the history is, for comparing with mirror_state.last_event_id of a mirror"},
}

// Record is one answer: a line of structured log. Text that is empty is null.
type Record struct {
	At                                 time.Time
	Event                              string // the question, or the entity and op of a history event
	SubjectRef, WorkspaceID, SessionID string
	RunID, ParentRunID                 string
	TriggerType, TriggerRef            string
	AgentName, EffectiveAgentName      string
	SwitchCount                        int64
	ToolCallID, SourceType, ToolName   string
	ActionName, HookName, EventName    string
	HistoryEventID                     int64
	Status, ErrorCode, ErrorMessage    string
	DurationMS                         int64
	RequestID, Traceparent             string
	Patch                              json.RawMessage
}

// AppendJSON appends the record as a JSON object.
func (r *Record) AppendJSON(b []byte) []byte {
	c := columns{b: append(b, '{'), nulls: true}
	c.at("at", &r.At)
	for _, t := range []struct {
		name  string
		value *string
	}{
		{"event", &r.Event}, {"subject_ref", &r.SubjectRef}, {"workspace_id", &r.WorkspaceID}, {"session_id", &r.SessionID},
		{"run_id", &r.RunID}, {"parent_run_id", &r.ParentRunID}, {"trigger_type", &r.TriggerType}, {"trigger_ref", &r.TriggerRef},
		{"agent_name", &r.AgentName}, {"effective_agent_name", &r.EffectiveAgentName},
	} {
		c.text(t.name, t.value)
	}
	c.some("switch_count", &r.SwitchCount)
	for _, t := range []struct {
		name  string
		value *string
	}{
		{"tool_call_id", &r.ToolCallID}, {"source_type", &r.SourceType}, {"tool_name", &r.ToolName}, {"action_name", &r.ActionName},
		{"hook_name", &r.HookName}, {"event_name", &r.EventName},
	} {
		c.text(t.name, t.value)
	}
	c.some("history_event_id", &r.HistoryEventID)
	c.text("status", &r.Status)
	c.text("error_code", &r.ErrorCode)
	c.text("error_message", &r.ErrorMessage)
	c.some("duration_ms", &r.DurationMS)
	c.text("request_id", &r.RequestID)
	c.text("traceparent", &r.Traceparent)
	c.value("patch", &r.Patch)
	return append(c.b, '}')
}

// Audit answers a question about the runs that were made since that time, newest
// first. It returns [ErrInvalid] for a question that is not in Questions.
func (h *History) Audit(ctx context.Context, question string, since time.Time) iter.Seq2[Record, error] {
	known := false
	for _, q := range Questions {
		known = known || q.Name == question
	}
	if !known {
		return failing[Record](invalidf("the question %q is unknown", question))
	}
	return func(yield func(Record, error) bool) {
		w, err := h.Workspace(ctx)
		if err != nil {
			yield(Record{}, err)
			return
		}
		if question == "mirror" {
			head, err := h.Head(ctx)
			yield(Record{At: h.now(), Event: question, WorkspaceID: w.ID, HistoryEventID: head}, err)
			return
		}
		for run, err := range h.Runs(ctx, Query{}) {
			if err != nil {
				yield(Record{}, err)
				return
			}
			if run.CreatedAt.Before(since) {
				return
			}
			for rec, err := range h.answer(ctx, question, &run) {
				if rec.WorkspaceID == "" {
					rec.WorkspaceID = w.ID
				}
				if !yield(rec, err) || err != nil {
					return
				}
			}
		}
	}
}

// record is what every answer about a run says.
func (h *History) record(question string, r *RunRow) Record {
	trace, request := TraceOf(r)
	return Record{At: r.CreatedAt, Event: question, SubjectRef: r.InitiatorRef, WorkspaceID: r.WorkspaceID, SessionID: r.SessionID,
		RunID: r.ID, ParentRunID: r.ParentRunID, TriggerType: r.TriggerType, TriggerRef: r.TriggerRef, AgentName: r.AgentName,
		EffectiveAgentName: r.EffectiveAgentName, SwitchCount: r.SwitchCount, Status: r.Status, ErrorCode: r.ErrorCode,
		ErrorMessage: r.ErrorMessage, DurationMS: r.Duration(h.now()).Milliseconds(), RequestID: request, Traceparent: trace}
}

// answer gives what one run has to say.
func (h *History) answer(ctx context.Context, question string, r *RunRow) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		rec := h.record(question, r)
		tell := true
		switch question {
		case "switches":
			tell = r.SwitchCount > 0
		case "subagents":
			tell = r.ParentRunID != ""
		case "failures":
			tell = r.Ended() && r.Status != Completed || r.Status == Queued && r.Attempt > 0
			if !r.EndedAt.IsZero() {
				rec.At = r.EndedAt
			}
		case "tools":
			for t, err := range h.ToolCalls(ctx, Query{Run: r.ID}) {
				rec.At, rec.ToolCallID, rec.SourceType, rec.ToolName = t.StartedAt, t.ID, t.SourceType, t.ToolName
				rec.Status, rec.DurationMS = t.Status, t.DurationMS
				if !yield(rec, err) {
					return
				}
			}
			return
		case "hooks":
			for k, err := range h.HookRuns(ctx, r.ID) {
				rec.At, rec.HookName, rec.EventName, rec.Patch = k.StartedAt, k.HookName, k.EventName, k.Patch
				rec.Status, rec.ErrorMessage = k.Status, k.ErrorMessage
				if !yield(rec, err) {
					return
				}
			}
			return
		}
		if tell {
			yield(rec, nil)
		}
	}
}

// TraceOf returns the trace context that a run was given, "" where there is none.
func TraceOf(r *RunRow) (traceparent, requestID string) {
	var in struct {
		Traceparent string `json:"traceparent"`
		RequestID   string `json:"request_id"`
	}
	if len(r.Metadata) == 0 || json.Unmarshal(r.Metadata, &in) != nil {
		return "", ""
	}
	return in.Traceparent, in.RequestID
}
