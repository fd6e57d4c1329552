package engine

import (
	"context"

	"thread/filter"
	"thread/internal/store"
)

// reload reads everything again: what others have changed, or what there is when a feed
// begins.
func (f *ParallelFeed) reload(ctx context.Context) error {
	if !f.opened {
		if err := f.adopt(ctx); err != nil {
			return err
		}
		f.opened = true
	}
	return f.t.read(ctx, func(tx *Tx) error {
		s, err := f.subscription(tx)
		if err != nil {
			return err
		}
		match, err := filter.Compile(s.Where())
		if err != nil {
			return err
		}
		state, err := tx.delivery(f.consumer)
		if err != nil {
			return err
		}
		p, _, err := tx.Progress(f.consumer)
		if err != nil {
			return err
		}
		f.where, f.mark, f.moved, f.resent = s.Where(), p.From(), state.Moved, state.Retried
		if f.spans, err = tx.settledAbove(f.consumer, &state, f.mark); err != nil {
			return err
		}
		clear(f.dirty)
		f.gaps, f.ready, f.waiting, f.bytes, f.outs = nil, nil, nil, 0, 0
		f.keys, f.loaded, f.known = make(map[string]*lineup), make(map[int64]*pending), make(map[int64]store.Attempt)
		f.scan = scans{selection: store.NewSelection(match, nil), pos: f.mark, prev: f.mark}
		if upto := tx.checkedUpTo(s, f.mark); upto > f.mark && len(f.spans) == 0 {
			f.scan.pos = upto
		}
		err = tx.eachAttempt(f.consumer, func(id int64, a store.Attempt) (bool, error) {
			if _, settled := f.spans.find(id); id > f.mark && !settled && a.Resent == 0 {
				f.known[id] = a
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		for id, a := range f.known {
			if id <= state.Suspect && a.Most == 0 {
				a.Most = 1
				f.known[id] = a
			}
		}
		for _, d := range f.out {
			line := f.lineup(d.events[0].line.key)
			line.busy++
			f.outs += int64(len(d.events))
			for _, p := range d.events {
				p.line = line
				if a, ok := f.known[p.ID]; p.letter || ok && a.Number == d.number {
					delete(f.known, p.ID)
					f.loaded[p.ID] = p
					f.bytes += len(p.Content)
				}
			}
		}
		f.stale = false
		return f.loadLetters(tx)
	})
}

// loadLetters loads the dead letters that were sent back.
func (f *ParallelFeed) loadLetters(tx *Tx) error {
	now := tx.now()
	n := 0
	f.scan.letters = false
	return tx.eachLetter(store.Retries, f.consumer, func(k, v []byte) (bool, error) {
		_, id, err := store.SplitLetterKey(k)
		if err != nil {
			return false, err
		}
		_, settled := f.spans.find(id)
		if id > f.mark && !settled || f.loaded[id] != nil {
			return true, nil // progress was moved back, and it comes by itself; or it is in flight
		}
		l, err := store.DecodeLetter(k, v)
		if err != nil {
			return false, err
		}
		if !f.waits.end(id, &l, now).After(now) { // those that wait hold up nothing
			n++
		}
		if n > lettersAhead {
			f.scan.letters = true
			return false, nil
		}
		e, there, err := tx.s.Event(id)
		if !there || err != nil {
			return err == nil, err
		}
		p := &pending{Event: e, letter: true, line: f.lineup(f.key.of(&e))}
		p.at.Failures = l
		a, _, err := tx.attempt(f.consumer, id)
		p.careful = a.State == store.AttemptReserved
		f.loaded[id] = p
		f.bytes += len(p.Content)
		f.requeue(p, now)
		f.queueUp(p.line)
		return true, err
	})
}

// adopt settles what those have left who had the consumer before: what was durably
// running has failed.
func (f *ParallelFeed) adopt(ctx context.Context) error {
	needed := false
	err := f.t.read(ctx, func(tx *Tx) error {
		state, err := tx.delivery(f.consumer)
		if err != nil {
			return err
		}
		needed = state.Count > 0 || state.Failing > 0 || state.Window != 0 && state.Window != f.policy.Window
		return tx.eachAttempt(f.consumer, func(_ int64, a store.Attempt) (bool, error) {
			needed = needed || a.State == store.AttemptRunning
			return !needed, nil
		})
	})
	if err != nil || !needed {
		return err
	}
	return f.t.Update(ctx, func(tx *Tx) error {
		state, err := tx.delivery(f.consumer)
		if err != nil {
			return err
		}
		if state.Count > 0 {
			if _, err := tx.settle(f.consumer, &f.policy.Policy, &state, nil, interrupted); err != nil {
				return err
			}
		}
		p, _, err := tx.Progress(f.consumer)
		if err != nil {
			return err
		}
		if state.Failing > p.From() {
			if err := tx.putAttempt(f.consumer, state.Failing, &store.Attempt{Failures: state.Letter, Most: 1}); err != nil {
				return err
			}
		}
		clearFailures(&state)
		state.Window = f.policy.Window // so that others know why nothing is given out
		if err := tx.adoptAttempts(f.consumer, &f.policy.Policy, &state, p.From()); err != nil {
			return err
		}
		return tx.putDelivery(f.consumer, &state)
	})
}

// adoptAttempts settles as interrupted whatever was running, and forgets attempts at
// what is settled.
func (tx *Tx) adoptAttempts(consumer string, p *Policy, state *store.Delivery, from int64) error {
	type row struct {
		id int64
		a  store.Attempt
	}
	var rows []row
	err := tx.eachAttempt(consumer, func(id int64, a store.Attempt) (bool, error) {
		rows = append(rows, row{id, a})
		return true, nil
	})
	if err != nil {
		return err
	}
	set, err := tx.settledAbove(consumer, state, from)
	if err != nil {
		return err
	}
	now := tx.now()
	for i := range rows {
		id, a := rows[i].id, &rows[i].a
		running := a.State == store.AttemptRunning
		group := a.Group
		_, settled := set.find(id)
		switch {
		case a.Resent == 1:
			if !running {
				continue
			}
			if _, err := tx.settleRetry(consumer, p, &store.Delivery{First: id, Count: 1, Retry: 1}, interrupted); err != nil {
				return err
			}
			*a = store.Attempt{}
		case settled || id <= from:
			*a = store.Attempt{}
		case !running:
			continue
		default:
			a.State, a.Group, a.Number = store.AttemptWaiting, 0, 0
			if group > 1 {
				a.Most = (group + 1) / 2
				break
			}
			a.Most = 1
			fail(&a.Failures, interrupted, now, true)
			if a.Round < p.MaxAttempts {
				a.NextAt = now.Add(p.Backoff(a.Round))
				break
			}
			if err := tx.putDead(consumer, id, a.Failures); err != nil {
				return err
			}
			if err := tx.settleAt(consumer, state, from, id, &set); err != nil {
				return err
			}
			*a = store.Attempt{}
		}
		if err := tx.putAttempt(consumer, id, a); err != nil {
			return err
		}
	}
	return nil
}

// settleAt adds a single event to the set. A feed joins it with the mark.
func (tx *Tx) settleAt(consumer string, state *store.Delivery, from, id int64, set *spans) (err error) {
	if err := tx.cleanSet(consumer, state, from); err != nil {
		return err
	}
	s := set.add(span{id, id, 1}, func(first int64) {
		if derr := tx.s.Delete(store.Settled, store.LetterKey(consumer, first)); err == nil {
			err = derr
		}
	})
	if err != nil {
		return err
	}
	return tx.putSpan(consumer, s)
}
