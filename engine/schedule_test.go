package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" //for hosts without

	"thread/event"
	"thread/internal/store/bolt"
)

// later is a thread with a separate clock.
type later struct {
	*testing.T
	th  *Thread
	now time.Time
}

func newLater(t *testing.T, opts ...Option) *later {
	t.Helper()
	// The local time zone is the zone of the schedules.
	l := &later{T: t, now: time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)}
	th, err := Init(filepath.Join(t.TempDir(), "inbox"), append(opts, WithClock(func() time.Time { return l.now }))...)
	if err != nil {
		t.Fatal(err)
	}
	l.th = th
	return l
}

func (l *later) at(delay time.Duration, content string) {
	l.Helper()
	if _, err := l.th.PushAt(ctx, event.Draft{Source: "s", Type: "t", Content: content}, l.now.Add(delay)); err != nil {
		l.Fatal(err)
	}
}

// contents returns what is stored, in the order of ids, which must have no gap.
func (l *later) contents() (list []string) {
	l.Helper()
	for e, err := range l.th.Events(ctx, Query{}) {
		if err != nil {
			l.Fatal(err)
		}
		list = append(list, e.Content)
		if e.ID != int64(len(list)) {
			l.Fatalf("id %d at place %d", e.ID, len(list))
		}
	}
	return list
}

func (l *later) want(contents ...string) {
	l.Helper()
	if got := l.contents(); !slices.Equal(got, contents) {
		l.Fatalf("stored %q, want %q", got, contents)
	}
}

func (l *later) scheduled(n int64) {
	l.Helper()
	info, err := l.th.Info(ctx)
	if err != nil || info.Scheduled != n {
		l.Fatalf("%d are scheduled, want %d (%v)", info.Scheduled, n, err)
	}
}

// TestDelayedOrder: delayed events come in the order of their times, events of one
// time in the order of the pushes, and before what is pushed after their time.
func TestDelayedOrder(t *testing.T) {
	l := newLater(t)
	l.at(3*time.Minute, "third")
	l.at(time.Minute, "first")
	l.at(2*time.Minute, "second")
	l.at(2*time.Minute, "second again")
	l.at(time.Hour, "last")
	l.at(-time.Hour, "now")
	l.scheduled(5)
	l.want("now")
	l.now = l.now.Add(time.Minute - time.Millisecond)
	l.want("now")
	l.now = l.now.Add(time.Millisecond)
	l.want("now", "first")
	l.now = l.now.Add(5 * time.Minute)
	e, err := l.th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "pushed"})
	if err != nil || e.ID != 6 {
		t.Fatal(e, err)
	}
	l.want("now", "first", "second", "second again", "third", "pushed")
	l.scheduled(1)
	delayed, err := l.th.Delayed(ctx, 0)
	if err != nil || len(delayed) != 1 || delayed[0].Draft.Content != "last" {
		t.Fatal(delayed, err)
	}
	if next, err := l.th.NextScheduled(ctx); err != nil || !next.Equal(delayed[0].At) {
		t.Fatal(next, err)
	}
}

// TestEveryUseReleases: whatever a process does with the thread releases what is
// due, and progress does not run ahead of it.
func TestEveryUseReleases(t *testing.T) {
	for name, use := range map[string]func(th *Thread) error{
		"Info":     func(th *Thread) error { _, err := th.Info(ctx); return err },
		"Due":      func(th *Thread) error { _, err := th.Due(ctx); return err },
		"Pop":      func(th *Thread) error { _, err := th.Pop(ctx, "c", PopQuery{Limit: 1}); return err },
		"Ack":      func(th *Thread) error { return th.Ack(ctx, "c", 1) }, // the event has to exist
		"View":     func(th *Thread) error { return th.View(ctx, func(*Tx) error { return nil }) },
		"Next":     func(th *Thread) error { _, err := th.NextScheduled(ctx); return err },
		"PushLong": func(th *Thread) error { return pushMany(th, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			l := newLater(t, WithOnRelease(func(source string) { told = append(told, source) }))
			if err := l.th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
				t.Fatal(err)
			}
			l.at(time.Minute, "x")
			l.now = l.now.Add(time.Hour)
			setMaxReleased(t, 2)
			dirOf(l.th).MaxGroup = 2
			if err := use(l.th); err != nil {
				t.Fatal(err)
			}
			// Another handle, whose clock stands at the beginning, releases nothing.
			other, err := Open(l.th.Dir(), WithClock(func() time.Time { return l.now.Add(-time.Hour) }))
			if err != nil {
				t.Fatal(err)
			}
			for e, err := range other.Events(ctx, Query{Limit: 1}) {
				if err != nil || e.Content != "x" {
					t.Errorf("the first event is %+v (%v)", e, err)
				}
			}
			if !slices.Equal(told, []string{"s"}) {
				t.Errorf("told %q", told)
			}
		})
	}
}

func pushMany(th *Thread, n int) error {
	_, err := th.PushBatch(ctx, slices.Repeat([]event.Draft{{Source: "many", Type: "t"}}, n))
	return err
}

// TestReleaseMany: more than fits into one transaction.
func TestReleaseMany(t *testing.T) {
	l := newLater(t)
	setMaxReleased(t, 3)
	var want []string
	for i := range 10 {
		l.at(time.Minute, fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
	}
	l.now = l.now.Add(time.Hour)
	l.want(want...)
	l.scheduled(0)
}

// TestDelayedDedupe: the key counts from the time at which the event is stored.
func TestDelayedDedupe(t *testing.T) {
	l := newLater(t)
	d := event.Draft{Source: "s", Type: "t", Content: "once", DedupeKey: "k", DedupeWindow: time.Hour}
	for range 2 {
		if _, err := l.th.PushAt(ctx, d, l.now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	l.now = l.now.Add(48 * time.Hour)
	l.want("once")
	if _, err := l.th.Push(ctx, d); err != nil {
		t.Fatal(err)
	}
	l.want("once")
}

// TestScheduleMissed: times that no process was there for are made up for by one
// event, and then the schedule continues.
func TestScheduleMissed(t *testing.T) {
	for _, tt := range []struct {
		spec        string
		first, next time.Duration // from 12:00; next after a sleep until 15:20
	}{
		{"*/10 * * * *", 10 * time.Minute, 3*time.Hour + 30*time.Minute},
		{"30 9 * * *", 21*time.Hour + 30*time.Minute, 21*time.Hour + 30*time.Minute},
		{"@hourly", time.Hour, 4 * time.Hour},
		{"@every 7m", 7 * time.Minute, 3*time.Hour + 27*time.Minute},
	} {
		t.Run(tt.spec, func(t *testing.T) {
			l := newLater(t)
			start := l.now
			s := Schedule{Name: "n", Spec: tt.spec, Draft: event.Draft{Source: "cron", Type: "tick", Content: "x"}}
			first, err := l.th.AddSchedule(ctx, s)
			if err != nil || !first.Equal(start.Add(tt.first)) {
				t.Fatalf("first at %v: %v", first, err)
			}
			if _, err := l.th.AddSchedule(ctx, s); !errors.Is(err, ErrScheduleExists) {
				t.Errorf("twice: %v", err)
			}
			l.now = start.Add(3*time.Hour + 20*time.Minute)
			want := []string{"x"}
			if tt.first > l.now.Sub(start) {
				want = nil
			}
			l.want(want...)
			list, err := l.th.Schedules(ctx)
			if err != nil || len(list) != 1 || !list[0].Next.Equal(start.Add(tt.next)) || list[0].Spec != tt.spec || list[0].Draft.Content != "x" {
				t.Fatalf("%+v %v, want next at %v", list, err, start.Add(tt.next))
			}
			l.now = list[0].Next
			l.want(append(want, "x")...)
			l.scheduled(1)
			if err := l.th.RemoveSchedule(ctx, "n"); err != nil {
				t.Fatal(err)
			}
			if err := l.th.RemoveSchedule(ctx, "n"); !errors.Is(err, ErrNoSchedule) {
				t.Errorf("removed twice: %v", err)
			}
			l.now = l.now.Add(100 * time.Hour)
			l.want(append(want, "x")...)
			l.scheduled(0)
		})
	}
}

// TestScheduleOnTime: a schedule that is attended to keeps its cadence.
func TestScheduleOnTime(t *testing.T) {
	l := newLater(t)
	s := Schedule{Name: "n", Spec: "@every 10s", Draft: event.Draft{Source: "cron", Type: "tick"}}
	next, err := l.th.AddSchedule(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		l.now = next.Add(3 * time.Second) // always late
		if got := len(l.contents()); got != i+1 {
			t.Fatalf("%d events after %d times", got, i+1)
		}
		was := next
		if next, err = l.th.NextScheduled(ctx); err != nil || !next.Equal(was.Add(10*time.Second)) {
			t.Fatalf("after %v comes %v (%v)", was, next, err)
		}
	}
}

// TestScheduleSummerTime: a time of day that comes twice counts twice, and one
// that is left out not at all.
func TestScheduleSummerTime(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		spec  string
		after time.Time
		want  []string // in UTC
	}{
		{"30 1 * * *", time.Date(2026, 11, 1, 0, 0, 0, 0, zone), []string{"11-01 05:30", "11-01 06:30", "11-02 06:30"}},
		{"30 2 * * *", time.Date(2026, 3, 7, 0, 0, 0, 0, zone), []string{"03-07 07:30", "03-09 06:30"}},
		{"0 * * * *", time.Date(2026, 3, 8, 0, 40, 0, 0, zone), []string{"03-08 06:00", "03-08 07:00", "03-08 08:00"}},
	} {
		spec, _, err := parseSpec(tt.spec)
		if err != nil {
			t.Fatal(err)
		}
		at := tt.after
		for _, want := range tt.want {
			if at = spec.Next(at); at.UTC().Format("01-02 15:04") != want {
				t.Errorf("%s: %v, want %s", tt.spec, at.UTC(), want)
			}
		}
	}
}

func TestScheduleRefused(t *testing.T) {
	l := newLater(t)
	good := event.Draft{Source: "s", Type: "t"}
	for _, s := range []Schedule{
		{Name: "n", Spec: "", Draft: good},
		{Name: "n", Spec: "* * * *", Draft: good},
		{Name: "n", Spec: "* * * * * *", Draft: good},
		{Name: "n", Spec: "61 * * * *", Draft: good},
		{Name: "n", Spec: "0 0 30 2 *", Draft: good}, // there is no such day
		{Name: "n", Spec: "@every x", Draft: good},
		{Name: "n", Spec: "@every 0s", Draft: good},
		{Name: "n", Spec: "@every -1h", Draft: good},
		{Name: "n", Spec: "@every 999ms", Draft: good},
		{Name: "n", Spec: "@every 1m0.5s", Draft: good},
		{Name: "n", Spec: "@reboot", Draft: good},
		{Name: "n", Spec: "TZ=0", Draft: good},
		{Name: "n", Spec: "CRON_TZ=UTC * * * * *", Draft: good},
		{Name: "", Spec: "@hourly", Draft: good},
		{Name: "\xff", Spec: "@hourly", Draft: good},
		{Name: "n", Spec: "@hourly"},
	} {
		if _, err := l.th.AddSchedule(ctx, s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, at := range []time.Time{time.Unix(-1, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if _, err := l.th.PushAt(ctx, good, at); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", at, err)
		}
	}
	if _, err := l.th.PushAt(context.Background(), event.Draft{}, l.now.Add(time.Hour)); !errors.Is(err, ErrInvalid) {
		t.Errorf("an empty draft: %v", err)
	}
	l.scheduled(0)
}

// TestScheduleDamage: a record that rots keeps writers from going on as if
// nothing was, but not readers; check names it, and repair saves the others.
func TestScheduleDamage(t *testing.T) {
	for _, tt := range []struct {
		bucket    []byte
		left      int64 // scheduled after the repair
		schedules int
	}{
		// The schedule's own entry in the queue, the first, can be made again.
		{bucketScheduled, 2, 1},
		{bucketSchedules, 1, 0},
	} {
		t.Run(string(tt.bucket), func(t *testing.T) {
			l := newLater(t)
			s := Schedule{Name: "n", Spec: "@every 1m", Draft: event.Draft{Source: "cron", Type: "tick", Content: "tick"}}
			if _, err := l.th.AddSchedule(ctx, s); err != nil {
				t.Fatal(err)
			}
			l.at(time.Hour, "later")
			err := l.th.Update(ctx, func(tx *Tx) error {
				b := bolt.Raw(tx.s).Bucket(tt.bucket)
				k, v := b.Cursor().First()
				v = slices.Clone(v)
				v[2] ^= 1
				return b.Put(slices.Clone(k), v)
			})
			if err != nil {
				t.Fatal(err)
			}
			l.now = l.now.Add(2 * time.Minute)
			if _, err := l.th.Push(ctx, event.Draft{Source: "s", Type: "t"}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("push: %v", err)
			}
			l.want()
			r, err := Check(ctx, l.th)
			if err != nil || len(r.Faults) == 0 {
				t.Errorf("check: %+v %v", r, err)
			}
			to := filepath.Join(t.TempDir(), "repaired")
			if report, err := Repair(ctx, l.th.Dir(), to); err != nil || len(report.Problems) != 1 {
				t.Fatalf("repair: %+v %v", report, err)
			}
			if l.th, err = Open(to, WithClock(func() time.Time { return l.now })); err != nil {
				t.Fatal(err)
			}
			if r, err := Check(ctx, l.th); err != nil || len(r.Faults) > 0 {
				t.Errorf("check after repair: %+v %v", r, err)
			}
			l.scheduled(tt.left)
			if list, err := l.th.Schedules(ctx); err != nil || len(list) != tt.schedules {
				t.Errorf("%+v %v", list, err)
			}
			l.want(slices.Repeat([]string{"tick"}, tt.schedules)...)
			l.now = l.now.Add(time.Hour)
			l.want(append(slices.Repeat([]string{"tick"}, 2*tt.schedules), "later")...)
		})
	}
}

// TestCheckReleasesNothing: a check changes nothing, and what is due is not a fault.
func TestCheckReleasesNothing(t *testing.T) {
	l := newLater(t)
	l.at(time.Minute, "later")
	was := l.now
	l.now = l.now.Add(time.Hour)
	if r, err := Check(ctx, l.th); err != nil || len(r.Faults) > 0 || r.Events != 0 {
		t.Errorf("%+v %v", r, err)
	}
	l.now = was
	l.scheduled(1)
}

// TestPruneKeepsScheduled: what is to come is not an event yet.
func TestPruneKeepsScheduled(t *testing.T) {
	l := newLater(t)
	l.at(-time.Second, "gone")
	l.at(time.Minute, "later")
	if _, err := l.th.AddSchedule(ctx, Schedule{Name: "n", Spec: "@every 2m", Draft: event.Draft{Source: "cron", Type: "tick", Content: "tick"}}); err != nil {
		t.Fatal(err)
	}
	if r, err := l.th.Prune(ctx, Retention{KeepLast: new(int64)}); err != nil || r.Dropped != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	l.scheduled(2)
}

// TestScheduleSundays: 7 is Sunday, like 0, also at the end of a range; what is
// stored says the same without it.
func TestScheduleSundays(t *testing.T) {
	for field, want := range map[string]string{
		"7": "Sun", "0": "Sun", "5-7": "Fri Sat Sun", "fri-7": "Fri Sat Sun", "SAT-7": "Sat Sun", "0-7": "Mon Tue Wed Thu Fri Sat Sun",
		"1-7/2": "Mon Wed Fri Sun", "2-7/3": "Tue Fri", "7-7": "Sun", "7,3": "Wed Sun", "1,5-7": "Mon Fri Sat Sun", "*/7": "Sun", "7/2": "Sun", "1-5/7": "Mon",
		"sun-7/7": "Sun",
	} {
		times, stored, err := parseSpec("0  0 * * " + field)
		if err != nil {
			t.Errorf("%s: %v", field, err)
			continue
		}
		day := time.Date(2026, 3, 15, 12, 0, 0, 0, time.Local) // a Sunday
		var days []string
		for end := day.AddDate(0, 0, 7); ; {
			if day = times.Next(day); day.After(end) {
				break
			}
			days = append(days, day.Weekday().String()[:3])
		}
		if got := strings.Join(days, " "); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
		if again, err := cronParser.Parse(stored); err != nil || again.Next(day) != times.Next(day) {
			t.Errorf("%s is stored as %q: %v", field, stored, err)
		}
	}
	for _, field := range []string{"8", "7-8", "8-7", "-7", "7-", "1-7/0", "1-7/x", "un-7", "foo-7", "7-1", "77", "1-07x"} {
		if _, stored, err := parseSpec("0 0 * * " + field); err == nil {
			t.Errorf("%s is taken as %q", field, stored)
		}
	}
	if _, stored, err := parseSpec("@every 1w2d"); err != nil || stored != "@every 216h0m0s" {
		t.Errorf("got %q, %v", stored, err)
	}
	if _, stored, err := parseSpec("*/7 7 7 7 *"); err != nil || stored != "*/7 7 7 7 *" {
		t.Errorf("got %q, %v", stored, err)
	}
}
