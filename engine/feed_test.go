package engine

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

// feedModel is the oracle of Feed: what one consumer is owed, in plain maps.
type feedModel struct {
	t    *rapid.T
	dir  string
	th   *Thread
	feed *Feed
	now  time.Time

	matching []bool // by id - 1: the consumer's filter matches
	progress int64
	paused   bool
	tries    map[int64]*tries // of unread events that have failed
	dead     map[int64]*tries
	retries  map[int64]*tries
	suspect  int64   // last id of a failed group that is being split
	out      []int64 // the delivery that is in flight
	retry    bool    // it is a dead letter that was sent back
	killed   bool    // its user is gone

	acked map[int64]int // how often an event was acked since another process asked for it
}

type tries struct {
	counted, round, deferred int64
	last, next               time.Time // the latest failure, and the end of the wait that it began
}

// waits reports whether the wait is not over. A clock before its beginning is not
// the one that it was noted by.
func (l *tries) waits(now time.Time) bool { return !now.Before(l.last) && l.next.After(now) }

const modelAttempts = 3

func modelBackoff(n int64) time.Duration { return time.Duration(n) * time.Second }

func (m *feedModel) newFeed() {
	m.feed = m.th.Feed("c", Policy{Limit: 8, MaxAttempts: modelAttempts, Backoff: modelBackoff})
}

func (m *feedModel) head() int64 { return int64(len(m.matching)) }

func (m *feedModel) Push(t *rapid.T) {
	match := rapid.SliceOfN(rapid.Bool(), 1, 20).Draw(t, "matching")
	ds := make([]event.Draft, len(match))
	for i, ok := range match {
		ds[i] = event.Draft{Source: "s", Type: "other"}
		if ok {
			ds[i].Type = "message"
		}
	}
	if _, err := m.th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
	m.matching = append(m.matching, match...)
}

func (m *feedModel) Wait(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "jump") == 0 { // the clock is set
		m.now = m.now.Add(rapid.SampledFrom([]time.Duration{-time.Second, -24 * time.Hour, 24 * time.Hour, 10 * 365 * 24 * time.Hour}).Draw(t, "by"))
	}
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
}

// Consume gives the result of the delivery that is in flight, if its user lives, and
// takes the next one.
func (m *feedModel) Consume(t *rapid.T) {
	var r *Result
	switch {
	case m.killed:
		m.end(interrupted) // seen only when something is asked for
	case m.out != nil:
		r = &Result{Verdict: rapid.SampledFrom([]Verdict{Succeeded, Succeeded, Failed, Failed, Rejected, Deferred, Returned}).Draw(t, "verdict"), ExitCode: 1, Error: "e"}
		m.end(*r)
	}
	m.killed = false
	got, err := m.feed.Next(ctx, r)
	if m.paused {
		if !errors.Is(err, ErrPaused) {
			t.Fatalf("got %v", err)
		}
		if r == nil && m.out != nil {
			t.Fatal("the model is wrong")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	want, retry, at := m.next()
	var ids []int64
	for _, e := range got.Events {
		ids = append(ids, e.ID)
	}
	if !slices.Equal(ids, want) || len(want) > 0 && got.Retry != retry || len(want) == 0 && !got.NotBefore.Equal(at) {
		t.Fatalf("got %v (retry %v, not before %v), want %v (%v, %v)", ids, got.Retry, got.NotBefore, want, retry, at)
	}
	if len(want) == 1 {
		attempt := int64(1)
		if l := m.known(want[0], retry); l != nil {
			attempt = l.counted + 1
		}
		if got.Attempt != attempt {
			t.Fatalf("attempt %d of event %d, want %d", got.Attempt, want[0], attempt)
		}
	}
	m.out, m.retry = want, retry
}

func (m *feedModel) known(id int64, retry bool) *tries {
	if retry {
		return m.retries[id]
	}
	return m.tries[id]
}

// end is what a result does.
func (m *feedModel) end(r Result) {
	out := m.out
	m.out = nil
	if len(out) == 0 {
		return
	}
	id, last := out[0], out[len(out)-1]
	l := m.known(id, m.retry)
	if l == nil {
		l = &tries{}
	}
	note := func(at map[int64]*tries) { at[id] = l }
	where := m.tries
	if m.retry {
		where = m.retries
	}
	switch {
	case r.Verdict == Returned:
	case r.Verdict == Succeeded && m.retry:
		delete(m.retries, id)
		m.acked[id]++
	case r.Verdict == Succeeded:
		m.pass(out, last)
		for _, id := range out {
			m.acked[id]++
		}
	case r.Verdict == Deferred:
		l.deferred++
		l.last, l.next = m.now, m.now.Add(modelBackoff(l.deferred))
		if !m.retry {
			clear(m.tries)
		}
		note(where)
	case len(out) > 1:
		m.suspect = last
		clear(m.tries)
	default:
		if !m.retry {
			m.suspect = 0
			clear(m.tries)
		}
		l.counted++
		l.round++
		l.deferred = 0
		if r.Verdict == Failed && l.round < modelAttempts {
			l.last, l.next = m.now, m.now.Add(modelBackoff(l.round))
			note(where)
			return
		}
		if m.retry {
			delete(m.retries, id)
		} else {
			m.pass(out, id)
		}
		note(m.dead)
	}
}

func (m *feedModel) pass(out []int64, upto int64) {
	m.progress = max(m.progress, upto)
	if m.suspect <= upto {
		m.suspect = 0
	}
	clear(m.tries)
	for _, id := range out {
		delete(m.dead, id)
		delete(m.retries, id)
	}
}

// next is what a consumer has to get now.
func (m *feedModel) next() (ids []int64, retry bool, at time.Time) {
	for _, id := range slices.Sorted(maps.Keys(m.retries)) {
		l := m.retries[id]
		if id > m.progress {
			continue
		}
		if !l.waits(m.now) {
			return []int64{id}, true, at
		}
		at = earlier(at, l.next)
	}
	var failing int64
	for id, l := range m.tries {
		if l.waits(m.now) {
			return nil, false, earlier(at, l.next)
		}
		if l.round > 0 {
			failing = id
		}
	}
	for id := m.progress + 1; id <= m.head() && len(ids) < 8; id++ {
		if m.matching[id-1] {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 && ids[0] == failing {
		return ids[:1], false, at
	}
	suspects := 0
	for suspects < len(ids) && ids[suspects] <= m.suspect {
		suspects++
	}
	if suspects > 0 {
		ids = ids[:(suspects+1)/2]
	}
	return ids, false, at
}

// Kill loses the feed, and what it has given out with it. The file may be
// reopened.
func (m *feedModel) Kill(t *rapid.T) {
	m.killed = m.out != nil
	killFeeds(m.th)
	if rapid.Bool().Draw(t, "reopen") {
		var err error
		if m.th, err = Open(m.dir, WithClock(func() time.Time { return m.now })); err != nil {
			t.Fatal(err)
		}
	}
	m.newFeed()
}

// moved is what follows a move of the position by hand.
func (m *feedModel) moved(id int64) {
	m.progress = id
	m.out, m.killed, m.suspect = nil, false, 0
	clear(m.tries)
	for a := range m.acked {
		if a > id {
			delete(m.acked, a)
		}
	}
}

func (m *feedModel) Seek(t *rapid.T) {
	id := rapid.Int64Range(0, m.head()).Draw(t, "id")
	if err := m.th.Seek(ctx, "c", id); err != nil {
		t.Fatal(err)
	}
	m.moved(id)
}

func (m *feedModel) PopBack(t *rapid.T) {
	id := rapid.Int64Range(0, m.progress).Draw(t, "id")
	if _, err := m.th.Pop(ctx, "c", PopQuery{LastAcked: id, Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if id < m.progress {
		m.moved(id)
	}
}

func (m *feedModel) Ack(t *rapid.T) {
	if m.out != nil && !m.retry {
		return // of a delivery that is in flight: the position is not the model's business
	}
	id := rapid.Int64Range(0, m.head()).Draw(t, "id")
	if err := m.th.Ack(ctx, "c", id); err != nil {
		t.Fatal(err)
	}
	if id > m.progress {
		m.progress = id
		for failing := range m.tries {
			if failing <= id {
				delete(m.tries, failing)
			}
		}
	}
}

func (m *feedModel) Pause(t *rapid.T) {
	if m.out != nil {
		return
	}
	m.paused = !m.paused
	set := m.th.Resume
	if m.paused {
		set = m.th.Pause
	}
	if err := set(ctx, "c"); err != nil {
		t.Fatal(err)
	}
}

func (m *feedModel) letters(t *rapid.T) (ls []DeadLetter) {
	for l, err := range m.th.DeadLetters(ctx, DeadLetterQuery{Consumer: "c", Filter: "type = 'message'"}) {
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, l)
	}
	return ls
}

func (m *feedModel) some(t *rapid.T) []DeadLetter {
	return rapid.SliceOfDistinct(rapid.SampledFrom(append(m.letters(t), DeadLetter{Consumer: "nobody", Event: event.Event{ID: 1}})),
		func(l DeadLetter) string { return fmt.Sprint(l.Consumer, l.Event.ID) }).Draw(t, "letters")
}

func (m *feedModel) RetryDead(t *rapid.T) {
	some := m.some(t)
	n, err := m.th.RetryDead(ctx, some)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range some {
		if d, ok := m.dead[l.Event.ID]; ok && l.Consumer == "c" {
			m.retries[l.Event.ID] = &tries{counted: d.counted}
			delete(m.dead, l.Event.ID)
			delete(m.acked, l.Event.ID)
			n--
		}
	}
	if n != 0 {
		t.Fatalf("%d letters too many", n)
	}
}

func (m *feedModel) DropDead(t *rapid.T) {
	some := m.some(t)
	if _, err := m.th.DropDead(ctx, some); err != nil {
		t.Fatal(err)
	}
	for _, l := range some {
		if l.Consumer == "c" {
			delete(m.dead, l.Event.ID)
		}
	}
}

// Check compares what can be seen, and holds the promises against the model.
func (m *feedModel) Check(t *rapid.T) {
	info, err := m.th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := info.Subscriptions[0]
	if c.LastAcked != m.progress || c.Dead != int64(len(m.dead)) || c.Retries != int64(len(m.retries)) || c.Paused != m.paused {
		t.Fatalf("got %+v, want progress %d, %d dead, %d sent back", c, m.progress, len(m.dead), len(m.retries))
	}
	for _, l := range m.letters(t) {
		if d := m.dead[l.Event.ID]; d == nil || d.counted != l.Attempts || l.DiedAt.IsZero() || l.FirstAt.IsZero() {
			t.Fatalf("dead letter %+v, want %+v", l, d)
		}
	}
	for id := int64(1); id <= m.progress; id++ {
		if m.acked[id] > 1 {
			t.Fatalf("event %d was acked %d times without being asked for", id, m.acked[id])
		}
	}
	d, err := m.th.DueFor(ctx, "c", 0)
	if err != nil {
		t.Fatal(err)
	}
	owed := slices.ContainsFunc(slices.Collect(maps.Keys(m.retries)), func(id int64) bool { return id <= m.progress })
	for id := m.progress + 1; id <= m.head(); id++ {
		owed = owed || m.matching[id-1]
	}
	if (d.First != 0) != (owed && !m.paused) {
		t.Fatalf("due is %+v, owed %v, paused %v", d, owed, m.paused)
	}
}

func TestFeedModel(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		m := &feedModel{t: t, dir: filepath.Join(base, fmt.Sprint(n)), now: time.UnixMilli(1773829800123),
			tries: map[int64]*tries{}, dead: map[int64]*tries{}, retries: map[int64]*tries{}, acked: map[int64]int{}}
		defer os.RemoveAll(m.dir)
		var err error
		if m.th, err = Init(m.dir, WithClock(func() time.Time { return m.now })); err != nil {
			t.Fatal(err)
		}
		if err := m.th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Filter: event.Text("type = 'message'")}); err != nil {
			t.Fatal(err)
		}
		m.newFeed()
		t.Repeat(map[string]func(*rapid.T){
			"push": m.Push, "wait": m.Wait, "wait more": m.Wait, "consume": m.Consume, "consume 2": m.Consume, "consume 3": m.Consume,
			"consume 4": m.Consume, "kill": m.Kill, "seek": m.Seek, "pop back": m.PopBack, "ack": m.Ack, "pause": m.Pause,
			"retry": m.RetryDead, "drop": m.DropDead, "": m.Check,
		})
	})
}
