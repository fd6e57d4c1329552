package history

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
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
	{"mirror", "how far the history is, and each mirror of its workspaces, which has its file, status and error"},
}

// AppendJSON appends the record as a JSON object.
func (r *Record) AppendJSON(b []byte) []byte {
	c := columns{b: append(b, '{'), nulls: true}
	walk(r, &c)
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

// HookRuns gives the runs of hooks in a run, in order.
func (h *History) HookRuns(ctx context.Context, run string) iter.Seq2[HookRunRow, error] {
	return list[HookRunRow](ctx, h, prefix(byHookRun, run), false, 0, nil)
}

// Price is what a model costs, per million tokens, in any currency.
type Price struct {
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
	Cached float64 `json:"cached"` // of the input
}

// Usage is the sum of calls of models.
type Usage struct {
	Key      string  `json:"key"` // the session, agent, model or day
	Calls    int64   `json:"calls"`
	Input    int64   `json:"input_tokens"`
	Output   int64   `json:"output_tokens"`
	Cached   int64   `json:"cached_input_tokens"`
	Cost     float64 `json:"cost"`
	Unpriced int64   `json:"calls_without_price"`
}

// UsageBy is by what [History.Usage] sums.
var UsageBy = []string{"session", "agent", "model", "day"}

// Usage sums the calls of models in the runs that were made since that time, sorted by key.
func (h *History) Usage(ctx context.Context, by string, since time.Time, prices map[string]Price) ([]Usage, error) {
	if err := oneOf("by", by, UsageBy); err != nil {
		return nil, err
	}
	sums := map[string]*Usage{}
	for run, err := range h.Runs(ctx, Query{}) {
		if err != nil {
			return nil, err
		}
		if run.CreatedAt.Before(since) {
			break
		}
		for s, err := range h.Steps(ctx, run.ID) {
			if err != nil {
				return nil, err
			}
			if s.StepType == ModelCallType {
				addUsage(sums, by, &run, &s, prices)
			}
		}
	}
	list := make([]Usage, 0, len(sums))
	for _, key := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, *sums[key])
	}
	return list, nil
}

func addUsage(sums map[string]*Usage, by string, run *RunRow, s *StepRow, prices map[string]Price) {
	var in struct {
		Request struct {
			Model string `json:"model"`
		} `json:"request"`
	}
	var out struct {
		Response struct {
			Usage struct {
				Input  int64 `json:"inputTokens"`
				Output int64 `json:"outputTokens"`
				Cached int64 `json:"cachedInputTokens"`
			} `json:"usage"`
		} `json:"response"`
	}
	_ = json.Unmarshal(s.Input, &in) // what has another form counts as a call alone
	_ = json.Unmarshal(s.Output, &out)
	key := map[string]string{"session": run.SessionID, "agent": s.AgentName, "model": in.Request.Model, "day": s.StartedAt.Format(time.DateOnly)}[by]
	sum := sums[key]
	if sum == nil {
		sum = &Usage{Key: key}
		sums[key] = sum
	}
	u, price := &out.Response.Usage, prices[in.Request.Model]
	sum.Calls++
	sum.Input += u.Input
	sum.Output += u.Output
	sum.Cached += u.Cached
	sum.Cost += (float64(u.Input-u.Cached)*price.Input + float64(u.Cached)*price.Cached + float64(u.Output)*price.Output) / 1e6
	if _, known := prices[in.Request.Model]; !known {
		sum.Unpriced++
	}
}
