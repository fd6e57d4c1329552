package trigger

import (
	"context"
	"errors"
	"fmt"

	"thread/engine"
)

// store is the transaction of the intake. It may run more than once.
func (t *Trigger) store(ctx context.Context, items []*item) error {
	told := t.told
	err := t.th.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		if err := t.settleKeys(r, told); err != nil {
			return err
		}
		book, err := openLedger(r, &t.cfg)
		if err != nil {
			return err
		}
		k, err := newKnown(r, &t.cfg)
		if err != nil {
			return err
		}
		keyed := 0
		for _, i := range items {
			i.fresh, i.revived = false, false
			if err := t.storeOne(tx, k, book, i); err != nil {
				return fmt.Errorf("message %s: %w", i.env.MessageID, err)
			}
			if i.keyed {
				keyed++
			}
		}
		if err := k.store(); err != nil {
			return err
		}
		if err := sweepKeys(r, t.now(), sweepAtLeast+2*keyed); err != nil {
			return err
		}
		t.subscribed = tx.HasSubscriptions()
		return book.sweep()
	})
	switch {
	case err == nil:
		t.told = t.told[len(told):]
	case errors.Is(err, engine.ErrUnknownOutcome):
		for _, i := range items {
			tried := *i
			i.tried = &tried
		}
	}
	return err
}

// storedBefore reports whether an attempt whose outcome was not known has stored the
// item after all. It is then as that attempt left it, and no duplicate.
func (t *Trigger) storedBefore(r *engine.Records, i *item) (bool, error) {
	if i.tried == nil || i.tried.known {
		return false, nil
	}
	ours := i.known && i.m.Position != nil
	if !ours && i.tried.event != 0 {
		k, err := t.keyOf(r, i)
		if err != nil {
			return false, err
		}
		ours = k != nil && k.state == unsettled && k.event == i.tried.event
	}
	if ours {
		tried := i.tried
		*i = *tried
		i.tried = tried // this attempt may fail, too
	}
	return ours, nil
}

// storeOne stores one message with its position, key and row of the ledger.
func (t *Trigger) storeOne(tx *engine.Tx, places *known, book *ledger, i *item) error {
	asked := i.known
	if err := t.lookOne(places, i, nil); err != nil {
		return err
	}
	r := places.r
	if ours, err := t.storedBefore(r, i); ours || err != nil {
		return err
	}
	// What was known and is over by now was neither asked about nor sent away: it
	// counts as known.
	i.known = i.known || asked
	now := t.now()
	row := Row{}
	if t.cfg.Ledger {
		row = t.cfg.row(i, now)
	}
	var k *keyRecord
	switch {
	case i.known:
		row.Status = StatusDuplicate
	case i.err != nil:
		row.Status, row.Error = StatusParseError, text(Redact(i.err.Error()))
	case i.rejected != nil:
		row.Status, row.Error = StatusRejected, i.rejected
		if i.requeue && i.at != nil {
			k = &keyRecord{state: requeued, deliveries: i.deliver}
		}
	default:
		row.Status = StatusStored
		if i.state == requeued && i.event != 0 {
			ok, err := tx.Retry(t.cfg.Consumer, i.event)
			if err != nil {
				return err
			}
			i.revived = ok
		}
		if !i.revived {
			e, err := tx.Push(i.draft)
			if err != nil {
				return err
			}
			i.event, i.fresh = e.ID, true
		}
		if i.keyed || i.state == requeued {
			k = &keyRecord{state: unsettled, event: i.event, deliveries: i.deliver}
		}
	}
	if k == nil && i.state == requeued && !i.known { // it is not asked for again
		k = &keyRecord{state: unsettled, event: i.event, deliveries: i.deliver}
	}
	row.Event = i.event
	if t.cfg.Ledger {
		var err error
		if i.row, err = book.add(&row); err != nil {
			return err
		}
	}
	if k != nil {
		if err := putKey(r, i.at, i.found, k); err != nil {
			return err
		}
	}
	if t.cfg.Settle == SettleHandled && (i.fresh || i.revived) {
		if err := putJSON(r, t.cfg.openKey(i.event), t.cfg.openRecord(i)); err != nil {
			return err
		}
	}
	for _, w := range i.m.State {
		if err := t.state.write(r, w); err != nil {
			return err
		}
	}
	if p := i.m.Position; p != nil {
		return places.move(p)
	}
	return nil
}

// settleKeys marks the keys of messages that the broker was told of: from now their
// window runs.
func (t *Trigger) settleKeys(r *engine.Records, told []toldKey) error {
	for _, s := range told {
		b, err := get(r, s.at)
		if b == nil || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		old, err := decodeKey(b)
		if err != nil {
			return err
		}
		if old.state != unsettled {
			continue
		}
		if s.drop {
			if err := r.Delete(s.at); err != nil {
				return err
			}
			continue
		}
		k := old
		k.state, k.settledAt, k.window = settled, s.when.UnixMilli(), t.cfg.window()
		if err := putKey(r, s.at, &old, &k); err != nil {
			return err
		}
	}
	return nil
}
