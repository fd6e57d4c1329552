package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

// parallelModel is the oracle of ParallelFeed: what one consumer is owed, in plain
// maps. It does not predict which of several keys comes next, but judges whatever
// comes, and whether anything is missing.
type parallelModel struct {
	t    *rapid.T
	dir  string
	th   *Thread
	feed *ParallelFeed
	now  time.Time
	by   string

	keys    []string // by id - 1; "-" for an event that does not match
	settled map[int64]bool
	tries   map[int64]*parallelTries // of events that have failed
	dead    map[int64]*parallelTries
	retries map[int64]*parallelTries
	out     map[int64]*parallelOut // by number
	limit   int64
	window  int64
	crashed bool // the next Step takes over
}

type parallelTries struct {
	tries
	most    int64
	careful bool
}

type parallelOut struct {
	d      Delivery
	ids    []int64
	begun  bool // durably
	wanted map[int64]bool
	letter bool
}

func (m *parallelModel) newFeed() {
	killFeeds(m.th)
	var err error
	m.feed, err = m.th.ParallelFeed("c", ParallelPolicy{
		Policy: Policy{Limit: m.limit, MaxAttempts: modelAttempts, Backoff: modelBackoff}, Key: m.by, Window: m.window,
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *parallelModel) head() int64 { return int64(len(m.keys)) }

func (m *parallelModel) Push(t *rapid.T) {
	for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a", "a", "b", "c", "", "-"}), 1, 20).Draw(t, "keys") {
		d := event.Draft{Source: key, Type: "message", Content: fmt.Sprintf(`{"k":%q}`, key)}
		switch {
		case key == "-":
			d.Type = "other"
		case key == "" && m.by != "$.k":
			key = "x"
			d.Source = key
		case key == "":
			d.Source, d.Content = "x", "no JSON"
		}
		if d.Source == "-" {
			d.Source = "x"
		}
		if _, err := m.th.Push(ctx, d); err != nil {
			t.Fatal(err)
		}
		m.keys = append(m.keys, key)
	}
}

func (m *parallelModel) Wait(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
}

func (m *parallelModel) matching(id int64) bool { return m.keys[id-1] != "-" }

func (m *parallelModel) key(id int64) string {
	if m.by == "" {
		return ""
	}
	return m.keys[id-1]
}

// unread returns the events of a key that are owed, in order; of all keys for by "".
func (m *parallelModel) unread(key string) (ids []int64) {
	for id := int64(1); id <= m.head(); id++ {
		if m.matching(id) && !m.settled[id] && m.key(id) == key {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *parallelModel) known(id int64, letter bool) *parallelTries {
	at := m.tries
	if letter {
		at = m.retries
	}
	if at[id] == nil {
		at[id] = &parallelTries{}
	}
	return at[id]
}

// end is what a result does.
func (m *parallelModel) end(o *parallelOut, r Result) {
	for _, id := range o.ids {
		if !o.wanted[id] {
			continue
		}
		l := m.known(id, o.letter)
		l.careful = false
		switch {
		case r.Verdict == Succeeded:
			m.settled[id] = true
			if o.letter {
				delete(m.retries, id)
			} else {
				delete(m.tries, id)
				delete(m.dead, id)
				delete(m.retries, id)
			}
		case r.Verdict == Returned:
		case r.Verdict == Postponed:
			l.last, l.next = m.now, r.NotBefore
		case r.Verdict == Deferred:
			l.deferred++
			l.last, l.next = m.now, m.now.Add(modelBackoff(l.deferred))
		case len(o.ids) > 1:
			l.most = int64(len(o.ids)+1) / 2
		default:
			l.most = 1
			l.counted++
			l.round++
			l.deferred = 0
			l.last, l.next = m.now, m.now.Add(modelBackoff(l.round))
			if r.Verdict == Rejected || l.round >= modelAttempts {
				m.settled[id] = true
				delete(m.tries, id)
				delete(m.retries, id)
				m.dead[id] = l
			}
		}
	}
}

// Step gives results of some of what is in flight, and takes more.
func (m *parallelModel) Step(t *rapid.T) {
	q := Step{Begin: rapid.IntRange(0, 4).Draw(t, "begin"), Reserve: rapid.IntRange(0, 4).Draw(t, "reserve")}
	m.takeOver()
	for _, n := range sortedKeys(m.out) {
		o := m.out[n]
		if !o.begun && rapid.Bool().Draw(t, "begins") {
			q.Begun = append(q.Begun, n)
			o.begun = true
		}
		if rapid.IntRange(0, 2).Draw(t, "ends") > 0 {
			continue
		}
		r := Result{Verdict: rapid.SampledFrom([]Verdict{Succeeded, Succeeded, Succeeded, Failed, Failed, Rejected, Deferred, Returned, Postponed}).Draw(t, "verdict"), ExitCode: 1, Error: "e"}
		if r.Verdict == Postponed {
			r.NotBefore = m.now.Add(time.Duration(rapid.IntRange(-1, 3).Draw(t, "seconds")) * time.Second)
		}
		q.Results = append(q.Results, DeliveryResult{n, r})
		m.end(o, r)
		delete(m.out, n)
	}
	g, err := m.feed.Step(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Begin) > q.Begin || len(g.Begin)+len(g.Reserved) > q.Begin+q.Reserve {
		t.Fatalf("asked for %d and %d, got %d and %d", q.Begin, q.Reserve, len(g.Begin), len(g.Reserved))
	}
	if len(g.Begin) < q.Begin && len(g.Reserved) > 0 {
		t.Fatal("something is in reserve that could have begun")
	}
	for _, d := range g.Begin {
		m.given(t, d, true)
	}
	for _, d := range g.Reserved {
		m.given(t, d, false)
	}
	if !g.More && !g.Full && len(g.Begin)+len(g.Reserved) < q.Begin+q.Reserve {
		m.nothingElse(t, g.NotBefore)
	}
	n, beside := m.inWindow(), int64(0) // what does not count durably
	for _, o := range m.out {
		if beside += int64(len(o.ids)); !o.letter {
			beside -= int64(len(o.wanted))
		}
	}
	if q.Begin+q.Reserve > 0 && g.Full && n+beside+int64(len(m.retries)) < m.window {
		t.Fatalf("full at %d of %d", n, m.window)
	}
	// The event after the mark is always given out; and what was out when its user was
	// killed counts again only once it is in flight again.
	if n > 2*m.window+1 {
		t.Fatalf("%d in a window of %d", n, m.window)
	}
}

func sortedKeys[V any](of map[int64]V) (keys []int64) {
	for k := range of {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// given judges a delivery.
func (m *parallelModel) given(t *rapid.T, d Delivery, begins bool) {
	o := &parallelOut{d: d, begun: begins, wanted: map[int64]bool{}, letter: d.Retry}
	key := m.key(d.Events[0].ID)
	if d.Key != key {
		t.Fatalf("event %d has key %q, want %q", d.Events[0].ID, d.Key, key)
	}
	if m.by != "" {
		for _, other := range m.out {
			if m.key(other.ids[0]) == key {
				t.Fatalf("event %d is given out beside event %d of the same key", d.Events[0].ID, other.ids[0])
			}
		}
	}
	for _, e := range d.Events {
		o.ids = append(o.ids, e.ID)
		o.wanted[e.ID] = true
	}
	var want []int64
	switch {
	case d.Retry:
		if l := m.retries[o.ids[0]]; l == nil || l.waits(m.now) || len(o.ids) != 1 {
			t.Fatalf("letters %v are given out", o.ids)
		}
		want = o.ids
	case m.by == "":
		for _, id := range o.ids {
			if m.isOut(id) || m.settled[id] {
				t.Fatalf("event %d is given out twice", id)
			}
		}
		want = o.ids
	default:
		want = m.unread(key)
	}
	if len(want) < len(o.ids) || !slices.Equal(want[:len(o.ids)], o.ids) {
		t.Fatalf("got %v of key %q, want the first of %v", o.ids, key, want)
	}
	for _, id := range o.ids {
		l := m.known(id, o.letter)
		switch {
		case l.waits(m.now):
			t.Fatalf("event %d is given out before its time", id)
		case l.most > 0 && int64(len(o.ids)) > l.most, int64(len(o.ids)) > m.limit:
			t.Fatalf("event %d, to be given out in groups of %d, comes in one of %d", id, l.most, len(o.ids))
		case l.careful && !begins && !d.Careful:
			t.Fatalf("event %d was in reserve when its user was killed, and comes carelessly", id)
		case len(o.ids) == 1 && d.Attempt != l.counted+1:
			t.Fatalf("attempt %d at event %d, want %d", d.Attempt, id, l.counted+1)
		}
	}
	m.out[d.Number()] = o
}

func (m *parallelModel) isOut(id int64) bool {
	for _, o := range m.out {
		if o.wanted[id] {
			return true
		}
	}
	return false
}

// held reports whether a letter is with a user whose result is not wanted any more, as
// progress was moved meanwhile. It is redelivered when that user is done with it.
func (m *parallelModel) held(id int64) bool {
	for _, o := range m.out {
		if o.letter && o.ids[0] == id {
			return true
		}
	}
	return false
}

// nothingElse checks that nothing is left that could be given out, and what waits
// first.
func (m *parallelModel) nothingElse(t *rapid.T, at time.Time) {
	var first time.Time
	wait := func(l *parallelTries) bool {
		if l == nil || !l.waits(m.now) {
			return false
		}
		first = earlier(first, l.next)
		return true
	}
	busy := map[string]bool{}
	for _, o := range m.out {
		busy[m.key(o.ids[0])] = m.by != ""
	}
	for id, l := range m.retries {
		if !m.settled[id] || m.isOut(id) || m.held(id) {
			continue
		}
		if !wait(l) && !busy[m.key(id)] {
			t.Fatalf("letter %d is not given out", id)
		}
	}
	for _, key := range []string{"a", "b", "c", "x", ""} {
		ids := m.unread(key)
		if m.by != "" && len(ids) > 1 {
			ids = ids[:1]
		}
		for _, id := range ids {
			if m.isOut(id) {
				continue
			}
			if !wait(m.tries[id]) && !busy[key] {
				for _, l := range m.feed.keys {
					t.Logf("%+v", l)
				}
				for _, p := range m.feed.loaded {
					t.Logf("%+v", p)
				}
				t.Logf("%+v %+v", m.feed, m.tries[id])
				t.Fatalf("event %d of key %q is not given out", id, key)
			}
		}
	}
	if !at.Equal(first) {
		t.Fatalf("not before %v, want %v", at, first)
	}
}

func (m *parallelModel) inWindow() (n int64) {
	c := m.info()
	return c.Settled + c.Out + c.Waiting
}

// Kill ends the process: what was durably running has failed, as the next Step sees.
func (m *parallelModel) Kill(t *rapid.T) {
	m.crashed = true
	m.newFeed()
}

// takeOver has the next process look.
func (m *parallelModel) takeOver() {
	if !m.crashed {
		return
	}
	m.crashed = false
	if _, err := m.feed.Step(ctx, Step{}); err != nil {
		m.t.Fatal(err)
	}
	for _, n := range sortedKeys(m.out) {
		o := m.out[n]
		delete(m.out, n)
		if o.begun {
			m.end(o, interrupted)
			continue
		}
		for _, id := range o.ids {
			if o.wanted[id] {
				m.known(id, o.letter).careful = true
			}
		}
	}
}

// Reopen takes another handle.
func (m *parallelModel) Reopen(t *rapid.T) {
	if err := m.th.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.th, err = Open(m.dir, WithClock(func() time.Time { return m.now })); err != nil {
		t.Fatal(err)
	}
	m.Kill(t)
	m.sound(t)
}

// sound has what is kept checked.
func (m *parallelModel) sound(t *rapid.T) {
	if r, err := Check(ctx, m.th); err != nil || len(r.Faults) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// moved is what moving progress does by hand, from one id to another.
func (m *parallelModel) moved(from, to int64, seek bool) {
	forget := func(id int64) {
		delete(m.tries, id)
		for _, o := range m.out {
			if !o.letter {
				delete(o.wanted, id)
			}
		}
	}
	switch {
	case to < from || seek && to == from:
		for id := int64(1); id <= m.head(); id++ {
			forget(id)
			if id > to {
				delete(m.settled, id)
				for _, o := range m.out {
					delete(o.wanted, id)
				}
			}
		}
	default:
		for id := int64(1); id <= to; id++ {
			m.settled[id] = true
			forget(id)
		}
	}
	for id, l := range m.retries { // what is known of their attempts goes, too
		if seek || to < from && id > to {
			l.careful = false
		}
	}
	if seek {
		clear(m.tries)
		for _, o := range m.out {
			clear(o.wanted)
		}
	}
}

func (m *parallelModel) Seek(t *rapid.T) {
	m.takeOver()
	id, before := rapid.Int64Range(0, m.head()).Draw(t, "to"), m.info().LastAcked
	if err := m.th.Seek(ctx, "c", id); err != nil {
		t.Fatal(err)
	}
	m.moved(before, id, true)
}

func (m *parallelModel) Ack(t *rapid.T) {
	m.takeOver()
	id, before := rapid.Int64Range(0, m.head()).Draw(t, "upto"), m.info().LastAcked
	if err := m.th.Ack(ctx, "c", id); err != nil {
		t.Fatal(err)
	}
	if id > before {
		m.moved(before, id, false)
	}
}

func (m *parallelModel) Pop(t *rapid.T) {
	m.takeOver()
	id, before := rapid.Int64Range(0, m.head()).Draw(t, "last"), m.info().LastAcked
	if _, err := m.th.Pop(ctx, "c", PopQuery{LastAcked: id, Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if id != before {
		m.moved(before, id, false)
	}
}

func (m *parallelModel) info() ConsumerInfo {
	info, err := m.th.Info(ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	return info.Subscriptions[0]
}

func (m *parallelModel) RetryDead(t *rapid.T) {
	m.takeOver()
	var some []DeadLetter
	for l, err := range m.th.DeadLetters(ctx, DeadLetterQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "this") {
			some = append(some, l)
		}
	}
	if _, err := m.th.RetryDead(ctx, some); err != nil {
		t.Fatal(err)
	}
	for _, l := range some {
		id := l.Event.ID
		d := m.dead[id]
		delete(m.dead, id)
		m.retries[id] = &parallelTries{tries: tries{counted: d.counted}}
	}
}

// Check compares what is stored with what is owed.
func (m *parallelModel) Check(t *rapid.T) {
	if m.crashed {
		return
	}
	c := m.info()
	owed := int64(0)
	for id := int64(1); id <= m.head(); id++ {
		if m.matching(id) && !m.settled[id] {
			owed++
			if id <= c.LastAcked {
				t.Fatalf("progress is %d, and event %d is owed", c.LastAcked, id)
			}
		}
	}
	backlog, _, err := m.th.Backlog(ctx, "c")
	if err != nil || backlog != owed {
		t.Fatalf("%d unread, %v, want %d", backlog, err, owed)
	}
	due, err := m.th.DueFor(ctx, "c", 0)
	if err != nil || (due.First != 0) != (owed+int64(len(m.retries)) > 0) {
		t.Fatalf("due %d, %v, with %d owed and %d letters sent back", due.First, err, owed, len(m.retries))
	}
	dead := map[int64]bool{}
	for l, err := range m.th.DeadLetters(ctx, DeadLetterQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		dead[l.Event.ID] = true
		if d := m.dead[l.Event.ID]; d == nil || d.counted != l.Attempts {
			t.Fatalf("event %d is dead after %d attempts, want %+v", l.Event.ID, l.Attempts, d)
		}
	}
	if len(dead) != len(m.dead) {
		t.Fatalf("dead are %v, want %v", dead, m.dead)
	}
}

// Drain settles everything, and progress is at the end.
func (m *parallelModel) drain(t *rapid.T) {
	for n := 0; ; n++ {
		if n > 2000 {
			t.Fatal("it does not come to an end")
		}
		m.takeOver()
		var q Step
		for _, n := range sortedKeys(m.out) {
			r := Result{Verdict: Succeeded}
			q.Results = append(q.Results, DeliveryResult{n, r})
			m.end(m.out[n], r)
			delete(m.out, n)
		}
		q.Begin = 8
		g, err := m.feed.Step(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range g.Begin {
			m.given(t, d, true)
		}
		if len(g.Begin) == 0 && !g.More {
			if g.NotBefore.IsZero() {
				break
			}
			m.now = g.NotBefore
		}
	}
	m.Check(t)
	if due, err := m.th.DueFor(ctx, "c", 0); err != nil || due.First != 0 {
		for _, l := range m.feed.keys {
			t.Logf("%+v", l)
		}
		for _, p := range m.feed.loaded {
			t.Logf("%+v", p)
		}
		t.Fatalf("due %d, %v, %+v, settled %v, letters %v, feed full %v %+v", due.First, err, m.info().ParallelState, m.settled, m.retries, m.feed.full(), m.feed)
	}
	m.sound(t)
	if c := m.info(); c.Settled != 0 || c.Out != 0 || c.Waiting != 0 {
		t.Fatalf("everything is settled, progress %d of %d, and there is left %+v", c.LastAcked, m.head(), c.ParallelState)
	}
}

func TestParallelModel(t *testing.T) {
	defer func(a, b, c, d int) { loadedOfKey, loadedAtOnce, lettersAhead, keysAtOnce = a, b, c, d }(loadedOfKey, loadedAtOnce, lettersAhead, keysAtOnce)
	loadedOfKey, loadedAtOnce, lettersAhead = 3, 9, 2
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "thread-parallel-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		keysAtOnce = rapid.SampledFrom([]int{2, 36}).Draw(t, "keys at once")
		m := &parallelModel{
			t: t, dir: filepath.Join(dir, "t"), now: time.Date(2026, 3, 18, 10, 30, 0, 0, time.UTC),
			by: rapid.SampledFrom([]string{"source", "source", "$.k", ""}).Draw(t, "by"), limit: rapid.SampledFrom([]int64{1, 1, 4, 8}).Draw(t, "limit"),
			window:  rapid.SampledFrom([]int64{5, 20, 1000}).Draw(t, "window"),
			settled: map[int64]bool{}, tries: map[int64]*parallelTries{}, dead: map[int64]*parallelTries{}, retries: map[int64]*parallelTries{}, out: map[int64]*parallelOut{},
		}
		if m.th, err = Init(m.dir, WithClock(func() time.Time { return m.now })); err != nil {
			t.Fatal(err)
		}
		defer func() { m.th.Close() }()
		if err := m.th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Filter: event.Text("type = 'message'")}); err != nil {
			t.Fatal(err)
		}
		m.newFeed()
		t.Repeat(map[string]func(*rapid.T){
			"Push": m.Push, "Wait": m.Wait, "Step": m.Step, "Step2": m.Step, "Step3": m.Step, "Kill": m.Kill, "Reopen": m.Reopen,
			"Seek": m.Seek, "Ack": m.Ack, "Pop": m.Pop, "RetryDead": m.RetryDead, "": m.Check,
		})
		m.drain(t)
	})
}
