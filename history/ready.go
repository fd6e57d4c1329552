package history

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"thread/lock"
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

func readyKey(r *RunRow, number int64) []byte {
	job, _ := JobOf(r)
	b := prefix(byReady, r.EffectiveAgentName)
	b = binary.BigEndian.AppendUint64(b, ^uint64(job.Priority))
	return binary.BigEndian.AppendUint64(b, uint64(number))
}

// rankOf returns the part of a key in byReady that orders runs of all agents.
func rankOf(key []byte) []byte { return key[len(key)-16:] }

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

// ready returns how many runs may start, of each session one.
func (tx *Tx) ready() (n int) {
	for _, index := range []byte{byReady, byReadyOld} {
		for range tx.by.Ascend([]byte{index}, after([]byte{index})) {
			n++
		}
	}
	return n
}

// releaseRows is how many runs are released in one commit.
const releaseRows = 256

// release queues the runs that have become due, and returns when the next one is, the zero
// time where there is none, and whether a run may be ready. The event that a run waits for is
// looked for after the moment at which the time of the wait has come: an event that came
// before is the answer.
func (h *History) release(ctx context.Context) (next time.Time, ready bool, err error) {
	for first := true; ; first = false {
		var upto time.Time
		todo, waits := false, false
		err = h.View(h.wantsIndexes(ctx, nil, queuePlaces...), func(tx *Tx) error {
			upto = tx.now
			ids, at, old := tx.toRelease(upto)
			next, todo, waits = at, len(ids) > 0 || old, tx.any([]byte{byWaitEvent})
			ready = tx.any([]byte{byReady})
			return nil
		})
		h.mu.Lock()
		h.eventsWaited = waits
		h.mu.Unlock()
		var asked map[string]bool // the waits for events that were looked for
		if err == nil && waits && (first || todo) {
			asked, err = h.answerEvents(ctx)
			ready = true // with an answer
		}
		if err != nil || !todo {
			return next, ready, err
		}
		err = h.Update(ctx, func(tx *Tx) error {
			ids, _, old := tx.toRelease(upto)
			if old {
				if err := tx.readyOld(); err != nil {
					return err
				}
			}
			for _, id := range ids {
				if err := tx.due(id, asked); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return next, false, err
		}
	}
}

// queuePlaces are where release and take begin to look in the indexes.
var queuePlaces = [][]byte{{byReady}, {byDue}, {byReadyOld}, {byWaitEvent}}

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

// heldAgain is how long a run is passed over whose last worker has not let go of it.
const heldAgain = 20 * time.Millisecond

// take begins the run that is to start next, and returns noneReady where there is none.
func (tx *Tx) take(ctx context.Context, o *runOptions) (r *Run, row RunRow, err error) {
	none := new(noneReady)
	limits := tx.startLimits()
	passed := map[string]bool{}
	for {
		id, err := tx.next(o, limits, passed, none)
		if err != nil {
			return nil, row, err
		}
		if id == "" {
			if none.commit, err = limits.anchor(); err != nil {
				return nil, row, err
			}
			return nil, row, none
		}
		if err := tx.must(&row, id); err != nil {
			return nil, row, err
		}
		row.Supervised = o.supervised
		r = &Run{h: tx.h, id: row.ID, attempt: row.Attempt + 1}
		switch err := r.claimLock(ctx, o); {
		case errors.Is(err, lock.ErrHeld):
			passed[id] = true
			none.sooner(tx.local(tx.now.Add(heldAgain)))
			continue
		case err != nil:
			return r, row, err
		}
		if err := limits.count(&row); err != nil {
			return r, row, err
		}
		if o.alone { // its function will most likely ask
			if r.input, err = tx.input(row.ID); err != nil {
				return r, row, err
			}
			r.hasInput = true
		}
		return r, row, tx.begin(&row, o)
	}
}

// next returns the id of the run that is to start next, "" where there is none.
func (tx *Tx) next(o *runOptions, limits *startLimits, passed map[string]bool, none *noneReady) (id string, err error) {
	var best []byte
	for _, p := range tx.readyAgents(o.agents) {
		for rec := range tx.by.Ascend(p, after(p)) {
			if best != nil && bytes.Compare(rankOf(rec.Key), best) > 0 {
				break
			}
			if passed[string(rec.Value)] {
				continue
			}
			var row RunRow
			if err := tx.must(&row, string(rec.Value)); err != nil {
				return "", err
			}
			switch err := tx.checkLimits(&row, true, false); {
			case errors.Is(err, ErrLimit):
				continue
			case err != nil:
				return "", err
			}
			at, all, err := limits.when(&row)
			switch {
			case err != nil:
				return "", err
			case !at.IsZero():
				none.sooner(tx.local(at))
				if all {
					return "", nil
				}
				continue
			}
			best, id = bytes.Clone(rankOf(rec.Key)), row.ID
			break
		}
	}
	return id, nil
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
