package engine

import (
	"math"
	"slices"

	"thread/event"
	"thread/internal/store"
)

// What is loaded of a key at once, and of all of them. Variables for the tests.
var (
	loadedOfKey  = 64
	loadedAtOnce = 4096
	lettersAhead = 256 // letters that were sent back
	keysAtOnce   = 4 * loadedAtOnce
)

const (
	loadedBytes = 32 << 20
	leastOfKey  = 4
	pageEvents  = 512 // whose contents are read in one transaction
)

// unseen reports whether something was not read yet.
func (f *ParallelFeed) unseen() bool {
	return f.stale || f.scan.refill || f.scan.pos < f.head || f.hungry() != nil || f.scan.letters && !f.lettersLeft()
}

// lettersLeft reports whether a letter is loaded that neither waits nor is in flight.
func (f *ParallelFeed) lettersLeft() bool {
	n := 0
	for _, p := range f.loaded {
		if p.letter {
			n++
		}
	}
	for _, p := range f.waiting {
		if p.letter {
			n--
		}
	}
	for _, d := range f.out {
		if p := d.events[0]; p.letter && f.loaded[p.ID] == p {
			n--
		}
	}
	return n > 0
}

// look loads events of one slice. What only the series tells, as the key mostly is, is
// not read for an event that is not loaded.
func (f *ParallelFeed) look(tx *Tx, onward bool) error {
	c := &f.scan
	if !c.refill && !onward {
		f.startRefill()
	}
	pos, prev, upto, refill := &c.pos, &c.prev, tx.Head(), c.refill && !onward
	if refill {
		pos, prev, upto = &c.again, &c.againPrev, c.pos
	}
	now := tx.now()
	loads, bytes, stopped := 0, 0, false
	q := store.Scan{Selection: c.selection, After: *pos, Upto: upto, Slice: true}
	at, err := tx.s.ScanSeries(q, func(e *event.Event, read func() error) (bool, error) {
		if e.ID <= f.mark { // which has moved over a range since
			*prev = e.ID
			return true, nil
		}
		if r, ok := f.spans.find(e.ID); ok {
			if *prev+1 < r.first {
				f.gaps = append(f.gaps, span{*prev + 1, r.first - 1, 0})
			}
			*prev = r.last
			return true, nil
		}
		if p := f.loaded[e.ID]; p != nil && !p.letter {
			*prev = e.ID
			return true, nil
		}
		if stopped = f.loadedAll(refill) || refill && c.keysWithout == 0; stopped {
			*pos = max(*pos, e.ID-1)
			return false, nil
		}
		if f.key.inContent() {
			if err := read(); err != nil {
				return false, err
			}
			loads++
		}
		if l := f.lineup(f.key.of(e)); f.admit(l, refill, e.ID, *prev) {
			if !f.key.inContent() {
				if err := read(); err != nil {
					return false, err
				}
				loads++
			}
			p := f.load(e, l, *prev)
			bytes += len(p.Content)
			f.requeue(p, now)
			f.queueUp(l)
		}
		*prev = e.ID
		return loads < pageEvents && bytes < resultBytes, nil
	})
	if !stopped {
		*pos = max(*pos, at)
	}
	if refill && err == nil && (c.again >= c.pos || c.keysWithout == 0) {
		f.endRefill()
	}
	return err
}

// loadedAll reports whether nothing more may be loaded. Going onward, a key of which
// nothing is loaded gets one event all the same, so that it has its turn.
func (f *ParallelFeed) loadedAll(refill bool) bool {
	if !f.loadedEnough() {
		return false
	}
	return refill || f.key.none() || len(f.keys) >= keysAtOnce
}

// loadedEnough reports whether the keys have as much in their queues as they may.
func (f *ParallelFeed) loadedEnough() bool {
	return len(f.loaded)-len(f.waiting)-int(f.outs) >= loadedAtOnce || f.bytes >= loadedBytes
}

// quota is how many events of a key are loaded at once: fewer when there are many keys,
// so that all of them find room.
func (f *ParallelFeed) quota() int {
	return min(loadedOfKey, max(leastOfKey, loadedAtOnce/2/max(1, len(f.keys))))
}

// admit reports whether an event of a key is to be loaded now, and remembers where to
// continue where it is not.
func (f *ParallelFeed) admit(l *lineup, refill bool, id, prev int64) bool {
	most := max(f.quota(), int(min(f.policy.Limit, int64(loadedAtOnce/4))))
	if l.unordered {
		most = math.MaxInt
	} else if !refill && f.loadedEnough() {
		most = 1
	}
	space := len(l.queue) < most
	switch {
	case !refill && l.more:
		return false
	case !refill && !space:
		l.more, l.resume, l.before = true, id-1, prev
		return false
	case !refill:
		return true
	case !l.more || l.closed || id <= l.resume || l.resume < f.scan.start:
		return false
	case space && l.waits == 0:
		l.resume, l.before = id, id
		return true
	}
	l.closed, l.resume, l.before = true, id-1, prev
	f.scan.keysWithout--
	return false
}

// hungry returns a key that has come to the end of what is loaded of it: the one that
// has the oldest events that are not.
func (f *ParallelFeed) hungry() (first *lineup) {
	low := f.quota() / 4
	for _, l := range f.keys {
		if l.more && l.waits == 0 && len(l.queue) <= low && (first == nil || l.resume < first.resume) {
			first = l
		}
	}
	return first
}

func (f *ParallelFeed) startRefill() {
	c := &f.scan
	first := f.hungry()
	if first == nil {
		return
	}
	c.refill, c.again, c.againPrev, c.start, c.keysWithout = true, first.resume, first.before, first.resume, 0
	for _, l := range f.keys {
		if l.closed = false; l.more && l.resume >= c.start {
			c.keysWithout++
		}
	}
}

func (f *ParallelFeed) endRefill() {
	c := &f.scan
	c.refill = false
	if c.again < c.pos {
		return // every key has as much as it may have
	}
	for _, l := range f.keys {
		if l.more && !l.closed && l.resume >= c.start {
			l.more = false
			f.queueUp(l)
		}
	}
}

// load keeps an event of its key.
func (f *ParallelFeed) load(e *event.Event, l *lineup, prev int64) *pending {
	p := &pending{prev: prev, line: l, Event: *e}
	if a, ok := f.known[e.ID]; ok {
		p.at, p.careful = a, a.State == store.AttemptReserved
		delete(f.known, e.ID)
	}
	f.loaded[e.ID] = p
	f.bytes += len(p.Content)
	return p
}

// evict lets go of what is loaded of keys that cannot use it soon.
func (f *ParallelFeed) evict() {
	f.scan.refill = false // it would not see what is let go behind it
	for _, l := range f.keys {
		keep := leastOfKey
		if l.waits > 0 || f.full() { // or only the event after the mark can be used
			keep = 0
		}
		if l.unordered || len(l.queue) <= keep {
			continue
		}
		rest := l.queue[keep:]
		l.more, l.resume, l.before = true, rest[0].ID-1, rest[0].prev
		for _, p := range rest {
			if !p.at.Void() {
				f.known[p.ID] = p.at
			}
			f.drop(p)
		}
		l.queue = slices.Clone(l.queue[:keep])
	}
}

// behind reports whether there are events that were not looked at yet, of which some may
// be of keys that nothing is known of. Each Step that gives something out looks at some
// of them, also when there is plenty of the keys that are known: or a few keys with
// backlogs would keep all others from their turn.
func (f *ParallelFeed) behind(n int) bool {
	return n > 0 && !f.stale && !f.full() && !f.key.none() && f.scan.pos < f.head && !f.loadedAll(false)
}
