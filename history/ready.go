package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A queued run is in one of these places:
//
//	byReady     it may start: agent, inverted priority, number
//	byRunQueued it is in its session's queue, whose first one is in byReady, see settle
//	byDue       it is not due, or waits until a time: milliseconds, number
//	byAfter, byGroupWaits  it waits for other runs to end
//
// A run between two attempts keeps its session (byRunHeld). One that was never started
// does not: it takes its place in the session when it is due.

// queueKeys adds the keys of a queued run.
func (r *RunRow) queueKeys(k *keys) {
	job, _ := JobOf(r)
	joins := job.joins()
	switch {
	case joins || !job.Due.IsZero():
		if r.Attempt > 0 {
			k.some(byRunHeld, r.SessionID)
		}
	case r.SessionID == "":
		k.list = append(k.list, readyKey(r, k.first))
	default:
		k.add(byRunQueued, r.SessionID)
	}
	if !job.Due.IsZero() {
		k.list = append(k.list, dueKey(job.Due, k.first))
	}
	if !joins {
		return
	}
	for _, id := range job.After {
		k.add(byAfter, id)
	}
	k.some(byGroupWaits, job.AfterGroup)
}

// jobKeys adds the keys that a run has in any state.
func (r *RunRow) jobKeys(k *keys) {
	job, ok := JobOf(r)
	if !ok {
		return
	}
	if !r.Ended() {
		k.some(byUnique, job.Unique)
	}
	switch {
	case job.Group == "":
	case !r.Ended():
		k.add(byGroupOpen, job.Group)
	case r.Status == Completed:
		k.add(byGroupDone, job.Group)
	default:
		k.add(byGroupFailed, job.Group)
	}
}

func dueKey(at time.Time, number int64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{byDue}, uint64(max(0, at.UnixMilli())))
	return binary.BigEndian.AppendUint64(b, uint64(number))
}

// settle keeps the index of ready runs after a change of a run: of each session its
// first queued run is in it, as long as no run of the session is active or between two
// attempts.
func (tx *Tx) settle(old, row Row) error {
	seen := ""
	for _, r := range []Row{old, row} {
		run, ok := r.(*RunRow)
		if !ok || run == nil || run.SessionID == "" || run.SessionID == seen || run.Ended() && old == nil {
			continue
		}
		seen = run.SessionID
		first, id, err := tx.firstOf(seen)
		if err != nil {
			return err
		}
		head := prefix(byReadyHead, seen)
		is := bytes.Clone(tx.by.Get(head))
		if bytes.Equal(is, first) {
			continue
		}
		if len(is) == 8 { // as older versions of this program wrote it
			is = append([]byte{byReadyOld}, is...)
		}
		if is != nil {
			if err := tx.by.Delete(is); err != nil {
				return err
			}
		}
		if first == nil {
			if err := tx.by.Delete(head); err != nil {
				return err
			}
			continue
		}
		if err := tx.by.Put(first, []byte(id)); err != nil {
			return err
		}
		if err := tx.by.Put(head, first); err != nil {
			return err
		}
	}
	return nil
}

// firstOf returns the key in byReady of the run of a session that may start, nil for none.
func (tx *Tx) firstOf(session string) (key []byte, id string, err error) {
	if tx.any(prefix(byRunActive, session)) || tx.any(prefix(byRunHeld, session)) {
		return nil, "", nil
	}
	p := prefix(byRunQueued, session)
	for rec := range tx.by.Ascend(p, after(p)) {
		number := numberOf(rec.Key)
		id = string(rec.Value)
		var row RunRow
		if err := tx.must(&row, id); err != nil {
			return nil, "", err
		}
		return readyKey(&row, number), id, nil
	}
	return nil, "", nil
}

// any reports whether an index has a key that begins with p.
func (tx *Tx) any(p []byte) bool {
	for range tx.by.Ascend(p, after(p)) {
		return true
	}
	return false
}

// readyOld moves what older versions of this program have queued to byReady.
func (tx *Tx) readyOld() error {
	for _, id := range tx.ids([]byte{byReadyOld}) {
		var row RunRow
		v, ok, err := tx.read(&row, rowKey(RunEntity, id))
		if err != nil {
			return err
		}
		switch {
		case !ok || row.Status != Queued:
		case row.SessionID != "":
			err = tx.settle(nil, &row)
		default:
			err = tx.by.Put(readyKey(&row, v.first), []byte(id))
		}
		if err != nil {
			return err
		}
	}
	p := []byte{byReadyOld}
	for tx.any(p) {
		for rec := range tx.by.Ascend(p, after(p)) {
			if err := tx.by.Delete(bytes.Clone(rec.Key)); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// ids returns the ids of the rows in an index, in its order.
func (tx *Tx) ids(p []byte) (ids []string) {
	for rec := range tx.by.Ascend(p, after(p)) {
		ids = append(ids, string(rec.Value))
	}
	return ids
}

// releaseRows is how many runs are released in one commit.
const releaseRows = 256

// toRelease returns runs that have become due by then, and when the next one is: the zero time
// where there is none or that is not known yet. It also reports whether there are runs as older
// versions of this program have queued them.
func (tx *Tx) toRelease(upto time.Time) (ids []string, next time.Time, old bool) {
	p := []byte{byDue}
	for rec := range tx.by.Ascend(p, after(p)) {
		at := time.UnixMilli(int64(binary.BigEndian.Uint64(rec.Key[1:])))
		if at.After(upto) {
			next = tx.local(at)
			break
		}
		if ids = append(ids, string(rec.Value)); len(ids) == releaseRows {
			break
		}
	}
	return ids, next, tx.any([]byte{byReadyOld})
}

// mayRelease reports whether release may have something to do.
func (tx *Tx) mayRelease() bool {
	ids, _, old := tx.toRelease(tx.now)
	return len(ids) > 0 || old || tx.any([]byte{byWaitEvent})
}

// noneReady says when a run may be ready: the zero time where only a change can tell.
type noneReady struct {
	at     time.Time
	commit bool // what the claim has written is to be stored
}

func (*noneReady) Error() string { return ErrNoneReady.Error() }

func (*noneReady) Unwrap() error { return ErrNoneReady }

// sooner lets e look again at that time, if it is before what is known.
func (e *noneReady) sooner(at time.Time) {
	if !at.IsZero() && (e.at.IsZero() || at.Before(e.at)) {
		e.at = at
	}
}

// local returns a time of the history by the clock of this host, from which a server's differs.
func (tx *Tx) local(at time.Time) time.Time {
	if tx.h.of == nil {
		return at
	}
	return at.Add(tx.h.now().Sub(tx.now))
}

// readyAgents returns the prefixes of these agents in byReady, of all that are in it where
// none is named.
func (tx *Tx) readyAgents(agents []string) (list [][]byte) {
	for _, a := range agents {
		list = append(list, prefix(byReady, a))
	}
	if len(agents) > 0 {
		return list
	}
	end := after([]byte{byReady})
	for from := []byte{byReady}; from != nil; {
		var p []byte
		for rec := range tx.by.Ascend(from, end) {
			p = bytes.Clone(rec.Key[:len(rec.Key)-16])
			break
		}
		if p == nil {
			break
		}
		list, from = append(list, p), after(p)
	}
	return list
}

// End is how a run ends.
type End struct {
	Status                  string // Completed, Failed, Cancelled or TimedOut; Waiting after ErrWaiting
	ErrorCode, ErrorMessage string
	// Later, above 0, queues the run again, due after that time, in place of its end.
	Later time.Duration
	// Also writes more rows in the same commit, if it is set. It may be called more often than
	// once, each time in a transaction that has none of its rows.
	Also func(tx *Tx) error
}

// again queues a run whose attempt ended in that way once more. It returns false where the
// run has ended.
func (tx *Tx) again(row *RunRow, e *End) (bool, error) {
	job, _ := JobOf(row)
	failed := e.Status == Failed || e.Status == TimedOut
	switch {
	case !row.CancelRequestedAt.IsZero(), e.ErrorCode == CodeOutcome:
		return false, nil
	case e.Later > 0:
		job.Due = tx.now.Add(e.Later)
	case failed && job.Failures < job.Retries:
		job.Failures++
		job.Due = tx.now.Add(job.Pause())
		job.LastError = e.ErrorMessage
	default:
		return false, nil
	}
	if err := SetJob(row, job); err != nil {
		return false, err
	}
	return true, tx.queueAs(row, Queued)
}

// queueAs stores the run as Queued or Waiting, without what its last attempt has left.
func (tx *Tx) queueAs(row *RunRow, status string) error {
	beat := row.HeartbeatAt
	*row = RunRow{ID: row.ID, WorkspaceID: row.WorkspaceID, SessionID: row.SessionID, ParentRunID: row.ParentRunID,
		TriggerType: row.TriggerType, TriggerRef: row.TriggerRef, InitiatorRef: row.InitiatorRef,
		AgentName: row.AgentName, EffectiveAgentName: row.EffectiveAgentName, SwitchCount: row.SwitchCount,
		Status: status, Metadata: row.Metadata, CreatedAt: row.CreatedAt, Attempt: row.Attempt, BeatEvery: row.BeatEvery, HeartbeatAt: beat}
	return tx.Put(row)
}

// CodeOutcome is the error code of a run in which the outcome of a step is unknown. The run is
// not tried again.
const CodeOutcome = "outcome_unknown"

// endOf returns how a run ends whose function returned err, and whose context ended with cause.
func endOf(ctx context.Context, cause, err error) End {
	var later Later
	switch {
	case err == nil:
		return End{Status: Completed}
	case errors.Is(cause, ErrCancelled):
		return End{Status: Cancelled, ErrorCode: "cancelled", ErrorMessage: err.Error()}
	case errors.Is(cause, errTimeout):
		return End{Status: TimedOut, ErrorCode: "timeout", ErrorMessage: err.Error()}
	case errors.Is(err, ErrWaiting):
		return End{Status: Waiting, ErrorCode: "error", ErrorMessage: err.Error()}
	case errors.Is(err, ErrOutcome):
		return End{Status: Failed, ErrorCode: CodeOutcome, ErrorMessage: err.Error()}
	case errors.As(err, &later):
		return End{Status: Failed, ErrorCode: "later", ErrorMessage: err.Error(), Later: max(time.Duration(later), time.Millisecond)}
	case ctx.Err() != nil:
		return End{Status: Failed, ErrorCode: "later", ErrorMessage: fmt.Sprintf("the worker ends: %v", err), Later: time.Millisecond}
	}
	return End{Status: Failed, ErrorCode: "error", ErrorMessage: err.Error()}
}
