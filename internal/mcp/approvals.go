package mcp

import (
	"context"
	"encoding/json"

	"thread/engine"
	"thread/event"
	"thread/history"
)

type approvalsIn struct{ ofThread }

// Approvals is what approvals answers.
type Approvals struct {
	Waiting []Approval `json:"waiting"`
	Held    []HeldRun  `json:"held" jsonschema:"runs that wait for something else: an event, a run, a time, a retry, a join"`
}

// HeldRun is a run that waits for something else than an approval.
type HeldRun struct {
	Run   string `json:"run"`
	Agent string `json:"agent,omitempty"`
	Hold  string `json:"hold" jsonschema:"for what, and until when"`
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
	out.Waiting, out.Held = []Approval{}, []HeldRun{}
	err = h.recorded(ctx, t, func(r *history.History) error {
		if err := out.hold(ctx, r); err != nil {
			return err
		}
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

// hold adds the runs that wait for something else than an approval.
func (out *Approvals) hold(ctx context.Context, r *history.History) error {
	for _, status := range []string{history.Waiting, history.Queued} {
		for row, err := range r.Runs(ctx, history.Query{Status: status}) {
			if err != nil {
				return err
			}
			hold := history.HoldOf(&row)
			if hold == nil || hold.For == history.ForApproval {
				continue
			}
			if out.Held = append(out.Held, HeldRun{row.ID, row.AgentName, hold.String()}); len(out.Held) == maxEvents {
				return nil
			}
		}
	}
	return nil
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
