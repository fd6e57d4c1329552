package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"thread/engine"
	"thread/event"
	"thread/history"
)

type approvalsIn struct{ ofThread }

// Approvals is what approvals answers.
type Approvals struct {
	Waiting []Approval `json:"waiting"`
}

// Approval is what a run waits for.
type Approval struct {
	Run   string `json:"run"`
	Agent string `json:"agent,omitempty"`
	Key   string `json:"key"`
	Ask   string `json:"ask,omitempty" jsonschema:"the question"`
	Until string `json:"until,omitempty" jsonschema:"when it is too late"`
}

func (h *tools) approvals(ctx context.Context, t *engine.Thread, _ *approvalsIn) (out Approvals, err error) {
	out.Waiting = []Approval{}
	err = h.recorded(ctx, t, func(r *history.History) error {
		for row, err := range r.Runs(ctx, history.Query{Status: history.Waiting}) {
			if err != nil {
				return err
			}
			job, _ := history.JobOf(&row)
			if job.Wait == nil || job.Wait.For != history.ForApproval {
				continue
			}
			one := Approval{Run: row.ID, Agent: row.AgentName, Key: job.Wait.Key, Ask: job.Wait.Ask}
			if !job.Wait.Until.IsZero() {
				one.Until = event.FormatTime(job.Wait.Until)
			}
			if out.Waiting = append(out.Waiting, one); len(out.Waiting) == maxEvents {
				break
			}
		}
		return nil
	})
	return out, err
}

type runsIn struct {
	ofThread
	Status string `json:"status,omitempty" jsonschema:"queued, waiting, running, completed, failed, timed_out or cancelled; without it, all"`
	newest
}

// Runs is what runs answers.
type Runs struct {
	Runs []RunState `json:"runs"`
}

// RunState is a recorded run.
type RunState struct {
	ID      string `json:"run"`
	Agent   string `json:"agent,omitempty"`
	Session string `json:"session,omitempty"`
	Status  string `json:"status"`
	Hold    string `json:"hold,omitempty" jsonschema:"what it waits for, and until when: an approval, an event, a run, a time, a retry, a join"`
	Error   string `json:"error,omitempty"`
}

var statuses = []string{history.Queued, history.Waiting, history.Running, history.Completed, history.Failed, history.TimedOut, history.Cancelled}

func (h *tools) listRuns(ctx context.Context, t *engine.Thread, in *runsIn) (out Runs, err error) {
	if err := in.check(); err != nil {
		return out, err
	}
	if in.Status != "" && !slices.Contains(statuses, in.Status) {
		return out, refuse("status is not %s", strings.Join(statuses, ", "))
	}
	out.Runs = []RunState{}
	err = h.recorded(ctx, t, func(r *history.History) error {
		for row, err := range r.Runs(ctx, history.Query{Status: in.Status, Limit: in.Last}) {
			if err != nil {
				return err
			}
			one := RunState{ID: row.ID, Agent: row.AgentName, Session: row.SessionID, Status: row.Status, Error: row.ErrorMessage}
			if hold := history.HoldOf(&row); hold != nil {
				one.Hold = hold.String()
			}
			out.Runs = append(out.Runs, one)
		}
		return nil
	})
	return out, err
}

type answerApprovalIn struct {
	ofThread
	Run    string `json:"run" jsonschema:"the id of the run"`
	Key    string `json:"key" jsonschema:"the key that approvals answered"`
	Answer string `json:"answer" jsonschema:"approved or denied"`
	Reason string `json:"reason,omitempty" jsonschema:"why it is denied"`
	Data   any    `json:"data,omitempty" jsonschema:"what the run gets with the approval"`
}

func (h *tools) answerApproval(ctx context.Context, t *engine.Thread, in *answerApprovalIn) (out Ended, err error) {
	a := history.Answer{Result: in.Answer, Reason: in.Reason, By: h.source(ctx)}
	if in.Data != nil {
		if a.Data, err = json.Marshal(in.Data); err != nil {
			return out, refusal(err.Error())
		}
	}
	err = h.recorded(ctx, t, func(r *history.History) error { return r.Answer(ctx, in.Run, in.Key, a) })
	return Ended{in.Run, history.Queued}, err
}
