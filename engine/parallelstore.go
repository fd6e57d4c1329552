package engine

import (
	"slices"
	"time"

	"thread/internal/store"
)

// settling is a ParallelFeed in the transaction that stores results.
type settling struct {
	*ParallelFeed
	tx    *Tx
	state *store.Delivery

	dead, notWanted []int64
}

// settle stores the result of a delivery.
func (w *settling) settle(d *outDelivery, r Result) error {
	now := w.tx.now()
	for _, p := range d.events {
		a, ok, err := w.tx.attempt(w.consumer, p.ID)
		if err != nil {
			return err
		}
		if !ok || a.Number != d.number { // settled, or handed back, by other means
			if w.stale = true; !slices.Contains(w.notWanted, d.number) {
				w.notWanted = append(w.notWanted, d.number)
			}
			continue
		}
		a.State, a.Group, a.Number = store.AttemptWaiting, 0, 0
		if p.letter {
			err = w.settleLetter(p, r)
		} else {
			err = w.settleOne(p, &a, r, now, int64(len(d.events)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *settling) settleOne(p *pending, a *store.Attempt, r Result, now time.Time, group int64) error {
	p.careful = false
	switch {
	case r.Verdict == Succeeded:
		return w.done(p)
	case r.Verdict == Returned:
	case r.Verdict == Postponed:
		postpone(&a.Failures, &r, now)
	case r.Verdict == Deferred:
		fail(&a.Failures, r, now, false)
		wait := r.Delay
		if wait <= 0 {
			wait = w.policy.Backoff(a.Deferrals)
		}
		if a.NextAt = now.Add(wait); !r.NotBefore.IsZero() {
			a.NextAt = r.NotBefore
		}
	case group > 1:
		a.Most = (group + 1) / 2
	default:
		a.Most = 1
		fail(&a.Failures, r, now, true)
		if r.Verdict != Failed || a.Round >= w.policy.MaxAttempts {
			w.dead = append(w.dead, p.ID)
			if err := w.done(p); err != nil {
				return err
			}
			return w.tx.putDead(w.consumer, p.ID, a.Failures)
		}
		if a.NextAt = now.Add(w.policy.Backoff(a.Round)); !r.NotBefore.IsZero() {
			a.NextAt = r.NotBefore
		}
	}
	p.at = *a
	w.requeue(p, now)
	return w.tx.putAttempt(w.consumer, p.ID, a)
}

// done settles an event. Its letters go: progress was moved back before, and it has
// are redelivered.
func (w *settling) done(p *pending) error {
	w.settled(span{p.prev + 1, p.ID, 1})
	w.drop(p)
	for _, table := range []store.Table{store.Attempts, store.Dead, store.Retries} {
		if err := w.tx.s.Delete(table, store.LetterKey(w.consumer, p.ID)); err != nil {
			return err
		}
	}
	return nil
}

func (w *settling) settleLetter(p *pending, r Result) error {
	key := store.LetterKey(w.consumer, p.ID)
	if err := w.tx.s.Delete(store.Attempts, key); err != nil {
		return err
	}
	policy := w.policy.Policy
	if r.Delay > 0 {
		policy.Backoff = func(int64) time.Duration { return r.Delay }
	}
	became, err := w.tx.settleRetry(w.consumer, &policy, &store.Delivery{First: p.ID, Count: 1, Retry: 1}, r)
	if err != nil {
		return err
	}
	if became == diedOut {
		w.dead = append(w.dead, p.ID)
	}
	v, err := w.tx.s.Get(store.Retries, key)
	if v == nil || err != nil {
		w.drop(p)
		return err
	}
	if p.at.Failures, err = store.DecodeLetter(key, v); err == nil {
		w.requeue(p, w.tx.now())
	}
	return err
}

// drop forgets an event that is settled.
func (f *ParallelFeed) drop(p *pending) {
	if f.loaded[p.ID] == p {
		delete(f.loaded, p.ID)
		f.bytes -= len(p.Content)
	}
}

// bareFrom is the length from which the content of an event that waits is read again
// when it is given out.
const bareFrom = 4096

// requeue keeps an event that is to be given out again.
func (f *ParallelFeed) requeue(p *pending, now time.Time) {
	if f.stale || f.loaded[p.ID] != p {
		return // what is loaded is read again
	}
	if !p.at.NextAt.IsZero() {
		if p.end = f.waits.end(p.ID, &p.at.Failures, now); p.end.After(now) {
			if p.letter {
				p.line.lettersWait++
			} else {
				p.line.waits++
			}
			if len(p.Content) >= bareFrom {
				f.bytes -= len(p.Content)
				p.Content, p.bare = "", true
			}
			f.waiting = append(f.waiting, p)
			return
		}
	}
	if p.letter {
		p.line.letters = insert(p.line.letters, p)
	} else {
		p.line.queue = insert(p.line.queue, p)
	}
}

// settled adds a range to the set.
func (f *ParallelFeed) settled(s span) {
	if s.last <= f.mark {
		return
	}
	s = f.spans.add(s, func(first int64) { f.dirty[first] = true })
	f.dirty[s.first] = true
}

// gapAtMark reports whether progress can move over what is settled or does not match.
func (f *ParallelFeed) gapAtMark() bool {
	if len(f.spans) > 0 && f.spans[0].first <= f.mark+1 {
		return !f.stale
	}
	return !f.stale && slices.ContainsFunc(f.gaps, func(r span) bool { return r.first <= f.mark+1 })
}

// save stores the set and moves the mark.
func (w *settling) save(p *Progress) error {
	if err := w.tx.cleanSet(w.consumer, w.state, p.From()); err != nil {
		return err
	}
	if len(w.spans) > 0 && w.spans[0].first <= w.mark+1 {
		w.dirty[w.spans[0].first] = true
		w.mark = max(w.mark, w.spans[0].last)
		w.spans = w.spans[1:]
		if w.mark > p.From() {
			if err := w.tx.putProgress(w.consumer, w.mark); err != nil {
				return err
			}
		}
		if w.state.Suspect <= w.mark {
			w.state.Suspect = 0
		}
	}
	for first := range w.dirty {
		var err error
		if s, ok := w.spans.find(first); ok && s.first == first {
			err = w.tx.putSpan(w.consumer, s)
		} else {
			err = w.tx.s.Delete(store.Settled, store.LetterKey(w.consumer, first))
		}
		if err != nil {
			return err
		}
	}
	clear(w.dirty)
	w.state.Mark = w.mark + 1
	return nil
}

// begin notes that a delivery that was in reserve has begun.
func (w *settling) begin(d *outDelivery) error {
	for _, p := range d.events {
		a, ok, err := w.tx.attempt(w.consumer, p.ID)
		if err != nil {
			return err
		}
		if !ok || a.Number != d.number || a.State != store.AttemptReserved {
			continue
		}
		a.State = store.AttemptRunning
		if err := w.tx.putAttempt(w.consumer, p.ID, &a); err != nil {
			return err
		}
	}
	d.begun = true
	return nil
}

// take takes the next events of a key.
func (w *settling) take(l *lineup) (events []*pending, err error) {
	if len(l.letters) > 0 {
		p := l.letters[0]
		l.letters = l.letters[1:]
		there, err := w.complete(p)
		if !there || err != nil {
			return nil, err
		}
		return []*pending{p}, nil
	}
	most := max(1, min(w.policy.Limit, w.policy.Window-w.inWindow()))
	for size := 0; len(l.queue) > 0 && int64(len(events)) < most && size < resultBytes; {
		p := l.queue[0]
		if p.at.Most > 0 && p.at.Most <= int64(len(events)) {
			break
		}
		l.queue = l.queue[1:]
		there, err := w.complete(p)
		if err != nil {
			return nil, err
		}
		if !there { // dropped by force
			if err := w.done(p); err != nil {
				return nil, err
			}
			continue
		}
		if p.at.Most > 0 {
			most = min(most, p.at.Most)
		}
		events = append(events, p)
		size += len(p.Content)
	}
	return events, nil
}

// complete reads the content of an event again whose content was let go.
func (w *settling) complete(p *pending) (there bool, err error) {
	if !p.bare {
		return true, nil
	}
	e, ok, err := w.tx.s.Event(p.ID)
	if ok && err == nil {
		p.Event, p.bare = e, false
		w.bytes += len(p.Content)
	}
	return ok, err
}

// note makes a delivery of events, durably.
func (w *settling) note(events []*pending, begins bool) (d Delivery, err error) {
	w.state.Number++
	out := &outDelivery{number: w.state.Number, events: events, begun: begins}
	d = Delivery{number: w.state.Number, Key: w.key.text(&events[0].Event), Retry: events[0].letter}
	if len(events) == 1 {
		d.Attempt = events[0].at.Attempts + 1
	}
	for _, p := range events {
		a := p.at
		if p.letter {
			a = store.Attempt{Resent: 1}
		}
		a.State, a.Group, a.Number = store.AttemptReserved, int64(len(events)), d.number
		if begins {
			a.State = store.AttemptRunning
		}
		if err := w.tx.putAttempt(w.consumer, p.ID, &a); err != nil {
			return d, err
		}
		d.Events = append(d.Events, p.Event)
		d.Careful = d.Careful || p.careful
	}
	w.out[out.number] = out
	w.outs += int64(len(events))
	return d, nil
}
