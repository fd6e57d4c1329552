package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

// leaseModel is what a consumer with Pull must do, said without a Feed: one delivery is
// out at a time, its number decides who may store a result, and the clock only when its events
// are redelivered. The clock goes forward and back.
type leaseModel struct {
	dir string
	th  *Thread
	now time.Time

	head, acked int64
	failed      map[int64]int64 // attempts that were counted
	dead        []int64
	max         int64
	paused      bool
	split       int64     // groups of events up to here are halved
	wait        time.Time // the first unread event is not tried before
	waitFrom    time.Time

	number          int64
	out             []int64 // empty: nothing is in flight
	at, end         time.Time
	stale           []int64
	taken, replaced int
}

func (m *leaseModel) open(t *rapid.T, dir string) {
	th, err := Open(dir, WithClock(func() time.Time { return m.now }))
	if err != nil {
		t.Fatal(err)
	}
	m.th = th
}

// Reopen is a process that is killed: nothing but the directory is left.
func (m *leaseModel) Reopen(t *rapid.T) {
	m.th.Close()
	m.open(t, m.dir)
}

func (m *leaseModel) Push(t *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(t, "events")
	for range n {
		if _, err := m.th.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	m.head += int64(n)
}

func (m *leaseModel) Clock(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int64{1, 500, 1000, 5_000, 600_000, -1, -1000, -86_400_000}).Draw(t, "ms")) * time.Millisecond)
}

// leased reports whether what is in flight is not to be given out again yet.
func (m *leaseModel) leased() bool {
	return len(m.out) > 0 && !m.now.Before(m.at) && m.now.Before(m.end)
}

// waits reports whether the first unread event is not to be tried yet.
func (m *leaseModel) waits() bool { return !m.now.Before(m.waitFrom) && m.now.Before(m.wait) }

// over counts the end of what is in flight as a failure of it, at the next tries.
func (m *leaseModel) over(wait bool) {
	out := m.out
	m.out, m.wait = nil, time.Time{}
	m.stale = append(m.stale, m.number)
	if len(out) > 1 {
		m.split = out[len(out)-1]
		return
	}
	m.split = 0
	if m.failed[out[0]]++; m.failed[out[0]] < m.max {
		if wait {
			m.wait, m.waitFrom = m.now.Add(leaseBackoff(m.failed[out[0]])), m.now
		}
		return
	}
	m.dead, m.acked = append(m.dead, out[0]), out[0]
}

// next is what a call must give out.
func (m *leaseModel) next(limit int64) (ids []int64) {
	first := m.acked + 1
	if first > m.head || m.waits() {
		return nil
	}
	last := min(m.head, m.acked+limit)
	if m.failed[first] > 0 {
		last = first
	} else if m.split >= first {
		last = min(last, m.split)
		last = first + (last-first+2)/2 - 1
	}
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

func (m *leaseModel) Next(t *rapid.T) {
	o := NextOptions{Limit: rapid.Int64Range(1, 4).Draw(t, "limit"), Lease: time.Duration(rapid.IntRange(1, 4).Draw(t, "lease")) * time.Second,
		Ack: rapid.IntRange(0, 4).Draw(t, "ack") == 0}
	l, err := m.th.Next(ctx, "c", o)
	if m.paused {
		if !errors.Is(err, ErrPaused) || len(l.Events) > 0 {
			t.Fatalf("paused: %v, %v", l, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for _, e := range l.Events {
		ids = append(ids, e.ID)
	}
	if m.leased() {
		if len(ids) > 0 || !l.NotBefore.Equal(m.end) {
			t.Fatalf("while %v are out until %v: %v, not before %v", m.out, m.end, ids, l.NotBefore)
		}
		return
	}
	if len(m.out) > 0 {
		m.over(false)
	}
	if want := m.next(o.Limit); !slices.Equal(ids, want) {
		t.Fatalf("given out: %v, want %v (failed %v, split %d)", ids, want, m.failed, m.split)
	}
	if len(ids) == 0 {
		if m.acked < m.head == l.NotBefore.IsZero() {
			t.Fatalf("acked %d of %d, not before %v", m.acked, m.head, l.NotBefore)
		}
		return
	}
	m.taken++
	if len(ids) == 1 && l.Attempt != m.failed[ids[0]]+1 {
		t.Fatalf("attempt %d, want %d", l.Attempt, m.failed[ids[0]]+1)
	}
	if l.Number() <= m.number {
		t.Fatalf("number %d after %d", l.Number(), m.number)
	}
	m.number = l.Number()
	if o.Ack {
		m.stale = append(m.stale, m.number)
		m.done(ids[len(ids)-1])
		return
	}
	m.out, m.at, m.end = ids, m.now, m.now.Add(o.Lease)
	if !l.Until.Equal(m.end) {
		t.Fatalf("until %v, want %v", l.Until, m.end)
	}
}

func (m *leaseModel) done(upto int64) {
	m.out, m.wait = nil, time.Time{}
	if m.split <= upto {
		m.split = 0
	}
	// What came again, after a seek, and went well is not a dead letter any more.
	m.dead = slices.DeleteFunc(m.dead, func(id int64) bool { return id > m.acked && id <= upto })
	m.acked = max(m.acked, upto)
}

// Settle stores a result, however late it comes.
func (m *leaseModel) Settle(t *rapid.T) {
	if len(m.out) == 0 {
		t.Skip()
	}
	verdict := rapid.SampledFrom([]Verdict{Succeeded, Succeeded, Failed, Returned}).Draw(t, "verdict")
	if _, err := m.th.SettleDelivery(ctx, "c", m.number, Result{Verdict: verdict, ExitCode: -1, Error: "no"}); err != nil {
		t.Fatal(err)
	}
	switch verdict {
	case Succeeded:
		m.stale = append(m.stale, m.number)
		m.done(m.out[len(m.out)-1])
	case Failed:
		m.over(true)
	case Returned:
		m.stale, m.out = append(m.stale, m.number), nil
	}
	if m.wait.After(m.now) { // it is drawn out at random
		m.now = m.now.Add(6 * time.Minute)
	}
}

func (m *leaseModel) Extend(t *rapid.T) {
	if len(m.out) == 0 {
		t.Skip()
	}
	until, err := m.th.ExtendDelivery(ctx, "c", m.number, 3*time.Second)
	m.at, m.end = m.now, m.now.Add(3*time.Second)
	if err != nil || !until.Equal(m.end) {
		t.Fatal(until, err)
	}
}

// Stale results are refused, and so are handlers and feeds while events are in flight.
func (m *leaseModel) Refused(t *rapid.T) {
	for _, n := range append(m.stale, m.number+1, 0) {
		if len(m.out) > 0 && n == m.number {
			continue
		}
		if err := m.th.AckDelivery(ctx, "c", n); !errors.Is(err, ErrStale) {
			t.Fatalf("ack of delivery %d: %v", n, err)
		}
	}
	if !m.leased() {
		return
	}
	var leased *LeasedError
	if d, err := m.th.Feed("c", Policy{}).Next(ctx, nil); len(d.Events) > 0 || !errors.As(err, &leased) || leased.Number != m.number {
		t.Fatalf("a feed got %v, %v", d, err)
	}
	err := m.th.Update(ctx, func(tx *Tx) error {
		return tx.Replace("c", func(s *Subscription) { s.Handler, s.Pull, s.MaxAttempts = "h", false, 0 })
	})
	if !errors.As(err, &leased) {
		t.Fatalf("a handler: %v", err)
	}
	m.replaced++
}

func (m *leaseModel) Seek(t *rapid.T) {
	to := rapid.Int64Range(0, m.head).Draw(t, "to")
	if err := m.th.Seek(ctx, "c", to); err != nil {
		t.Fatal(err)
	}
	if len(m.out) > 0 {
		m.stale = append(m.stale, m.number)
	}
	m.out, m.acked, m.split, m.wait = nil, to, 0, time.Time{}
	m.failed = map[int64]int64{}
	m.dead = nil
	ls := letterIDs(t, m.th)
	m.dead = ls // dead letters stay
}

func (m *leaseModel) Pause(t *rapid.T) {
	m.paused = !m.paused
	f := m.th.Resume
	if m.paused {
		f = m.th.Pause
	}
	if err := f(ctx, "c"); err != nil {
		t.Fatal(err)
	}
}

func letterIDs(t *rapid.T, th *Thread) (ids []int64) {
	for l, err := range th.DeadLetters(ctx, DeadLetterQuery{Consumer: "c"}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, l.Event.ID)
	}
	return ids
}

func (m *leaseModel) Check(t *rapid.T) {
	info, err := m.th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := info.Subscriptions[0]
	if c.LastAcked != m.acked || c.Lease.Count != int64(len(m.out)) || len(m.out) > 0 && c.Lease.Number != m.number {
		t.Fatalf("acked %d, out %+v; want %d, %v with number %d", c.LastAcked, c.Lease, m.acked, m.out, m.number)
	}
	slices.Sort(m.dead)
	m.dead = slices.Compact(m.dead)
	if got := letterIDs(t, m.th); !slices.Equal(got, m.dead) {
		t.Fatalf("dead letters %v, want %v", got, m.dead)
	}
	due, err := m.th.Due(ctx)
	if err != nil || len(due) != 0 {
		t.Fatalf("a handler is due: %v, %v", due, err)
	}
}

func TestLeaseModel(t *testing.T) {
	base := t.TempDir()
	n, taken, replaced := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		m := &leaseModel{dir: filepath.Join(base, fmt.Sprint(n)), now: time.UnixMilli(1_800_000_000_000), failed: map[int64]int64{}, max: rapid.Int64Range(1, 3).Draw(t, "max")}
		th, err := Init(m.dir)
		if err == nil {
			err = th.Subscribe(ctx, Subscription{Consumer: "c", Pull: true, MaxAttempts: m.max})
		}
		if err != nil {
			t.Fatal(err)
		}
		th.Close()
		m.open(t, m.dir)
		t.Repeat(map[string]func(*rapid.T){"Push": m.Push, "Clock": m.Clock, "Next": m.Next, "Next2": m.Next, "Settle": m.Settle, "Extend": m.Extend,
			"Refused": m.Refused, "Seek": m.Seek, "Pause": m.Pause, "Reopen": m.Reopen, "": m.Check})
		m.th.Close()
		taken, replaced = taken+m.taken, replaced+m.replaced
	})
	t.Logf("%d checks, %d deliveries, %d refused handlers", n, taken, replaced)
	if n >= 50 && (taken == 0 || replaced == 0) { // a few checks may never come to it
		t.Errorf("%d deliveries, %d refused handlers: the model does nothing", taken, replaced)
	}
}

// pulled is a thread with a consumer with Pull and n events.
func pulled(t *testing.T, n int, now *time.Time) *Thread {
	t.Helper()
	th, err := Init(filepath.Join(t.TempDir(), "t"), WithClock(func() time.Time { return *now }))
	if err == nil {
		err = th.Subscribe(ctx, Subscription{Consumer: "c", Pull: true})
	}
	for range n {
		if err == nil {
			_, err = th.Push(ctx, event.Draft{Source: "s", Type: "t"})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// TestLeaseAckedByID: what was acked by its ids while it was out is neither given out
// again nor an attempt, and holds up nothing.
func TestLeaseAckedByID(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	th := pulled(t, 3, &now)
	if l, err := th.Next(ctx, "c", NextOptions{Limit: 2}); err != nil || len(l.Events) != 2 {
		t.Fatal(l, err)
	}
	if err := th.Ack(ctx, "c", 2); err != nil {
		t.Fatal(err)
	}
	l, err := th.Next(ctx, "c", NextOptions{Limit: 2})
	if err != nil || len(l.Events) != 1 || l.Events[0].ID != 3 || l.Attempt != 1 {
		t.Fatal(l, err)
	}
}

// TestLeaseAndFeed: what a Feed has out is not taken, but by who has the consumer's lock;
// and events in parallel are not given out.
func TestLeaseAndFeed(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	th := pulled(t, 1, &now)
	feed := th.Feed("c", Policy{})
	if d, err := feed.Next(ctx, nil); err != nil || len(d.Events) != 1 {
		t.Fatal(d, err)
	}
	for _, o := range []NextOptions{{}, {TakeOver: true}} {
		if _, err := th.Next(ctx, "c", o); !errors.Is(err, ErrOut) || !errors.Is(err, ErrConsumerBusy) {
			t.Fatal(err)
		}
	}
	feed.Close()
	if _, err := th.Next(ctx, "c", NextOptions{}); !errors.Is(err, ErrOut) || errors.Is(err, ErrConsumerBusy) {
		t.Fatal(err)
	}
	l, err := th.Next(ctx, "c", NextOptions{TakeOver: true})
	if err != nil || len(l.Events) != 0 || l.NotBefore.IsZero() {
		t.Fatal(l, err) // the feed's process was killed: an attempt, and a wait
	}
	now = now.Add(time.Minute)
	if l, err = th.Next(ctx, "c", NextOptions{}); err != nil || l.Attempt != 2 {
		t.Fatal(l, err)
	}
	parallel, err := th.ParallelFeed("c", ParallelPolicy{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parallel.Step(ctx, Step{Begin: 1}); !errors.Is(err, ErrPull) {
		t.Fatal(err)
	}
	if err := th.Subscribe(ctx, Subscription{Consumer: "h", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	if _, err := th.Next(ctx, "h", NextOptions{}); !errors.Is(err, ErrNotPull) {
		t.Fatal(err)
	}
}

// TestLeaseRetry: a dead letter that was sent back is taken like any other event.
func TestLeaseRetry(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	th := pulled(t, 2, &now)
	l, err := th.Next(ctx, "c", NextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := th.SettleDelivery(ctx, "c", l.Number(), Result{Verdict: Rejected}); err != nil {
		t.Fatal(err)
	}
	if n, err := th.RetryDead(ctx, []DeadLetter{{Consumer: "c", Event: event.Event{ID: 1}}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if l, err = th.Next(ctx, "c", NextOptions{Limit: 9}); err != nil || !l.Retry || l.Events[0].ID != 1 {
		t.Fatal(l, err)
	}
	if err := th.Ack(ctx, "c", 2); err != nil { // it is not what is in flight
		t.Fatal(err)
	}
	if got, err := th.Next(ctx, "c", NextOptions{}); err != nil || len(got.Events) != 0 || got.NotBefore.IsZero() {
		t.Fatal(got, err)
	}
	if err := th.AckDelivery(ctx, "c", l.Number()); err != nil {
		t.Fatal(err)
	}
	if got, err := th.Next(ctx, "c", NextOptions{}); err != nil || len(got.Events) != 0 || !got.NotBefore.IsZero() {
		t.Fatal(got, err)
	}
}
