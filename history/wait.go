package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"thread/engine"
)

// A run that waits has no process. What it waits for is a step, with the status
// Waiting until the answer is stored. Whatever stores the answer first wins: all others find
// the step answered. While the run itself is Waiting, its job has the wait:
//
//	byDue      until a time, which is the answer to a wait for a time, else a timeout
//	byAfter    the run that has to end
//	byWaitEvent  a worker looks for the event in the thread
//
// A run that waits does not hold its session. With the answer it is queued in its old place.

// WaitType is the type of a step of [Run.Wait].
const WaitType = "wait"

// What a run can wait for.
const (
	ForApproval = "approval" // History.Answer
	ForEvent    = "event"    // an event of the thread that matches a filter
	ForRun      = "run"      // the end of another run
	ForTime     = "time"     // a time
)

var waitKinds = []string{ForApproval, ForEvent, ForRun, ForTime}

// MaxAnswer bounds the data of an answer, in bytes.
const MaxAnswer = 64 << 10

// The results of an answer.
const (
	Approved     = "approved"
	Denied       = "denied"
	Happened     = "event"
	HasEnded     = "ended"
	TimeCame     = "time"
	TimedOutWait = "timeout"
)

// Answer is what a wait ended with.
type Answer struct {
	Result  string          `json:"result"`             // Approved, Denied, Happened, HasEnded, TimeCame or TimedOutWait
	Data    json.RawMessage `json:"data,omitempty"`     // of an approval
	Reason  string          `json:"reason,omitempty"`   // of a denial
	By      string          `json:"by,omitempty"`       // who approved or denied
	EventID int64           `json:"event_id,omitempty"` // the event
	Content string          `json:"content,omitempty"`  // of the event, if it has at most MaxAnswer bytes
	Status  string          `json:"status,omitempty"`   // how the other run ended
	At      time.Time       `json:"at,omitzero"`
}

func (w *Wait) valid(run string) error {
	if err := firstOf(oneOf("for", w.For, waitKinds), checkStepKey(w.Key), indexed("run", w.Run)); err != nil {
		return err
	}
	switch {
	case w.For == ForTime && w.Until.IsZero():
		return invalidf("a wait for a time has no time")
	case w.For == ForRun && w.Run == "":
		return invalidf("a wait for a run has no run")
	case w.For == ForRun && w.Run == run:
		return invalidf("the run %q would wait for itself", run)
	case len(w.Ask) > MaxAnswer || len(w.Filter) > MaxAnswer:
		return invalidf("the question or filter has more than %d bytes", MaxAnswer)
	}
	return nil
}

// Wait returns the answer to the wait of that key, or stores that the run waits and returns
// [ErrWaiting]. The worker of the run then ends it as [Waiting], and the run is started again
// when the answer is there. The first call with the key decides what is waited for and until
// when.
//
// Wait returns [ErrState] for a run that does not come from the queue: no worker would start it
// again.
func (r *Run) Wait(ctx context.Context, key string, w Wait) (answer Answer, err error) {
	w.Key, w.Step = key, stepID(WaitType, r.id, key)
	if err := w.valid(r.id); err != nil {
		return answer, err
	}
	if w.For == ForEvent {
		if w.After, err = r.h.headFor(ctx, &w); err != nil {
			return answer, err
		}
	}
	answered := false
	err = r.Update(ctx, func(tx *Tx, run *RunRow) error {
		var s StepRow
		known, err := tx.Get(&s, w.Step)
		if err != nil {
			return err
		}
		if known && s.Status == Completed {
			answered = true
			return json.Unmarshal(s.Output, &answer)
		}
		if queued, err := tx.wasQueued(r.id); err != nil || !queued {
			return cmp.Or(err, fmt.Errorf("%w: %q was not queued", ErrState, r.id))
		}
		if known {
			if err := json.Unmarshal(s.Input, &w); err != nil {
				return err
			}
			if s.Status == Cancelled { // with an earlier end of the run, which was queued again
				s.Status, s.EndedAt = Waiting, time.Time{}
				if err := tx.Put(&s); err != nil {
					return err
				}
			}
		}
		job, _ := JobOf(run)
		job.Wait = &w
		if err := errors.Join(SetJob(run, job), tx.Put(run)); err != nil || known {
			return err
		}
		input, err := json.Marshal(w)
		s = StepRow{ID: w.Step, RunID: r.id, StepType: WaitType, Name: key, AgentName: run.EffectiveAgentName, Status: Waiting, Input: input}
		if err := errors.Join(err, tx.Put(&s)); err != nil || w.For != ForRun {
			return err
		}
		var dep RunRow
		if err := tx.must(&dep, w.Run); err != nil || !dep.Ended() {
			return err
		}
		answer, answered = Answer{Result: HasEnded, Status: dep.Status, At: tx.now}, true
		return tx.answer(run, &answer)
	})
	if err == nil && !answered {
		err = fmt.Errorf("%w: %s", ErrWaiting, w.For)
	}
	return answer, err
}

// wasQueued reports whether a run came from the queue, by its first history event.
func (tx *Tx) wasQueued(id string) (bool, error) {
	v, _ := tx.versionOf(rowKey(RunEntity, id))
	e, there, err := tx.e.Event(v.first)
	if err != nil || !there { // dropped meanwhile
		return true, err
	}
	return e.Subtype != nil && *e.Subtype == Queued, nil
}

// headFor checks the filter of a wait for an event, and returns after which event it looks.
func (h *History) headFor(ctx context.Context, w *Wait) (head int64, err error) {
	t, done, err := h.parentThread()
	if err != nil {
		return 0, err
	}
	defer done()
	err = t.View(ctx, func(tx *engine.Tx) error {
		head = tx.Head()
		return nil
	})
	for _, ferr := range t.Events(ctx, engine.Query{Filter: w.Filter, After: head, Limit: 1}) {
		err = errors.Join(err, ferr)
	}
	return cmp.Or(w.After, head), err
}

// answer stores the answer to what the job of a run waits for. A run that is Waiting is queued;
// one that has not come to that yet is queued by park.
func (tx *Tx) answer(row *RunRow, a *Answer) error {
	job, _ := JobOf(row)
	var s StepRow
	if err := tx.must(&s, job.Wait.Step); err != nil {
		return err
	}
	if s.Status != Waiting {
		return fmt.Errorf("%w: what run %q waited for was answered", ErrState, row.ID)
	}
	a.At = tx.now
	var err error
	if s.Output, err = json.Marshal(a); err != nil {
		return err
	}
	s.Status, s.EndedAt = Completed, tx.now
	if err := tx.Put(&s); err != nil || row.Status != Waiting {
		return err
	}
	return tx.continueRun(row)
}

// continueRun queues a run whose answer is stored.
func (tx *Tx) continueRun(row *RunRow) error {
	job, _ := JobOf(row)
	job.Answered, job.Wait, job.Due = job.Wait.Step, nil, time.Time{}
	if err := SetJob(row, job); err != nil {
		return err
	}
	return tx.queueAs(row, Queued)
}

// park ends an attempt of a run that waits, and reports whether it does.
func (tx *Tx) park(row *RunRow) (bool, error) {
	job, _ := JobOf(row)
	if job.Wait == nil || !row.CancelRequestedAt.IsZero() {
		return false, nil
	}
	var s StepRow
	if err := tx.must(&s, job.Wait.Step); err != nil {
		return false, err
	}
	if s.Status == Completed { // meanwhile
		return true, tx.continueRun(row)
	}
	job.Due = job.Wait.Until
	if err := SetJob(row, job); err != nil {
		return false, err
	}
	if err := tx.queueAs(row, Waiting); err != nil {
		return false, err
	}
	if job.Wait.For != ForRun {
		return true, nil
	}
	var dep RunRow
	switch there, err := tx.Get(&dep, job.Wait.Run); {
	case err != nil:
		return false, err
	case !there:
		return true, tx.answer(row, &Answer{Result: HasEnded})
	case dep.Ended():
		return true, tx.answer(row, &Answer{Result: HasEnded, Status: dep.Status})
	}
	return true, nil
}

// waitKeys adds the keys of a run that waits.
func (r *RunRow) waitKeys(k *keys) {
	job, _ := JobOf(r)
	if job.Wait == nil {
		return
	}
	if !job.Due.IsZero() {
		k.list = append(k.list, dueKey(job.Due, k.first))
	}
	switch job.Wait.For {
	case ForRun:
		k.add(byAfter, job.Wait.Run)
	case ForEvent:
		k.add(byWaitEvent)
	}
}

// keys of the runs of handlers.
func (r *RunRow) handlerKeys(k *keys) {
	if _, ok := HandlerOf(r); !ok {
		return
	}
	k.add(byHandlerAll)
	k.add(byHandlerAgent, r.AgentName)
	if r.Ended() {
		k.add(byHandlerEnded, endedClass(r.Status))
	}
}

func (r *RunRow) keys(k *keys) {
	k.add(byRunAll)
	k.add(byRunWorkspace, r.WorkspaceID)
	k.some(byRunSession, r.SessionID)
	k.some(byRunInitiator, r.InitiatorRef)
	k.some(byRunParent, r.ParentRunID)
	k.add(byRunStatus, r.Status)
	switch {
	case r.Status == Queued:
		r.queueKeys(k)
	case r.Status == Waiting:
		r.waitKeys(k)
	case r.Active():
		k.add(byActiveAll)
		k.add(byActiveSpace, r.WorkspaceID)
		k.some(byRunActive, r.SessionID)
		k.some(byActiveSubject, r.InitiatorRef)
	}
	r.handlerKeys(k)
	r.jobKeys(k)
}

// Answer approves or denies what a run waits for. An empty key means the approval that the run
// waits for now. It returns [ErrState] for a run that does not wait for an approval, or has been
// answered.
func (h *History) Answer(ctx context.Context, run, key string, a Answer) error {
	if err := oneOf("result", a.Result, []string{Approved, Denied}); err != nil {
		return err
	}
	if len(a.Data)+len(a.Reason)+len(a.By) > MaxAnswer {
		return invalidf("the answer has more than %d bytes", MaxAnswer)
	}
	return h.Update(ctx, func(tx *Tx) error {
		var row RunRow
		if err := tx.must(&row, run); err != nil {
			return err
		}
		job, _ := JobOf(&row)
		if row.Ended() || job.Wait == nil || job.Wait.For != ForApproval || key != "" && key != job.Wait.Key {
			return fmt.Errorf("%w: run %q is %s, and does not wait for this approval", ErrState, run, row.Status)
		}
		return tx.answer(&row, &a)
	})
}

// Answer returns the answer with which the run was queued last, as JSON; nil for none.
func (r *Run) Answer(ctx context.Context, row *RunRow) (json.RawMessage, error) {
	job, _ := JobOf(row)
	if job.Answered == "" {
		return nil, nil
	}
	var s StepRow
	err := r.h.Get(ctx, &s, job.Answered)
	return s.Output, err
}

// timeCame answers a run that has waited until its time.
func (tx *Tx) timeCame(row *RunRow) error {
	job, _ := JobOf(row)
	a := Answer{Result: TimedOutWait}
	if job.Wait.For == ForTime {
		a.Result = TimeCame
	}
	return tx.answer(row, &a)
}

// due stores that a queued run is due, or that a run has waited until its time: for an event only
// if that was looked for.
func (tx *Tx) due(id string, asked map[string]bool) error {
	var row RunRow
	if err := tx.must(&row, id); err != nil {
		return err
	}
	job, _ := JobOf(&row)
	switch {
	case row.Status == Waiting && job.Wait.For == ForEvent && !asked[job.Wait.Step]:
		return nil // it has begun to wait meanwhile: it is looked at again
	case row.Status == Waiting:
		return tx.timeCame(&row)
	}
	job.Due = time.Time{}
	if err := SetJob(&row, job); err != nil {
		return err
	}
	return tx.Put(&row)
}
