package trigger

import (
	"context"
	"sync"
	"time"

	"thread/engine"
	"thread/event"
)

// item is a message on its way through the intake.
type item struct {
	m     *Message
	env   *Envelope
	draft event.Draft
	err   error // it cannot be parsed
	begun time.Time

	at      []byte     // its key, nil: none
	keyed   bool       // the key keeps it from being stored twice
	state   byte       // of its key before: 0, unsettled, settled, requeued
	known   bool       // its key or position is known: it is a duplicate
	found   *keyRecord // of its key, nil: none
	deliver int64      // deliveries, this one included
	key     *keyRecord // that its transaction stores, nil: none

	governed bool    // governance has decided
	rejected *string // governance's reason
	requeue  bool    // the broker is to deliver it again
	nack     bool    // the broker is to refuse it
	toDLQ    bool
	park     *parkedRecord     // the dead letter queue has refused it
	fresh    bool              // stored again
	revived  bool              // its event is given out again
	event    int64             // 0: none
	row      int64             // in the ledger
	traced   func(event int64) // called once it is stored; may be nil
	tried    *item             // as an attempt left it whose outcome is not known
}

// prepare makes items of messages: parsed, with key and event, by as many workers
// as are configured.
func (t *Trigger) prepare(ms []Message) []*item {
	now, secrets := t.now(), t.cfg.Tenant.secrets()
	items, all := make([]*item, len(ms)), make([]item, len(ms))
	each(len(ms), t.cfg.Concurrency, func(n int) {
		i := &all[n]
		items[n] = i
		i.m, i.begun, i.deliver = &ms[n], now, 1
		i.env, i.err = t.cfg.Envelope(&ms[n], now, secrets)
		if t.trace != nil {
			i.traced = i.env.trace(i.m, t.trace)
		}
		if i.err == nil {
			i.draft, i.err = t.cfg.draft(t.mapping, ms[n].Key, i.env)
		}
		id := i.env.DedupKey
		if id == "" && !i.m.Unnamed {
			id = i.m.ID
		}
		if id != "" {
			i.at = key(kindKey, t.cfg.Name, i.env.TenantID, id)
			i.keyed = t.cfg.Dedup && (i.env.DedupKey != "" || !i.m.Positional)
		}
	})
	return items
}

// each calls fn for 0 to n-1, by up to that many goroutines.
func each(n, workers int, fn func(int)) {
	workers = min(workers, n)
	if workers <= 1 {
		for i := range n {
			fn(i)
		}
		return
	}
	var wg sync.WaitGroup
	next := make(chan int)
	for range workers {
		wg.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// look finds what is known of the items, in a read transaction. It is asked again in
// the transaction that stores: here it spares governance, and the broker copies of
// what is known.
func (t *Trigger) look(ctx context.Context, items []*item) error {
	told := map[string]toldKey{}
	for _, k := range t.told {
		told[string(k.at)] = k
	}
	return t.th.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		places, err := newKnown(r, &t.cfg)
		if err != nil {
			return err
		}
		for _, i := range items {
			if err := t.lookOne(places, i, told); err != nil {
				return err
			}
		}
		return nil
	})
}

// lookOne sets what is known of an item. Told are keys that the next transaction
// settles; nil within it.
func (t *Trigger) lookOne(places *known, i *item, told map[string]toldKey) error {
	i.known, i.found, i.state, i.event, i.deliver = false, nil, 0, 0, 1
	if p := i.m.Position; p != nil {
		stored, err := places.at(p)
		if err != nil {
			return err
		}
		if stored != nil && p.covered(stored, i.m.Redelivered || i.tried != nil) {
			i.known = true
			return nil
		}
	}
	if i.err != nil || !places.named {
		return nil // parsing comes first
	}
	k, err := t.keyOf(places.r, i)
	if k == nil || err != nil {
		return err
	}
	found := *k
	i.found = &found
	if s, ok := told[string(i.at)]; ok && k.state == unsettled {
		if s.drop {
			return nil
		}
		k.state, k.settledAt, k.window = settled, s.when.UnixMilli(), t.cfg.window()
	}
	switch {
	case k.state == requeued:
		i.state, i.event, i.deliver = requeued, k.event, k.deliveries+1
	case i.keyed && !k.over(t.now()):
		i.known, i.state, i.event = true, k.state, k.event
	}
	return nil
}

// covered reports whether what is stored under the key of p says that a message at p
// is stored.
func (p *Position) covered(stored []byte, redelivered bool) bool {
	if p.Exact {
		return redelivered && string(stored) == string(p.At)
	}
	return string(stored) >= string(p.At)
}

// keyOf returns the key record of an item, nil when there is none.
func (t *Trigger) keyOf(r *engine.Records, i *item) (*keyRecord, error) {
	if i.at == nil {
		return nil, nil
	}
	b, err := get(r, i.at)
	if b == nil || err != nil {
		return nil, err
	}
	k, err := decodeKey(b)
	return &k, err
}
