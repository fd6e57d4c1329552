package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"thread/engine"
	"thread/event"
)

// settled stores what belongs to the result of a record, in the transaction of the
// result itself: the receipt, the notification, the feedback (O-09, O-13).
func (r *relay) settled(tx *engine.Tx, s *engine.Settled) error {
	if s.Result.Verdict == engine.Returned || s.Result.Verdict == engine.Postponed {
		return nil
	}
	rows, err := tx.Records(tableRows)
	if err != nil {
		return err
	}
	kept, ok, err := getRow(rows, s.First)
	if err != nil || !ok {
		return err // it was not stored by Insert, and is a dead letter now
	}
	d := r.out
	if r.quiet != nil && r.quiet.id == s.First {
		d, r.quiet = r.quiet, nil
	}
	if s.Interrupted || d == nil || d.id != s.First {
		if d, err = r.interrupted(tx, s); d == nil || err != nil {
			return err
		}
	}
	now := tx.Now()
	if !s.Acked {
		kept.RetryCount = s.Failures.Attempts
		r.stored.Failures++
	}
	if s.Dead {
		r.stored.Failed++
	}
	if d.receipt != nil {
		if err := kept.keep(tx, d, s, now); err != nil {
			return err
		}
		if d.receipt.Status != Refused {
			r.stored.Triggered++
		}
	}
	if s.Acked {
		kept.ProcessedAt = event.FormatTime(now)
		r.stored.Processed++
	}
	if err := r.notify(tx, s.First, d, &kept); err != nil {
		return err
	}
	if err := putRow(rows, s.First, &kept); err != nil {
		return err
	}
	if d.receipt == nil {
		return nil
	}
	_, err = Insert(tx, feedback(d, kept.Receipted))
	return err
}

// notify writes the notification of a record, if there is to be one, and notes that in its row.
// It depends on no agent (O-04, O-13).
func (r *relay) notify(tx *engine.Tx, id int64, d *delivery, kept *row) error {
	if !d.plan.Notify || kept.Notified {
		return nil
	}
	if err := notify(tx, id, d.plan.user.String(), &d.message); err != nil {
		return err
	}
	kept.Notified = true
	r.stored.Notifications++
	return nil
}

// interrupted returns the delivery that another process has left, with the receipt of
// its end if a handler may have run; nil when its event is not stored any more.
func (r *relay) interrupted(tx *engine.Tx, s *engine.Settled) (*delivery, error) {
	e, stored, err := tx.Event(s.First)
	if err != nil || !stored {
		return nil, err
	}
	m, err := ReadMessage([]byte(e.Content))
	if err != nil {
		return nil, nil // it is rejected when it is redelivered
	}
	settings, err := ReadSettings(tx)
	if err != nil {
		return nil, err
	}
	p, invalid, err := planOf(tx, &m, settings)
	if err != nil || invalid != nil {
		return nil, err
	}
	d := &delivery{id: s.First, attempt: s.Failures.Attempts, message: m, plan: p}
	if p.Trigger {
		d.receipt = &Receipt{Status: Refused, Reason: s.Result.Error}
		if r.Recorder != nil {
			if id := r.Recorder.Left(context.Background(), Run{TriggerRef: m.EventID, Initiator: m.ActorUserID.String(), Attempt: d.attempt}); id != "" {
				d.receipt.RunID = &id
			}
		}
	}
	return d, nil
}

// keep stores the receipt of a delivery.
func (k *row) keep(tx *engine.Tx, d *delivery, s *engine.Settled, now time.Time) error {
	stored := StoredReceipt{Receipt: *d.receipt, ExternalRunID: d.externalRunID, TraceID: d.message.TraceID, Attempt: d.attempt, ExitCode: s.Result.ExitCode, At: event.FormatTime(now)}
	stored.NextRetryAt = nil
	if !s.Acked && !s.Dead && !s.Failures.NextAt.IsZero() {
		at := event.FormatTime(s.Failures.NextAt)
		stored.NextRetryAt = &at
	}
	if stored.RunID != nil {
		k.RunID = *stored.RunID
	}
	k.Receipted = max(k.Receipted, int64(len(k.Receipts))) + 1
	table, err := tx.Records(tableReceipts)
	if err != nil {
		return err
	}
	v, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	return table.Put(receiptKey(d.id, k.Receipted), v)
}

// feedback returns the message that tells of an execution: from the agent, for whom
// it was triggered by. n is the number of the receipt, from 1. Nothing triggers on it, so
// there is none of a feedback.
func feedback(d *delivery, n int64) Message {
	m := &d.message
	actor := d.plan.agent.user
	if actor.IsNull() {
		actor = TextID(d.plan.agent.name)
	}
	f := Message{
		EventID: fmt.Sprintf("fb_%s_%d", m.EventID, n), EventType: ActionFeedback, TraceID: m.TraceID,
		ActorUserID: actor, TargetUserID: m.ActorUserID,
		ThreadID: m.ThreadID, CommentID: m.CommentID, ParentCommentID: m.ParentCommentID,
		ContentPreview: d.receipt.Reason, Language: m.Language,
	}
	f.Extra = []Member{
		{"cause_event_id", event.AppendString(nil, m.EventID)},
		{"status", event.AppendString(nil, d.receipt.Status)},
		{"attempt", fmt.Append(nil, d.attempt)},
	}
	if d.receipt.RunID != nil {
		f.Extra = append(f.Extra, Member{"run_id", event.AppendString(nil, *d.receipt.RunID)})
	}
	return f
}
