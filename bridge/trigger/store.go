package trigger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

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
			i.fresh, i.revived, i.key = false, false, nil
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
		if err := putKeys(r, items); err != nil {
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
		i.tried, i.key = tried, nil // this attempt may fail, too
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
	// What was known and has ended by now was neither asked about nor sent away: it
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
	if i.err != nil || i.rejected != nil {
		if err := t.putParked(r, i.park); err != nil {
			return err
		}
	}
	row.Event = i.event
	if t.cfg.Ledger {
		var err error
		if i.row, err = book.add(&row); err != nil {
			return err
		}
	}
	i.key = k
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

// putKeys stores the records of keys, in their order: in any other one each record moves
// those behind it in a page that is not split before the commit.
func putKeys(r *engine.Records, items []*item) error {
	var list []*item
	for _, i := range items {
		if i.key != nil {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b *item) int { return bytes.Compare(a.at, b.at) })
	for _, i := range list {
		if err := putKey(r, i.at, i.found, i.key); err != nil {
			return err
		}
	}
	return nil
}

// settleKeys marks the keys of messages that the broker was told of: from now their
// window runs.
func (t *Trigger) settleKeys(r *engine.Records, told []toldKey) error {
	told = slices.Clone(told)
	slices.SortStableFunc(told, func(a, b toldKey) int { return bytes.Compare(a.at, b.at) }) // see putKeys
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

// known is what one transaction knows of messages. The place of a stream is read once
// and stored once, however many messages of it the transaction has.
type known struct {
	r      *engine.Records
	c      *Config
	named  bool // there are records of keys
	places map[string]*place
	latest *place // of the message before
}

// place is how far a stream is stored.
type place struct {
	key    string
	record []byte // its key in the table
	stored []byte // nil: nothing is
	moved  bool
}

func newKnown(r *engine.Records, c *Config) (*known, error) {
	k := &known{r: r, c: c, places: map[string]*place{}}
	prefix := key(kindKey, c.Name)
	for _, err := range r.Ascend(prefix, after(prefix)) {
		if err != nil {
			return nil, err
		}
		k.named = true
		break
	}
	return k, nil
}

func (k *known) place(name string) (*place, error) {
	if k.latest != nil && k.latest.key == name {
		return k.latest, nil
	}
	p := k.places[name]
	if p == nil {
		p = &place{key: name, record: k.c.stateKey(name)}
		var err error
		if p.stored, err = get(k.r, p.record); err != nil {
			return nil, err
		}
		k.places[name] = p
	}
	k.latest = p
	return p, nil
}

// at returns what is stored at a position's place, nil when nothing is.
func (k *known) at(p *Position) ([]byte, error) {
	if p.Exact { // the adapter writes to it, too
		return get(k.r, k.c.stateKey(p.Key))
	}
	at, err := k.place(p.Key)
	if err != nil {
		return nil, err
	}
	return at.stored, nil
}

// move notes that the message at p is stored.
func (k *known) move(p *Position) error {
	if p.Exact {
		return put(k.r, k.c.stateKey(p.Key), p.At)
	}
	at, err := k.place(p.Key)
	if err == nil && string(at.stored) < string(p.At) {
		at.stored, at.moved = p.At, true
	}
	return err
}

// store stores the places that were moved.
func (k *known) store() error {
	for _, p := range k.places {
		if !p.moved {
			continue
		}
		if err := put(k.r, p.record, p.stored); err != nil {
			return err
		}
	}
	return nil
}
