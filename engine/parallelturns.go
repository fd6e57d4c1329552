package engine

import (
	"cmp"
	"slices"
	"time"
)

// The turns of keys.

// wake ends the waits that have ended.
func (f *ParallelFeed) wake(now time.Time) {
	f.waiting = slices.DeleteFunc(f.waiting, func(p *pending) bool {
		if p.end = f.waits.end(p.ID, &p.at.Failures, now); p.end.After(now) {
			return false
		}
		if p.letter {
			p.line.lettersWait--
			p.line.letters = insert(p.line.letters, p)
		} else {
			p.line.waits--
			p.line.queue = insert(p.line.queue, p)
		}
		f.queueUp(p.line)
		return true
	})
}

func (f *ParallelFeed) notBefore() (at time.Time) {
	for _, p := range f.waiting {
		at = earlier(at, p.end)
	}
	return at
}

func insert(queue []*pending, p *pending) []*pending {
	i, _ := slices.BinarySearchFunc(queue, p.ID, func(q *pending, id int64) int { return cmp.Compare(q.ID, id) })
	return slices.Insert(queue, i, p)
}

// queueUp puts a key behind the others if it has something to give out, and forgets
// it where nothing is left of it.
func (f *ParallelFeed) queueUp(l *lineup) {
	switch {
	case l.inTurn:
	case l.canGive():
		l.inTurn = true
		f.ready = append(f.ready, l)
	case l.busy == 0 && len(l.queue)+len(l.letters)+l.waits+l.lettersWait == 0 && !l.more:
		delete(f.keys, l.key)
	}
}

func (l *lineup) canGive() bool {
	switch {
	case l.unordered:
		return len(l.letters)+len(l.queue) > 0
	case l.busy > 0:
		return false
	case len(l.letters) > 0:
		return true
	}
	return l.waits == 0 && len(l.queue) > 0
}

func (f *ParallelFeed) lineup(key string) *lineup {
	l := f.keys[key]
	if l == nil {
		l = &lineup{key: key, unordered: f.key.none()}
		f.keys[key] = l
	}
	return l
}
