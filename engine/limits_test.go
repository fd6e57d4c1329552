package engine

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
	"thread/jsonlog"
)

var limitsBegin = time.Date(2026, 3, 18, 10, 30, 0, 0, time.UTC)

func limited(t testing.TB, l Limits) (*Thread, *time.Time) {
	t.Helper()
	now := limitsBegin
	th, err := Init(filepath.Join(t.TempDir(), "t"), WithClock(func() time.Time { return now }))
	if err == nil {
		err = th.SetLimits(ctx, l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return th, &now
}

func pushLimited(t testing.TB, th *Thread, n, bytes int) {
	t.Helper()
	ds := make([]event.Draft, n)
	for i := range ds {
		ds[i] = event.Draft{Source: "s", Type: "t", Content: strings.Repeat("x", bytes)}
	}
	if _, err := th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
}

func oldestAndCount(t testing.TB, th *Thread) (oldest, n int64) {
	t.Helper()
	for e, err := range th.Events(ctx, Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; oldest == 0 {
			oldest = e.ID
		}
	}
	return oldest, n
}

func retain(t testing.TB, th *Thread) Compaction {
	t.Helper()
	c, err := th.Retain(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLimitsModel: whatever is pushed and acked, what stays are the newest events, as
// many as may stay and not many fewer, except for those that another process waits for.
func TestLimitsModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		most := rapid.Int64Range(1, 40).Draw(r, "max")
		force := rapid.Bool().Draw(r, "force")
		th, now := limited(t, Limits{MaxEvents: most, Force: force})
		acked := map[string]int64{}
		for _, c := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(r, "consumers")] {
			if err := th.Subscribe(ctx, Subscription{Consumer: c, Handler: "true"}); err != nil {
				t.Fatal(err)
			}
			acked[c] = 0
		}
		head, oldest := int64(0), int64(1)
		for range rapid.IntRange(1, 4).Draw(r, "steps") {
			n := rapid.IntRange(1, 30).Draw(r, "push")
			pushLimited(t, th, n, 10)
			head += int64(n)
			for c := range acked {
				if rapid.Bool().Draw(r, "ack") {
					acked[c] = rapid.Int64Range(acked[c], head).Draw(r, "to")
					if err := th.Ack(ctx, c, acked[c]); err != nil {
						t.Fatal(err)
					}
				}
			}
			*now = now.Add(retainPause + time.Minute)
			retain(t, th)
			wanted := oldest
			if head-oldest+1 > most {
				wanted = head - (most - most/8) + 1
			}
			held := ""
			for c, id := range acked {
				if !force && id+1 < wanted {
					wanted, held = max(oldest, id+1), c
				}
			}
			oldest = wanted
			got, count := oldestAndCount(t, th)
			if got != oldest || count != head-oldest+1 {
				t.Fatalf("%d events from %d on, want %d from %d", count, got, head-oldest+1, oldest)
			}
			s, err := th.Limits(ctx)
			if err != nil || (s.Held != nil) != (held != "") || s.Over != (count > most) {
				t.Fatalf("%+v, %v; held by %q, %d events", s, err, held, count)
			}
		}
		if e, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil || e.ID != head+1 {
			t.Fatalf("id %d, %v, want %d", e.ID, err, head+1)
		}
	})
}

// TestLimitsDead: the event of a dead letter keeps all newer ones, and its consumer is
// named.
func TestLimitsDead(t *testing.T) {
	th, _ := limited(t, Limits{MaxEvents: 5})
	if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	pushLimited(t, th, 8, 10)
	feed := th.Feed("c", Policy{Limit: 1, MaxAttempts: 1})
	for i := range 8 {
		_, err := feed.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		v := Succeeded
		if i == 2 {
			v = Failed
		}
		if _, err := feed.Settle(ctx, Result{Verdict: v, ExitCode: 1, Error: "exit 1"}); err != nil {
			t.Fatal(err)
		}
	}
	retain(t, th)
	if oldest, n := oldestAndCount(t, th); oldest != 3 || n != 6 {
		t.Fatalf("%d events from %d on", n, oldest)
	}
	info, err := th.Info(ctx)
	if err != nil || info.Limits == nil || info.Limits.Held == nil || !info.Limits.Held.Dead || info.Limits.Held.Consumer != "c" {
		t.Fatalf("%+v, %v", info.Limits, err)
	}
}

// TestLimitsAge: what is too old goes, and not before.
func TestLimitsAge(t *testing.T) {
	th, now := limited(t, Limits{MaxAge: 10 * 24 * time.Hour})
	for day := range int64(25) {
		pushLimited(t, th, 1, 10)
		retain(t, th)
		oldest, _ := oldestAndCount(t, th)
		// A 32nd is 7.5 hours, and there is a look a day.
		if want := max(1, day+1-10); oldest != want && oldest != want-1 {
			t.Fatalf("day %d: %d is the oldest, want %d", day, oldest, want)
		}
		*now = now.Add(24 * time.Hour)
	}
}

// TestLimitsUnused: no event goes for bytes that nothing is in. What was scheduled leaves as
// many as its event takes.
func TestLimitsUnused(t *testing.T) {
	th, now := limited(t, Limits{MaxBytes: 4 << 20})
	content := strings.Repeat("x", 100<<10)
	for range 25 {
		if _, err := th.PushAt(ctx, event.Draft{Source: "s", Type: "t", Content: content}, now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	*now = now.Add(2 * time.Hour)
	pushLimited(t, th, 1, 10) // and all of these
	if s, err := th.Limits(ctx); err != nil || !s.Over {
		t.Fatalf("%+v, %v", s, err)
	}
	if c := retain(t, th); c.Dropped != 0 || c.Size > 4<<20 {
		t.Errorf("%+v", c)
	}
	if s, err := th.Limits(ctx); err != nil || s.Over {
		t.Errorf("%+v, %v", s, err)
	}
	if oldest, n := oldestAndCount(t, th); oldest != 1 || n != 26 {
		t.Errorf("%d events from %d on", n, oldest)
	}
}

// TestLimitsLongest: with the longest age there is, nothing is ever too old, and the
// thread is not over its limits.
func TestLimitsLongest(t *testing.T) {
	th, _ := limited(t, Limits{MaxAge: math.MaxInt64})
	pushLimited(t, th, 3, 10)
	if c := retain(t, th); c.Dropped != 0 {
		t.Errorf("%d events dropped", c.Dropped)
	}
	if s, err := th.Limits(ctx); err != nil || s.Over {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestLimitsClock: a clock that is ahead by years, at any time of a thread's life, takes
// nothing with it. One that continues for a day is right.
func TestLimitsClock(t *testing.T) {
	for _, ahead := range []time.Duration{8 * 24 * time.Hour, 73 * 365 * 24 * time.Hour} {
		th, now := limited(t, Limits{MaxAge: 30 * 24 * time.Hour})
		pushLimited(t, th, 5, 10)
		right := *now
		*now = now.Add(ahead)
		for range 5 {
			pushLimited(t, th, 1, 10)
			retain(t, th)
			*now = now.Add(4 * time.Hour)
		}
		if oldest, n := oldestAndCount(t, th); oldest != 1 || n != 10 {
			t.Fatalf("%v ahead: %d events from %d on", ahead, n, oldest)
		}
		if s, err := th.Limits(ctx); err != nil || s.Doubted.IsZero() {
			t.Fatalf("the clock is not doubted: %+v, %v", s, err)
		}
		*now = right.Add(time.Hour) // set right
		pushLimited(t, th, 1, 10)
		retain(t, th)
		if s, err := th.Limits(ctx); err != nil || !s.Doubted.IsZero() {
			t.Fatalf("the clock is doubted: %+v, %v", s, err)
		}
		*now = right.Add(40 * 24 * time.Hour) // put away for 40 days
		for range 6 {
			pushLimited(t, th, 1, 10)
			retain(t, th)
			*now = now.Add(5 * time.Hour)
		}
		if oldest, _ := oldestAndCount(t, th); oldest < 6 {
			t.Errorf("%v ahead: after a day of a right clock event %d is there", ahead, oldest)
		}
	}
	// Set while the clock is ahead.
	th, now := limited(t, Limits{})
	pushLimited(t, th, 5, 10)
	*now = now.AddDate(10, 0, 0)
	if err := th.SetLimits(ctx, Limits{MaxAge: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	if c := retain(t, th); c.Dropped != 0 {
		t.Errorf("%d events dropped by a clock that is ahead", c.Dropped)
	}
}

// TestLimitsLines: the lines of a thread of large events take about as many bytes as its
// events, in the beginning twice as many; all events that are there have theirs, once, and without limits only the number of
// lines counts.
func TestLimitsLines(t *testing.T) {
	const most = 4 << 20
	th, now := limited(t, Limits{MaxBytes: most})
	for n := range 200 {
		pushLimited(t, th, 1, 100<<10)
		retain(t, th)
		*now = now.Add(retainPause + time.Minute)
		files, err := filepath.Glob(filepath.Join(th.Dir(), "events*.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		all := int64(0)
		for _, name := range files {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			all += info.Size()
		}
		// The first file has all lines until the limit is passed the first time.
		if all > 2*most+1<<20 || n > 100 && all > most+most/2 {
			t.Fatalf("%d events: %d bytes of lines in %d files", n+1, all, len(files))
		}
	}
	oldest, n := oldestAndCount(t, th)
	ids := map[int64]int{}
	files, _ := filepath.Glob(filepath.Join(th.Dir(), "events*.jsonl"))
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			id, ok := jsonlog.LineID([]byte(strings.TrimSuffix(line, "\n")))
			if ids[id]++; !ok || ids[id] > 1 {
				t.Errorf("line %.40q in %s, for the %d. time", line, name, ids[id])
			}
		}
	}
	for id := oldest; id < oldest+n; id++ {
		if ids[id] != 1 {
			t.Errorf("event %d has %d lines", id, ids[id])
		}
	}
	if len(files) < 3 {
		t.Errorf("only %q", files)
	}
	whole, _ := limited(t, Limits{})
	pushLimited(t, whole, 100, 100<<10)
	if _, err := whole.Prune(ctx, Retention{KeepLast: new(int64(5))}); err != nil {
		t.Fatal(err)
	}
	pushLimited(t, whole, 1, 10)
	if files, _ := filepath.Glob(filepath.Join(whole.Dir(), "events-*.jsonl")); len(files) > 0 {
		t.Errorf("rotated without a limit: %q", files)
	}
}
