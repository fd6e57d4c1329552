package outbox

import (
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
		kept.keep(d, s, now)
		if d.receipt.Status != Refused {
			r.stored.Triggered++
		}
	}
	if s.Acked {
		kept.ProcessedAt = event.FormatTime(now)
		r.stored.Processed++
	}
	if err := putRow(rows, s.First, &kept); err != nil {
		return err
	}
	if s.Acked && d.decision.Notify {
		if err := notify(tx, s.First, &d.message); err != nil {
			return err
		}
		r.stored.Notifications++
	}
	if d.receipt == nil || s.Result.Verdict == engine.Deferred {
		return nil
	}
	_, err = Insert(tx, feedback(d))
	return err
}

// interrupted returns the delivery that somebody else has left, with the receipt of
// its end if a handler may have run; nil when its event is not stored any more.
func (r *relay) interrupted(tx *engine.Tx, s *engine.Settled) (*delivery, error) {
	e, stored, err := tx.Event(s.First)
	if err != nil || !stored {
		return nil, err
	}
	m, err := ParseMessage([]byte(e.Content))
	if err != nil {
		return nil, nil // it is rejected when it comes again
	}
	settings, err := ReadSettings(tx)
	if err != nil {
		return nil, err
	}
	d := &delivery{id: s.First, attempt: s.Failures.Attempts, message: m, decision: Decide(&m, settings)}
	if d.decision.Trigger {
		d.receipt = &Receipt{Status: Refused, Reason: s.Result.Error}
	}
	return d, nil
}

// keep adds the receipt of a delivery.
func (k *row) keep(d *delivery, s *engine.Settled, now time.Time) {
	stored := StoredReceipt{Receipt: *d.receipt, TraceID: d.message.TraceID, Attempt: d.attempt, ExitCode: s.Result.ExitCode, At: event.FormatTime(now)}
	stored.NextRetryAt = nil
	if !s.Acked && !s.Dead && !s.Failures.NextAt.IsZero() {
		at := event.FormatTime(s.Failures.NextAt)
		stored.NextRetryAt = &at
	}
	if k.Receipts = append(k.Receipts, stored); len(k.Receipts) > maxReceipts {
		k.Receipts = k.Receipts[len(k.Receipts)-maxReceipts:]
	}
	if stored.RunID != nil {
		k.RunID = *stored.RunID
	}
}

// feedback returns the message that tells of an execution: from the agent, for whom
// it was triggered by. Nothing triggers on it, so there is none of a feedback.
func feedback(d *delivery) Message {
	m := &d.message
	f := Message{
		EventID: fmt.Sprintf("fb_%s_%d", m.EventID, d.attempt), EventType: ActionFeedback, TraceID: m.TraceID,
		ActorUserID: m.TargetUserID, TargetUserID: m.ActorUserID,
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
