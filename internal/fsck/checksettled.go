package fsck

import (
	"fmt"
	"maps"
	"slices"

	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// aboveProgress is what consumers whose deliveries are in flight side by side have settled above
// their progress, and what is known of single events: the tables settled and
// attempts, and what they are checked against. The five belong together, so they are
// read in one slice, after the events; they are as small as the windows of the consumers.
type aboveProgress struct {
	given   int64               // the highest id that was given
	stored  func(id int64) bool // whether an event is stored
	oldest  int64               // event that is stored
	from    map[string]int64    // progress
	states  map[string]store.Delivery
	settled map[string][]keyed[store.SettledRange]
	tries   map[string][]keyed[store.Attempt]
	wrong   []wrongRow
	notes   []wrongRow
}

// keyed is a record and its key.
type keyed[R any] struct {
	key    []byte
	id     int64
	record R
}

// wrongRow is a record that is not as it must be.
type wrongRow struct {
	table       store.Table
	key         []byte
	place, what string
}

func newAboveProgress(given, oldest int64, stored func(id int64) bool) *aboveProgress {
	return &aboveProgress{
		given: given, oldest: oldest, stored: stored, from: make(map[string]int64), states: make(map[string]store.Delivery),
		settled: make(map[string][]keyed[store.SettledRange]), tries: make(map[string][]keyed[store.Attempt]),
	}
}

// aboveTables are the tables that row wants.
var aboveTables = []store.Table{store.Progress, store.Deliveries, store.Settled, store.Attempts}

// row takes a record. The progress that is damaged is another process's to name.
func (a *aboveProgress) row(table store.Table, key, value []byte) {
	var err error
	var consumer string
	var id int64
	switch table {
	case store.Progress:
		if p, err := store.DecodeProgress(key, value); err == nil && len(key) > 0 {
			a.from[string(key[1:])] = p.From()
		}
		return
	case store.Deliveries:
		var d store.Delivery
		if d, err = store.DecodeDelivery(key, value); err == nil && len(key) > 0 {
			a.states[string(key[1:])] = d
		}
	case store.Settled:
		var r store.SettledRange
		if consumer, id, err = store.SplitLetterKey(key); err == nil {
			if r, err = store.DecodeSettledRange(key, value); err == nil {
				a.settled[consumer] = append(a.settled[consumer], keyed[store.SettledRange]{key, id, r})
			}
		}
	case store.Attempts:
		var t store.Attempt
		if consumer, id, err = store.SplitLetterKey(key); err == nil {
			if t, err = store.DecodeAttempt(key, value); err == nil {
				a.tries[consumer] = append(a.tries[consumer], keyed[store.Attempt]{key, id, t})
			}
		}
	}
	if err != nil {
		a.wrong = append(a.wrong, wrongRow{table, key, fmt.Sprintf("record %q of bucket %s", key, table), "is damaged: its checksum or its form does not fit"})
	}
}

// check looks at what row was given.
func (a *aboveProgress) check() {
	consumers := slices.Collect(maps.Keys(a.settled))
	for c := range a.tries {
		consumers = append(consumers, c)
	}
	slices.Sort(consumers)
	for _, consumer := range slices.Compact(consumers) {
		a.ofConsumer(consumer)
	}
}

// bad notes a wrong row. In one place: there are ten callers, and what they share would
// be in the program ten times.
//
//go:noinline
func (a *aboveProgress) bad(table store.Table, key []byte, place, format string, args []any) {
	a.wrong = append(a.wrong, wrongRow{table, key, place, fmt.Sprintf(format, args...)})
}

func (a *aboveProgress) ofConsumer(consumer string) {
	from, state := a.from[consumer], a.states[consumer]
	counts := state.Mark != 0 && state.Mark-1 <= from
	strict := state.Mark == from+1 // no process has moved progress since
	var inWindow, last int64
	var sound []store.SettledRange
	for _, k := range a.settled[consumer] {
		r := &k.record
		bad := func(format string, args ...any) {
			a.bad(store.Settled, k.key, fmt.Sprintf("settled range %d to %d of %q", r.First, r.Last, consumer), format, args)
		}
		switch {
		case r.First < 1 || r.Last < r.First:
			bad("is not a range of ids")
		case r.Last > a.given:
			bad("ends above the highest id that was given, %d", a.given)
		case r.Count < 1 || r.Count > r.Last-r.First+1:
			bad("counts %d events", r.Count)
		case r.First <= last:
			bad("overlaps the one before, which ends at %d", last)
		case strict && r.First <= from:
			bad("is not above last_acked_id %d", from)
		default:
			last = r.Last
			sound = append(sound, *r)
			if r.Last > from {
				inWindow += r.Count
			}
		}
	}
	if n := len(a.settled[consumer]); n > 0 && !counts {
		a.notes = append(a.notes, wrongRow{store.Settled, nil, fmt.Sprintf("consumer %q", consumer),
			fmt.Sprintf("has %d settled ranges that do not count: progress was moved back by a program that does not know them; the next consume --parallel clears them", n)})
		sound, inWindow = nil, 0
	}
	named := int64(0) // the range that was named last
	for _, k := range a.tries[consumer] {
		bad := func(format string, args ...any) {
			a.bad(store.Attempts, k.key, fmt.Sprintf("attempt at event %d of %q", k.id, consumer), format, args)
		}
		i, _ := slices.BinarySearchFunc(sound, k.id, func(r store.SettledRange, id int64) int {
			if r.Last < id {
				return -1
			}
			return 1
		})
		settled := i < len(sound) && sound[i].First <= k.id
		switch t := &k.record; {
		case k.id < 1 || k.id > a.given:
			bad("is at no event: the highest id that was given is %d", a.given)
		case k.id >= a.oldest && !a.stored(k.id): // those before may have been pruned by force
			bad("is at no event that is stored")
		case t.State < store.AttemptWaiting || t.State > store.AttemptRunning || t.Group < 0 || t.Most < 0:
			bad("has state %d and group %d, which there are not", t.State, t.Group)
		case t.Resent != 0: // of a dead letter, whose event is settled
		case strict && k.id <= from:
			bad("is at a settled event: last_acked_id is %d", from)
		case strict && settled: // the event is redelivered if it is the range that is left out
			r := &sound[i]
			if r.First == named {
				continue
			}
			named = r.First
			a.wrong = append(a.wrong, wrongRow{store.Settled, store.LetterKey(consumer, r.First), fmt.Sprintf("settled range %d to %d of %q", r.First, r.Last, consumer),
				fmt.Sprintf("holds event %d, which is in flight or waits", k.id)})
		default:
			if k.id > from && !settled {
				inWindow++
			}
		}
	}
	if state.Window > 0 && inWindow > state.Window {
		a.notes = append(a.notes, wrongRow{store.Settled, nil, fmt.Sprintf("consumer %q", consumer),
			fmt.Sprintf("has %d events settled above last_acked_id, out or waiting, and a window of %d: nothing new is given out before there are fewer", inWindow, state.Window)})
	}
}

// aboveProgress checks the tables in the slice that is read now.
func (c *checker) aboveProgress() {
	p := &c.pages
	oldest := c.oldestID
	if oldest == 0 { // all were pruned
		oldest = c.st.Head + 1
	}
	a := newAboveProgress(p.now.LastID, oldest, c.isStored)
	w := &disk.TreeWalk{PageFile: p.walk.PageFile, Meta: p.walk.Meta, Used: map[uint64]bool{0: true, 1: true}, Fault: func(string, string) {}}
	for _, table := range aboveTables {
		if head := p.buckets[string(table)]; head != nil {
			m := p.changes.merge(string(table), nil, func(e *disk.Element) {
				if !e.Bucket {
					a.row(table, e.Key, e.Value)
				}
			})
			w.Bucket(string(table), head, m.stored)
			m.rest()
		}
	}
	c.tell(a)
}

// tell checks what a was given, and reports it.
func (c *checker) tell(a *aboveProgress) {
	a.check()
	for _, r := range a.wrong {
		c.fault(r.place, r.what)
	}
	for _, r := range a.notes {
		c.note(r.place, "%s", r.what)
	}
}

// soundAboveProgress takes the records out of the extras that check would call wrong. What
// they said is forgotten: a range's events are delivered again, and an attempt was none.
func (s *salvage) soundAboveProgress(cut int64, saved []int64) {
	given, _ := s.lastGiven()
	if n := len(saved); n > 0 {
		given = max(given, saved[n-1])
	}
	a := newAboveProgress(given, cut+1, func(id int64) bool {
		_, found := slices.BinarySearch(saved, id)
		return found
	})
	for _, p := range s.progress {
		a.from[p.Consumer] = p.From()
	}
	var sound []store.Extra
	for _, x := range s.extras {
		if table := store.Table(x.Bucket[0]); len(x.Bucket) == 1 && x.Key != nil && table != store.Progress && slices.Contains(aboveTables, table) {
			a.row(table, x.Key, x.Value)
		}
	}
	a.check()
	wrong := make(map[string]bool)
	for _, r := range a.wrong {
		s.problem("%s: %s; it is left out", r.place, r.what)
		wrong[string(r.table)+" "+string(r.key)] = true
	}
	for _, x := range s.extras {
		if len(x.Bucket) != 1 || x.Key == nil || !wrong[x.Bucket[0]+" "+string(x.Key)] {
			sound = append(sound, x)
		}
	}
	s.extras = sound
}
