package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
)

const (
	// keptOutputs is how many outputs of failed runs are stored for each consumer.
	keptOutputs = 20
	// sharedPart is the part of the retention of failed runs for which an output is shared:
	// a run that refers to another run can outlive it by that time.
	sharedPart = 8
)

// CommandOutput is the output of a step "command".
type CommandOutput struct {
	ExitCode  *int64 `json:"exit_code"`
	Output    string `json:"output"`
	Bytes     int64  `json:"output_bytes"`
	Truncated bool   `json:"truncated,omitempty"` // Output is not all of it, or no longer stored
	// SameAs is the run of the same consumer that stores this output, "" for this run.
	SameAs string `json:"same_as,omitempty"`
}

// encode returns the output as JSON. The history stores it as text in JSON once more, so <, >
// and & are not escaped.
func (o *CommandOutput) encode() (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(o)
	return bytes.TrimSpace(b.Bytes()), err
}

// handlerStep is the id of the step "command" of a handler's run.
func handlerStep(run string) string { return "handler_" + run }

// storesFailure reports whether the step stores the output of a failed run of a handler.
func (r *StepRow) storesFailure() bool {
	return r.StepType == "command" && r.ID == handlerStep(r.RunID) && r.Status != Completed &&
		bytes.Contains(r.Output, []byte(`"output":"`)) && !bytes.Contains(r.Output, []byte(`"output":""`))
}

func (r *StepRow) keys(k *keys) {
	k.list = append(k.list, indexKey(byStepRun, r.Seq, r.RunID))
	if r.storesFailure() {
		k.add(byHandlerOutput, r.AgentName)
	}
}

// Command returns the output of a run's command: the output of its last step "command".
func (h *History) Command(ctx context.Context, run string) (out CommandOutput, err error) {
	for s, err := range h.Steps(ctx, run) {
		if err != nil {
			return out, err
		}
		if s.StepType == "command" && s.Output != nil {
			out = CommandOutput{}
			_ = json.Unmarshal(s.Output, &out) // a step that a program has added has any output
		}
	}
	if out.SameAs == "" {
		return out, nil
	}
	err = h.View(ctx, func(tx *Tx) error {
		var s StepRow
		var same CommandOutput
		ok, err := tx.Get(&s, handlerStep(out.SameAs))
		if err != nil {
			return err
		}
		if ok && json.Unmarshal(s.Output, &same) != nil {
			return corrupt(RunStep, s.ID)
		}
		out.Output = same.Output
		out.Truncated = out.Bytes > int64(len(out.Output))
		return nil
	})
	return out, err
}

// putOutput stores the step with its output. The output of a failed run is stored once
// where it equals the output of the consumer's previous failed run, and the oldest outputs
// beyond keptOutputs are removed from their steps.
func (tx *Tx) putOutput(step *StepRow, out CommandOutput, keep RunRetention) (err error) {
	p := prefix(byHandlerOutput, step.AgentName)
	var ids []string // newest first
	for rec := range tx.by.Descend(p, after(p)) {
		ids = append(ids, string(rec.Value))
	}
	if len(ids) > 0 && step.Status != Completed && out.Output != "" {
		var last StepRow
		var same CommandOutput
		if _, err := tx.Get(&last, ids[0]); err != nil {
			return err
		}
		recent := step.EndedAt.Sub(last.EndedAt) <= keep.Failed/sharedPart
		if recent && json.Unmarshal(last.Output, &same) == nil && same.Output == out.Output {
			out.Output, out.SameAs = "", last.RunID
		}
	}
	if step.Output, err = out.encode(); err != nil {
		return err
	}
	if err := tx.Put(step); err != nil || !step.storesFailure() || len(ids) < keptOutputs {
		return err
	}
	for _, id := range ids[keptOutputs-1:] {
		if err := tx.dropOutput(id); err != nil {
			return err
		}
	}
	return nil
}

// dropOutput removes the output from the step.
func (tx *Tx) dropOutput(id string) error {
	var step StepRow
	var out CommandOutput
	if there, err := tx.Get(&step, id); err != nil || !there {
		return err // an older program, without the index, has deleted it
	}
	err := json.Unmarshal(step.Output, &out)
	if err != nil {
		return corrupt(RunStep, id)
	}
	out.Output, out.Truncated = "", true
	if step.Output, err = out.encode(); err != nil {
		return err
	}
	return tx.Put(&step)
}

// How many history events of runs that were let go, or how many bytes of any age, justify
// a rewrite of the database, and after how many new history events the younger ones are
// counted. Variables for the tests.
var (
	pruneEvents       = 2000
	pruneBytes  int64 = 4 << 20
	pruneEvery  int64 = 200
)

// pruneHandlers drops dead history events of handlers: the events of runs that were let go, and
// those with an output that was dropped. Events of others that lie between them are dropped
// with them, once they are as old as one runs become: the rows stay, and are written again
// as OpReplace. Younger events are dropped only where every version of the rows of others
// survives. At least three in four events, or bytes, must be dead, so a history that is
// mostly of agents keeps its events, and few rows are written again.
//
// The argument head is the newest history event before the runs were taken.
func (h *History) pruneHandlers(ctx context.Context, keep RunRetention, head int64) error {
	var through int64
	before := h.now().Add(-max(keep.OK, keep.Failed)).UTC()
	err := h.View(ctx, func(tx *Tx) error {
		all := tx.e.Head()/pruneEvery != head/pruneEvery
		var dead, others int
		var deadBytes, otherBytes int64
		for e, err := range tx.e.Events(0) {
			if err != nil {
				return err
			}
			at, err := time.Parse(time.RFC3339, e.CreatedAt)
			old := err == nil && !at.After(before)
			if !old && !all || dead+others > 20*pruneEvents {
				return nil
			}
			c, newest, err := tx.newest(e)
			if err != nil {
				return nil
			}
			switch {
			case !newest && isHandlers(&c):
				dead++
				deadBytes += int64(len(e.Content))
			case !newest && !old:
				return nil
			default:
				others++
				otherBytes += int64(len(e.Content))
			}
			if old && dead >= pruneEvents && dead >= 3*others || deadBytes >= pruneBytes && deadBytes >= 3*otherBytes {
				through = e.ID
			}
		}
		return nil
	})
	if err != nil || through == 0 {
		return err
	}
	_, _, err = h.Prune(ctx, engine.Retention{Through: through, Lines: true})
	var held *engine.HeldBackError
	if errors.As(err, &held) || errors.Is(err, ErrOwner) {
		return nil // a consumer has not seen them; or the owner drops them at its next chance
	}
	return err
}

// isHandlers reports whether the change is one of a handler's run, by its id: ids that
// are made here have another form.
func isHandlers(c *Change) bool {
	id := c.EntityID
	if c.Entity == RunStep {
		id = strings.TrimPrefix(id, handlerStep(""))
	}
	return (c.Entity == RunEntity || c.Entity == RunStep) && c.Session == "" && len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// WithLog has fn called with a record for each run, call of a tool, and run of a hook or
// of an action that this handle has written, after the commit. The record's Event is the
// entity and its status, as "run failed". It is also the hook for a tracer: a record has the
// trace context, the start and the duration of what it reports.
func WithLog(fn func(Record)) Option { return func(h *History) { h.log = fn } }

// WithLogLines is [WithLog] for a log of lines, each as [Record.LogLine] returns it.
func WithLogLines(fn func(line string)) Option { return WithLog(func(r Record) { fn(r.LogLine()) }) }

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
