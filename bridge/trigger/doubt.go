package trigger

import (
	"bytes"
	"context"
	"time"

	"thread/engine"
)

// A key is unsettled until the broker was told of its message. It stays so when an
// acknowledgement has failed that the broker has read all the same, and when a message
// was refused for good: then no process comes to settle it. These keys are looked for, and
// settled once the broker has had the message no more for certain: it was asked for
// messages for longer than it keeps one back, was well all that time, and has nothing
// left to give. A broker that is away, a trigger that is paused or stopped, and one
// that has something to do all the time, prolong that. From settling on, the window
// of the key runs as any other key's.

// keptBack is for how long a broker may keep back what it has given out before: 12
// hours is the most that SQS hides a message, the others do so for less unless
// ack_wait or min_idle says otherwise.
const keptBack = 13 * time.Hour

const (
	doubtsAtMost = 10_000      // known at once; the others wait for another round
	doubtsLook   = 1_000       // keys that are read in a tick
	doubtsEvery  = 3600        // ticks from one round to the next
	tickEvery    = time.Second // of the loop
)

// doubt is a key that no process is about to settle.
type doubt struct {
	event int64
	since time.Duration // of doubts.asked
}

// doubts are the unsettled keys that were found. Of the loop only.
type doubts struct {
	asked time.Duration // for how long messages were asked for while there were some
	list  map[string]doubt
	next  []byte // where a round continues, nil: none is under way
	wait  int    // ticks until the next round
}

// lookForDoubts is called once in a tick. Asking says that a Consume waits, idle that
// it has done so for the whole tick.
func (t *Trigger) lookForDoubts(ctx context.Context, asking, idle bool) error {
	d := &t.doubts
	if d.list == nil {
		d.list = map[string]doubt{}
	}
	if err := t.findDoubts(ctx); err != nil {
		return err
	}
	if len(d.list) == 0 || !asking || !t.src.Health(ctx).OK {
		return nil
	}
	if d.asked += t.tickEvery; !idle {
		return nil
	}
	limit := max(t.keptBack, 4*t.src.Capabilities().KeepEvery)
	var over []string
	for at, one := range d.list {
		if d.asked-one.since >= limit {
			over = append(over, at)
		}
	}
	if len(over) == 0 {
		return nil
	}
	now := t.now()
	err := t.eachUnsettled(ctx, over, func(at []byte, k *keyRecord) {
		if k.event == d.list[string(at)].event {
			t.told = append(t.told, toldKey{at: at, when: now})
		}
	})
	if err != nil {
		return err
	}
	for _, at := range over {
		delete(d.list, at)
	}
	t.log.Info("keys are settled whose messages were not redelivered", "keys", len(over))
	return t.again(ctx, "settling keys", func() error { return t.storeEnds(ctx, nil) })
}

// eachUnsettled calls fn for the keys that are unsettled and not waited for.
func (t *Trigger) eachUnsettled(ctx context.Context, keys []string, fn func(at []byte, k *keyRecord)) error {
	return t.th.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		for _, at := range keys {
			k, err := t.keyOf(r, &item{at: []byte(at)})
			if err != nil {
				return err
			}
			if k != nil && k.state == unsettled && t.openByKey[at] == nil {
				fn([]byte(at), k)
			}
		}
		return nil
	})
}

// findDoubts reads some more keys of a round.
func (t *Trigger) findDoubts(ctx context.Context) error {
	d := &t.doubts
	prefix := key(kindKey, t.cfg.Name)
	if d.next == nil {
		if d.wait--; d.wait >= 0 {
			return nil
		}
		d.next = prefix
	}
	told := map[string]bool{}
	for _, k := range t.told {
		told[string(k.at)] = true
	}
	next, n := []byte(nil), 0
	found := map[string]doubt{}
	err := t.th.View(ctx, func(tx *engine.Tx) error {
		next, n = nil, 0
		clear(found)
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		for rec, err := range r.Ascend(d.next, after(prefix)) {
			if err != nil {
				return err
			}
			if n++; n > doubtsLook {
				next = bytes.Clone(rec.Key)
				return nil
			}
			v, err := checked(rec.Key, rec.Value)
			if err != nil {
				return err
			}
			k, err := decodeKey(v)
			if err != nil {
				return err
			}
			at := string(rec.Key)
			if k.state == unsettled && t.openByKey[at] == nil && !told[at] {
				found[at] = doubt{k.event, d.asked}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for at, one := range found {
		if was, ok := d.list[at]; (!ok || was.event != one.event) && len(d.list) < doubtsAtMost {
			d.list[at] = one
		}
	}
	if d.next = next; next == nil {
		d.wait = doubtsEvery
	}
	return nil
}
