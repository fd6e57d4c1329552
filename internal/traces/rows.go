// Package traces makes spans of the runs that a history records: deliveries to handlers,
// runs, their steps, and calls of models and tools as the semantic conventions for
// generative AI name them. Contents of messages, requests and answers are not in spans.
package traces

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/spans"
)

// source is where the rows of one thread are.
type source struct {
	thread string // its directory or address
	h      *history.History
	t      *engine.Thread
}

// maxDepth bounds how many runs are above a run.
const maxDepth = 64

// Of returns the place of a run in its trace: its span, and the id of its parent, "" for a
// root.
func Of(ctx context.Context, h *history.History, thread string, row *history.RunRow) (c spans.Context, parent string, err error) {
	return (&source{thread: thread, h: h}).place(ctx, row, maxDepth)
}

// place is Of. A run with a separate trace context has that parent. A run with the context
// of the run that started it is a child of that run.
func (s *source) place(ctx context.Context, row *history.RunRow, depth int) (c spans.Context, parent string, err error) {
	id := spans.Run(s.thread, row.ID)
	traceparent, _ := history.TraceOf(row)
	if row.ParentRunID != "" && depth > 0 {
		var above history.RunRow
		err := s.h.Get(ctx, &above, row.ParentRunID)
		if err != nil && !errors.Is(err, history.ErrNotFound) {
			return c, "", err
		}
		if of, _ := history.TraceOf(&above); err == nil && (traceparent == "" || traceparent == of) {
			up, _, err := s.place(ctx, &above, depth-1)
			return up.Child(id), up.ID, err
		}
	}
	if c, ok := spans.Parse(traceparent); ok {
		return c.Child(id), c.ID, nil
	}
	trace := spans.TraceID("run", s.thread, row.ID, strconv.FormatInt(row.CreatedAt.UnixMilli(), 10))
	if _, ok := history.HandlerOf(row); ok {
		trace = spans.TraceID("event", s.thread, row.TriggerRef)
	}
	return spans.Context{Trace: trace, ID: id}, "", nil
}

// spans returns the spans of a run that has ended: the push and the delivery for the run
// of a handler, the run, its steps and its calls of tools.
func (s *source) spans(ctx context.Context, row *history.RunRow) (list []spans.Span, err error) {
	c, parent, err := s.place(ctx, row, maxDepth)
	if err != nil {
		return nil, err
	}
	run := spans.Span{Context: c, Parent: parent, Name: "invoke_agent " + row.EffectiveAgentName, Kind: spans.Internal, Start: row.StartedAt, End: row.EndedAt,
		Failed: row.Status != history.Completed && row.Status != history.Cancelled, Error: cmp.Or(row.ErrorMessage, row.ErrorCode),
		Attributes: map[string]any{"gen_ai.operation.name": "invoke_agent"}}
	handler, isHandler := history.HandlerOf(row)
	if isHandler {
		push, err := s.pushed(ctx, row, c, parent)
		if err != nil {
			return nil, err
		}
		if !push.Start.IsZero() {
			list = append(list, push)
		}
		d := spans.Delivered(&push, s.thread, row.AgentName, c.ID)
		d.Start, d.End, d.Failed, d.Error = run.Start, run.End, run.Failed, run.Error
		run = d
		run.Attributes["thread.acked_from"], run.Attributes["thread.acked_to"] = handler.AckedFrom, handler.AckedTo
	}
	if run.Start.IsZero() { // it has ended in the queue
		run.Start = row.EndedAt
	}
	set(run.Attributes, "gen_ai.agent.name", row.EffectiveAgentName)
	set(run.Attributes, "gen_ai.conversation.id", row.SessionID)
	set(run.Attributes, "thread.run.id", row.ID)
	set(run.Attributes, "thread.run.status", row.Status)
	set(run.Attributes, "thread.run.attempt", row.Attempt)
	_, request := history.TraceOf(row)
	set(run.Attributes, "thread.request.id", request)
	set(run.Attributes, "error.type", row.ErrorCode)
	list = append(list, run)
	for step, err := range s.h.Steps(ctx, row.ID) {
		if err != nil {
			return nil, err
		}
		list = append(list, s.step(&run, &step))
	}
	for call, err := range s.h.ToolCalls(ctx, history.Query{Run: row.ID}) {
		if err != nil {
			return nil, err
		}
		list = append(list, s.tool(&run, &call))
	}
	return list, nil
}

// pushed returns the push of the event that started the run of a handler. Where the event
// is not stored any more, it is a push without a start.
func (s *source) pushed(ctx context.Context, row *history.RunRow, c spans.Context, parent string) (push spans.Span, err error) {
	id, _ := strconv.ParseInt(row.TriggerRef, 10, 64)
	var first event.Event
	found := false
	err = s.t.View(ctx, func(tx *engine.Tx) (err error) {
		first, found, err = tx.Event(id)
		first.Content = strings.Clone(first.Content)
		return err
	})
	if found && err == nil {
		return spans.Pushed(s.thread, &first), nil
	}
	return spans.Span{Context: c.Child(parent), Attributes: map[string]any{"messaging.message.id": row.TriggerRef}}, err
}

// step returns the span of a step.
func (s *source) step(run *spans.Span, r *history.StepRow) spans.Span {
	span := spans.Span{Context: run.Child(spans.Step(s.thread, r.ID)), Parent: run.ID, Name: strings.TrimSpace(r.StepType + " " + r.Name), Kind: spans.Internal,
		Attributes: map[string]any{"thread.step.id": r.ID, "thread.step.type": r.StepType, "thread.step.seq": r.Seq}}
	s.timed(&span, run, r.StartedAt, r.EndedAt, r.Status)
	set(span.Attributes, "gen_ai.agent.name", r.AgentName)
	if r.StepType == history.ModelCallType {
		modelCall(&span, r)
	}
	return span
}

// timed sets the times of a span in a run. A row that has no end ended with its run.
func (s *source) timed(span, run *spans.Span, start, end time.Time, status string) {
	span.Start, span.End = start, end
	if span.Start.IsZero() {
		span.Start = run.Start
	}
	if span.End.IsZero() {
		span.End = run.End
	}
	if span.End.Before(span.Start) {
		span.End = span.Start
	}
	span.Failed = status == history.Failed || status == history.TimedOut
	set(span.Attributes, "thread.step.status", status)
}

// modelCall adds what the conventions have for a call of a model.
func modelCall(span *spans.Span, r *history.StepRow) {
	var in struct {
		Request struct {
			Model       string   `json:"model"`
			Provider    string   `json:"provider"`
			Temperature *float64 `json:"temperature"`
			MaxTokens   int64    `json:"maxTokens"`
		} `json:"request"`
	}
	var out struct {
		Response struct {
			FinishReason string `json:"finishReason"`
			Usage        struct {
				Input  int64 `json:"inputTokens"`
				Output int64 `json:"outputTokens"`
				Cached int64 `json:"cachedInputTokens"`
			} `json:"usage"`
		} `json:"response"`
	}
	_ = json.Unmarshal(r.Input, &in) // what has another form is a call alone
	_ = json.Unmarshal(r.Output, &out)
	span.Name, span.Kind = strings.TrimSpace("chat "+in.Request.Model), spans.Client
	a := span.Attributes
	set(a, "gen_ai.operation.name", "chat")
	set(a, "gen_ai.provider.name", in.Request.Provider)
	set(a, "gen_ai.request.model", in.Request.Model)
	set(a, "gen_ai.request.max_tokens", in.Request.MaxTokens)
	if in.Request.Temperature != nil {
		a["gen_ai.request.temperature"] = *in.Request.Temperature
	}
	set(a, "gen_ai.usage.input_tokens", out.Response.Usage.Input)
	set(a, "gen_ai.usage.output_tokens", out.Response.Usage.Output)
	set(a, "gen_ai.usage.cache_read.input_tokens", out.Response.Usage.Cached)
	if out.Response.FinishReason != "" {
		a["gen_ai.response.finish_reasons"] = []string{out.Response.FinishReason}
	}
}

// tool returns the span of a call of a tool: a child of its step, if that is named.
func (s *source) tool(run *spans.Span, r *history.ToolCallRow) spans.Span {
	span := spans.Span{Context: run.Child(spans.Step(s.thread, r.ID)), Parent: run.ID, Name: "execute_tool " + r.ToolName, Kind: spans.Internal,
		Attributes: map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": r.ToolName, "gen_ai.tool.call.id": r.ID, "gen_ai.tool.type": r.SourceType}}
	if r.StepID != "" {
		span.Parent = spans.Step(s.thread, r.StepID)
	}
	end := r.EndedAt
	if end.IsZero() && r.DurationMS > 0 {
		end = r.StartedAt.Add(time.Duration(r.DurationMS) * time.Millisecond)
	}
	s.timed(&span, run, r.StartedAt, end, r.Status)
	return span
}

// set sets an attribute that is not zero.
func set[T comparable](a map[string]any, name string, value T) {
	if value != *new(T) {
		a[name] = value
	}
}
