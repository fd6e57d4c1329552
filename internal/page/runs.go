package page

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/address"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

const (
	shownRuns    = 50  // that have ended
	shownParts   = 200 // steps, tool calls or children of a run
	shownDelayed = 100
)

// MarshalJSON is the row in the form of docs/reference/json.md.
func (r RunRow) MarshalJSON() ([]byte, error) { return history.AppendJSON(nil, &r.RunRow) }

// StepRow is a step of one.
type StepRow struct{ history.StepRow }

// MarshalJSON is the row in the form of docs/reference/json.md.
func (r StepRow) MarshalJSON() ([]byte, error) { return history.AppendJSON(nil, &r.StepRow) }

// ToolRow is a tool call of one.
type ToolRow struct{ history.ToolCallRow }

// MarshalJSON is the row in the form of docs/reference/json.md.
func (r ToolRow) MarshalJSON() ([]byte, error) { return history.AppendJSON(nil, &r.ToolCallRow) }

// State is the run's state on the pages.
func (r RunRow) State() State {
	switch r.Status {
	case history.Queued, history.Waiting:
		return Queued
	case history.Failed, history.TimedOut:
		return Failed
	case history.Cancelled:
		return Paused
	case history.Completed:
		return OK
	}
	return Running
}

// Ended reports whether it has an end.
func (r RunRow) Ended() bool { return r.RunRow.Ended() }

// Word is the state in a word.
func (r RunRow) Word() string {
	if r.Status == history.Completed {
		return "OK"
	}
	return strings.ReplaceAll(r.Status, "_", " ")
}

// Length is how long it took, or takes so far.
func (r RunRow) Length() string {
	if r.StartedAt.IsZero() {
		return "–"
	}
	return took(r.Duration(time.Now()))
}

// Events are those that the run of a handler has acked, "" for none.
func (r RunRow) Events() string {
	h, ok := history.HandlerOf(&r.RunRow)
	switch {
	case !ok || h.AckedTo <= h.AckedFrom:
		return ""
	case h.AckedTo == h.AckedFrom+1:
		return fmt.Sprint(h.AckedTo)
	}
	return fmt.Sprintf("%d–%d", h.AckedFrom+1, h.AckedTo)
}

// Handler reports whether it is the run of a handler.
func (r RunRow) Handler() bool {
	_, ok := history.HandlerOf(&r.RunRow)
	return ok
}

// Runs is what runs now, and the newest recorded runs.
type Runs struct {
	Active   []Run    `json:"active"`
	Recorded []RunRow `json:"recorded"`
	More     bool     `json:"-"`
}

// open opens the history of a thread, nil for none. As for thread runs, the runs of
// handlers that have ended are taken into it before; those for which there is no time
// are left for the next look.
func (p *Page) open(ctx context.Context, t Thread) (*history.History, error) {
	there := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	take := !p.opts.ReadOnly && there(dispatch.EndedDir(t.Engine().Dir()))
	if !take && !address.IsURL(t.Dir()) && !there(filepath.Join(t.Dir(), history.Dir, "events.db")) {
		return nil, nil
	}
	h, err := history.Open(ctx, t.Dir(), history.LeaveRuns(), history.WithEngine(dispatch.OwnFile(t.Dir())))
	if err != nil || !take {
		return h, err
	}
	taking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := h.TakeRuns(taking); err != nil && taking.Err() == nil {
		_ = h.Close()
		return nil, err
	}
	return h, nil
}

// runs are the runs of a thread.
func (p *Page) runs(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	list := Runs{Active: t.Runs(), Recorded: []RunRow{}}
	if list.Active == nil {
		list.Active = []Run{}
	}
	h, err := p.open(q.Context(), t)
	if h == nil || err != nil {
		return list, err
	}
	defer h.Close()
	for r, err := range h.Runs(q.Context(), history.Query{Status: q.FormValue("status"), Limit: shownRuns}) {
		if err != nil {
			return nil, err
		}
		list.Recorded = append(list.Recorded, RunRow{r})
	}
	return list, nil
}

// schedules are what is planned, as thread schedule list shows it, except for the
// delayed events after the first hundred.
func (p *Page) schedules(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	list := []jsonform.Schedule{}
	var schedules []engine.Schedule
	if schedules, err = t.Engine().Schedules(q.Context()); err != nil {
		return nil, err
	}
	for i := range schedules {
		list = append(list, jsonform.NewSchedule(&schedules[i]))
	}
	delayed, err := t.Engine().Delayed(q.Context(), shownDelayed)
	if err != nil {
		return nil, err
	}
	for i := range delayed {
		list = append(list, jsonform.NewDelayed(&delayed[i]))
	}
	return list, nil
}
