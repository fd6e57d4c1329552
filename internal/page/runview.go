package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/history"
	"thread/internal/dispatch"
)

// Bar is a step or a call of a tool in the chart of a run.
type Bar struct {
	ID, Word, Name, Detail string
	Number                 int64 // of a step, 0 for what belongs to it
	State                  State
	X, Width               string // in percent of the run's time
	Look                   string // model "", tool "t", failed "x", running "r"
	Took                   string
	In, Out                string
	Open                   bool
	begin                  time.Time
	end                    time.Time
}

// Usage is what models have read and written.
type Usage struct {
	In, Cached, Out int64
	Model           string
}

// Total is the tokens in and out.
func (u Usage) Total() int64 { return u.In + u.Out }

// OneRun is a run and what belongs to it.
type OneRun struct {
	Run      RunRow                `json:"run"`
	Output   history.CommandOutput `json:"output"`
	Steps    []StepRow             `json:"steps"`
	Tools    []ToolRow             `json:"tool_calls"`
	Children []RunRow              `json:"children"`

	Bars      []Bar                 `json:"-"`
	Ticks     []string              `json:"-"`
	Calls     int                   `json:"-"` // of models
	ToolsBad  int                   `json:"-"`
	Usage     Usage                 `json:"-"`
	Session   history.SessionRow    `json:"-"`
	Queued    time.Time             `json:"-"`
	Waited    string                `json:"-"`
	Recovery  history.Recovery      `json:"-"`
	Wait      *history.Wait         `json:"-"` // of a run that waits
	Hold      string                `json:"-"` // what holds a queued run, "" for nothing
	Event     int64                 `json:"-"` // that triggered it, 0: none
	Artifacts []history.ArtifactRow `json:"-"`
}

// run is one of them.
func (p *Page) run(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	h, err := p.open(q.Context(), t)
	if err != nil {
		return nil, err
	}
	id := strings.TrimSuffix(q.PathValue("id"), ".json")
	if h == nil {
		return nil, &Error{http.StatusNotFound, "this thread has no recorded runs"}
	}
	defer h.Close()
	ctx := q.Context()
	one := OneRun{Steps: []StepRow{}, Tools: []ToolRow{}, Children: []RunRow{}}
	if err := h.Get(ctx, &one.Run.RunRow, id); err != nil {
		return nil, err
	}
	if one.Output, err = h.Command(ctx, id); err != nil && !errors.Is(err, history.ErrNotFound) {
		return nil, err
	}
	for s, err := range h.Steps(ctx, id) {
		if err != nil {
			return nil, err
		}
		if one.Steps = append(one.Steps, StepRow{s}); len(one.Steps) == shownParts {
			break
		}
	}
	for c, err := range h.ToolCalls(ctx, history.Query{Run: id, Limit: shownParts}) {
		if err != nil {
			return nil, err
		}
		one.Tools = append(one.Tools, ToolRow{c})
	}
	for r, err := range h.Runs(ctx, history.Query{Run: id, Oldest: true, Limit: shownParts}) {
		if err != nil {
			return nil, err
		}
		one.Children = append(one.Children, RunRow{r})
	}
	one.dress(ctx, h)
	return one, nil
}

// dress adds what only people look at to a run.
func (one *OneRun) dress(ctx context.Context, h *history.History) {
	r := &one.Run
	now := time.Now()
	for _, s := range one.Steps {
		one.addStep(&s.StepRow)
	}
	for _, c := range one.Tools {
		one.addTool(&c.ToolCallRow)
	}
	slices.SortStableFunc(one.Bars, func(a, b Bar) int { return a.begin.Compare(b.begin) })
	begin, end := r.StartedAt, r.EndedAt
	switch { // one that waits, or for a retry, has no start
	case begin.IsZero() && len(one.Bars) > 0:
		begin = one.Bars[0].begin
	case begin.IsZero():
		begin = r.CreatedAt
	}
	if end.IsZero() {
		end = now
	}
	length := max(end.Sub(begin), time.Millisecond)
	for i := range one.Bars {
		one.Bars[i].place(begin, length, now)
	}
	tick := took
	if length < time.Second {
		tick = func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	}
	for i := range 5 {
		one.Ticks = append(one.Ticks, tick(length*time.Duration(i)/5))
	}
	one.Ticks[0] = "0 s"
	if r.SessionID != "" {
		_ = h.Get(ctx, &one.Session, r.SessionID) // without it: only its id
	}
	if one.Queued = r.CreatedAt; !r.StartedAt.IsZero() {
		one.Waited = took(r.StartedAt.Sub(r.CreatedAt))
	}
	var meta struct{ Recovery history.Recovery }
	if json.Unmarshal(r.Metadata, &meta) == nil {
		one.Recovery = meta.Recovery
	}
	if job, ok := history.JobOf(&r.RunRow); ok && r.Status == history.Waiting {
		one.Wait = job.Wait
	} else if hold := history.HoldOf(&r.RunRow); hold != nil {
		one.Hold = hold.String()
	}
	one.Event, _ = strconv.ParseInt(strings.TrimPrefix(r.TriggerRef, "event:"), 10, 64)
	for a, err := range h.Artifacts(ctx, r.ID) {
		if err != nil || len(one.Artifacts) == shownParts {
			break
		}
		one.Artifacts = append(one.Artifacts, a)
	}
}

func (one *OneRun) addStep(s *history.StepRow) {
	b := Bar{ID: s.ID, Number: s.Seq, Name: s.StepType, Detail: line(s.Name), Word: s.Status, In: pretty(s.Input), Out: pretty(s.Output), begin: s.StartedAt, end: s.EndedAt}
	if s.StepType == "model_call" {
		b.Name = "model"
		one.Calls++
		one.Usage.add(s)
	} else {
		b.Look = "t"
	}
	one.Bars = append(one.Bars, b)
}

func (one *OneRun) addTool(c *history.ToolCallRow) {
	b := Bar{ID: c.ID, Name: c.ToolName, Detail: argument(c.Request), Word: c.Status, Look: "t", In: pretty(c.Request), Out: pretty(c.Response), begin: c.StartedAt, end: c.EndedAt}
	if c.Status == history.Failed {
		one.ToolsBad++
	}
	one.Bars = append(one.Bars, b)
}

// place puts the bar where its time is in the time of the run.
func (b *Bar) place(begin time.Time, length time.Duration, now time.Time) {
	end := b.end
	switch {
	case b.Word == history.Failed || b.Word == history.TimedOut:
		b.State, b.Look, b.Open = Failed, "x", true
	case b.Word == history.Waiting:
		b.State, b.Look = Queued, "r"
	case b.Word == history.Running || end.IsZero() && b.Word != history.Completed:
		b.State, b.Look = Running, "r"
	default:
		b.State = OK
	}
	if end.IsZero() && b.State != OK {
		end = now
	}
	if end.Before(b.begin) {
		end = b.begin
	}
	x := 100 * float64(b.begin.Sub(begin)) / float64(length)
	w := max(.7, 100*float64(end.Sub(b.begin))/float64(length))
	x = max(0, min(99.3, x))
	b.X, b.Width = fmt.Sprintf("%.1f%%", x), fmt.Sprintf("%.1f%%", min(w, 100-x))
	b.Took = took(end.Sub(b.begin))
}

// add adds the tokens of a call of a model, where it has them under one of their usual names.
func (u *Usage) add(s *history.StepRow) {
	var in struct {
		Request struct{ Model string }
	}
	var out struct {
		Response struct {
			Usage struct{ InputTokens, OutputTokens, CachedInputTokens, PromptTokens, CompletionTokens int64 }
		}
	}
	if json.Unmarshal(s.Input, &in) == nil {
		u.Model = cmp.Or(in.Request.Model, u.Model)
	}
	if json.Unmarshal(s.Output, &out) != nil {
		return
	}
	t := out.Response.Usage
	u.In, u.Out, u.Cached = u.In+t.InputTokens+t.PromptTokens, u.Out+t.OutputTokens+t.CompletionTokens, u.Cached+t.CachedInputTokens
}

// pretty is JSON with line breaks; a string of JSON is its text.
func pretty(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return indented(string(raw))
}

// argument is the first argument of a call, which most often says what it is about.
func argument(raw json.RawMessage) string {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return line(pretty(raw))
	}
	if _, err := d.Token(); err != nil {
		return ""
	}
	var first json.RawMessage
	if d.Decode(&first) != nil {
		return ""
	}
	return line(pretty(first))
}

// failedFor is how long a run that has failed is a problem.
const failedFor = 24 * time.Hour

// shownFailed bounds how many of them are looked at.
const shownFailed = 20

// failures returns the recorded runs of a thread, but not handlers', that have failed
// and that nothing has followed in their session.
func failures(ctx context.Context, dir string) (list []RunRow) {
	h, err := history.Open(ctx, dir, history.LeaveRuns(), history.WithEngine(dispatch.OwnFile(dir)))
	if err != nil {
		return nil
	}
	defer h.Close()
	for _, status := range []string{history.Failed, history.TimedOut} {
		for r, err := range h.Runs(ctx, history.Query{Status: status, Limit: shownFailed}) {
			if err != nil {
				break
			}
			row := RunRow{r}
			if row.Handler() || time.Since(r.EndedAt) > failedFor || followed(ctx, h, &r) {
				continue
			}
			list = append(list, row)
		}
	}
	return list
}

func followed(ctx context.Context, h *history.History, r *history.RunRow) bool {
	var s history.SessionRow
	return r.SessionID != "" && h.Get(ctx, &s, r.SessionID) == nil && s.LastRunAt.After(r.EndedAt)
}
