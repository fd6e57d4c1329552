package trigger

import (
	"context"
	"log/slog"
	"time"
)

// delivery is a message that the broker waits to hear about.
type delivery struct {
	m    *Message
	at   []byte // its key, to be settled once the broker was told; nil: none
	done bool
	drop bool // see toldKey
}

// toldKey is the key of a message that the broker was told of, and when.
type toldKey struct {
	at   []byte
	when time.Time
	drop bool // its event failed: the key is not kept
}

// deliveries are those that are not acknowledged. Of a source with positions they
// are acknowledged in their order within a key, so that nothing is passed over.
type deliveries struct {
	inOrder bool
	byKey   map[string][]*delivery
	ready   []*delivery
}

func newDeliveries(inOrder bool) *deliveries {
	return &deliveries{inOrder: inOrder, byKey: map[string][]*delivery{}}
}

func (d *deliveries) add(one delivery) *delivery {
	p := &one
	if d.inOrder && one.m.Position != nil {
		k := one.m.Position.Key
		d.byKey[k] = append(d.byKey[k], p)
	} else if one.done {
		d.ready = append(d.ready, p)
	}
	return p
}

// finish marks a delivery as done.
func (d *deliveries) finish(p *delivery) {
	p.done = true
	if !d.inOrder || p.m.Position == nil {
		d.ready = append(d.ready, p)
	}
}

// take returns what may be acknowledged.
func (d *deliveries) take() []*delivery {
	list := d.ready
	d.ready = nil
	for k, waiting := range d.byKey {
		n := 0
		for n < len(waiting) && waiting[n].done {
			n++
		}
		list = append(list, waiting[:n]...)
		if n == len(waiting) {
			delete(d.byKey, k)
		} else {
			d.byKey[k] = waiting[n:]
		}
	}
	return list
}

// ackDone acknowledges what may be, until the broker has it. What cannot be
// acknowledged without its connection is delivered again, and is known then.
func (t *Trigger) ackDone(ctx context.Context) error {
	list := t.deliveries.take()
	ms := make([]Message, 0, len(list))
	for _, d := range list {
		ms = append(ms, *d.m)
	}
	if len(ms) == 0 {
		return nil
	}
	now := t.now()
	if err := t.src.Ack(ctx, ms); err != nil {
		// The messages are stored. The broker delivers them again, or the next ones
		// stand for them: nothing is lost, and to wait here would help nobody.
		t.log.Warn("the broker could not be told; it may deliver again", "messages", len(ms), "error", err)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	debug := t.log.Enabled(ctx, slog.LevelDebug)
	for _, d := range list {
		if debug {
			t.log.Debug("acknowledged", "trace_id", "queue-"+d.m.ID)
		}
		if d.at != nil {
			t.told = append(t.told, toldKey{d.at, now, d.drop})
		}
	}
	return nil
}
