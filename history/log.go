package history

import (
	"strconv"
	"strings"

	"thread/event"
)

// WithLog has fn called with a record for each run, call of a tool, and run of a hook or
// of an action that this handle has written, after the commit. The record's Event is the
// entity and its status, as "run failed". It is also the hook for a tracer: a record has the
// trace context, the start and the duration of what it reports.
func WithLog(fn func(Record)) Option { return func(h *History) { h.log = fn } }

// WithLogLines is [WithLog] for a log of lines, each as [Record.LogLine] returns it.
func WithLogLines(fn func(line string)) Option { return WithLog(func(r Record) { fn(r.LogLine()) }) }

// note keeps a record of what was written, for the log.
func (tx *Tx) note(r Row, eventID int64) error {
	if tx.h.log == nil {
		return nil
	}
	var run RunRow
	switch row := r.(type) {
	case *RunRow:
		run = *row
	case *ToolCallRow, *HookRunRow, *ActionRunRow:
		if ok, err := tx.Get(&run, runOf(r)); err != nil || !ok {
			return err
		}
	default:
		return nil
	}
	rec := tx.h.record("", &run)
	switch r := r.(type) {
	case *RunRow:
	case *ToolCallRow:
		rec.At, rec.ToolCallID, rec.SourceType, rec.ToolName, rec.Status, rec.DurationMS = r.StartedAt, r.ID, r.SourceType, r.ToolName, r.Status, r.DurationMS
	case *HookRunRow:
		rec.At, rec.HookName, rec.EventName, rec.Status, rec.ErrorMessage = r.StartedAt, r.HookName, r.EventName, r.Status, r.ErrorMessage
		rec.DurationMS = max(0, r.EndedAt.Sub(r.StartedAt)).Milliseconds()
	case *ActionRunRow:
		rec.At, rec.ActionName, rec.Status = r.StartedAt, r.ActionName, r.Status
		rec.DurationMS = max(0, r.EndedAt.Sub(r.StartedAt)).Milliseconds()
	}
	if r.Entity() != RunEntity {
		rec.ErrorCode = ""
	}
	rec.Event, rec.HistoryEventID = string(r.Entity())+" "+rec.Status, eventID
	if rec.WorkspaceID == "" {
		var own WorkspaceRow
		if _, _, err := tx.read(&own, rowKey(Workspace, "")); err != nil {
			return err
		}
		rec.WorkspaceID = own.ID
	}
	tx.notes = append(tx.notes, rec)
	return nil
}

// LogLine returns the record as a line of a log: what happened, and then the fields that
// are not empty, as name=value; a value that is not plain is quoted as in JSON.
func (r *Record) LogLine() string {
	b := []byte(r.Event + ":")
	r.fields(func(name, value string) {
		b = append(append(append(b, ' '), name...), '=')
		if strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c == '"' || c == '=' || c == 0x7f }) {
			b = event.AppendString(b, value)
		} else {
			b = append(b, value...)
		}
	})
	return string(b)
}

// LogAttrs returns the fields that are not empty as pairs of a name and its value, for
// package log/slog.
func (r *Record) LogAttrs() (attrs []any) {
	r.fields(func(name, value string) { attrs = append(attrs, name, value) })
	return attrs
}

// fields calls field with each field that is not empty.
func (r *Record) fields(field func(name, value string)) {
	add := func(name, value string) {
		if value != "" {
			field(name, value)
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			add(name, strconv.FormatInt(n, 10))
		}
	}
	add("run_id", r.RunID)
	add("session_id", r.SessionID)
	add("workspace_id", r.WorkspaceID)
	add("subject_ref", r.SubjectRef)
	add("agent_name", r.AgentName)
	add("effective_agent_name", r.EffectiveAgentName)
	add("parent_run_id", r.ParentRunID)
	add("tool_call_id", r.ToolCallID)
	add("source_type", r.SourceType)
	add("tool_name", r.ToolName)
	add("action_name", r.ActionName)
	add("hook_name", r.HookName)
	number("history_event_id", r.HistoryEventID)
	add("status", r.Status)
	number("duration_ms", r.DurationMS)
	add("error_code", r.ErrorCode)
	add("request_id", r.RequestID)
	add("traceparent", r.Traceparent)
}
