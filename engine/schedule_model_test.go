package engine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

// planned is what the model has in its queue.
type planned struct {
	due     time.Time
	seq     int
	name    string // of a schedule, "" for a delayed event
	content string
	since   time.Time // of a delay, zero for a time of day
}

// plannedSpecs are specs with a plain twin: the first time after t.
var plannedSpecs = []struct {
	spec string
	next func(t time.Time) time.Time
	skew time.Duration
}{
	{"@every 7s", func(t time.Time) time.Time { return t.Truncate(time.Second).Add(7 * time.Second) }, planSkew},
	{"@every 1m30s", func(t time.Time) time.Time { return t.Truncate(time.Second).Add(90 * time.Second) }, planSkew},
	{"* * * * *", func(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }, clockSkew},
	{"*/5 * * * *", func(t time.Time) time.Time { return t.Truncate(5 * time.Minute).Add(5 * time.Minute) }, clockSkew},
	{"3 * * * *", func(t time.Time) time.Time {
		at := t.Truncate(time.Hour).Add(3 * time.Minute)
		if !at.After(t) {
			at = at.Add(time.Hour)
		}
		return at
	}, clockSkew},
}

// planModel is a thread next to a sorted list. Its clock may be set back.
type planModel struct {
	th     *Thread
	dir    string
	n      int // directories
	now    time.Time
	seq    int
	queue  []planned
	specs  map[string]int // by schedule: its place in plannedSpecs
	stored []string       // contents, by id
	pushed int
	latest time.Time // the clock when something was planned from it
}

func (m *planModel) open(t *rapid.T, dir string) {
	var err error
	if m.th, err = Open(dir, WithClock(func() time.Time { return m.now })); err != nil {
		t.Fatal(err)
	}
	dirOf(m.th).MaxGroup = 3
	m.dir = dir
}

func (m *planModel) add(p planned) {
	if p.seq == 0 {
		m.seq++
		p.seq = m.seq
	}
	m.queue = append(m.queue, p)
	slices.SortFunc(m.queue, func(a, b planned) int { return cmp.Or(a.due.Compare(b.due), a.seq-b.seq) })
}

// plan notes that something is planned from the clock.
func (m *planModel) plan() {
	if m.now.After(m.latest) {
		m.latest = m.now
	}
}

// replan is what follows when the clock was set back.
func (m *planModel) replan() {
	if len(m.queue) == 0 || m.now.UnixMilli() < epochMillis || !m.latest.Add(-planSkew).After(m.now.Truncate(time.Millisecond)) {
		return
	}
	for _, p := range slices.Clone(m.queue) {
		due := p.due
		if p.name == "" {
			if due = p.due; p.since.After(m.now) {
				due = m.now.Add(p.due.Sub(p.since))
			}
		} else if s := plannedSpecs[m.specs[p.name]]; s.next(m.now.Add(s.skew)).Before(p.due) {
			due = s.next(m.now)
		}
		if due.Before(p.due) {
			m.queue = slices.DeleteFunc(m.queue, func(q planned) bool { return q.seq == p.seq })
			if p.due = due; p.name == "" {
				p.since = m.now // and it keeps its id
			} else {
				p.seq = 0
			}
			m.add(p)
		}
	}
	m.latest = m.now
}

// release is what every use of the thread begins with.
func (m *planModel) release() {
	m.replan()
	for len(m.queue) > 0 && !m.queue[0].due.After(m.now) {
		p := m.queue[0]
		m.queue = m.queue[1:]
		m.stored = append(m.stored, p.content)
		if p.name == "" {
			continue
		}
		p.seq = 0
		next := plannedSpecs[m.specs[p.name]].next
		was := p.due
		if p.due = next(was); !p.due.After(m.now) {
			p.due = next(m.now)
		}
		m.plan()
		m.add(p)
	}
}

// Clock moves, now and then backwards.
func (m *planModel) Clock(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 999, 1000, 7000, 61_000, 400_000, 90_000_000, -1, -5000, -200_000, -3_600_000, -86_400_000}).Draw(t, "ms")) * time.Millisecond)
}

func (m *planModel) PushAt(t *rapid.T) {
	m.pushed++
	content := fmt.Sprint("later ", m.pushed)
	at := m.now.Add(time.Duration(rapid.SampledFrom([]int{-1000, 0, 1, 1000, 1000, 60_000, 3_600_000}).Draw(t, "ms")) * time.Millisecond)
	e, err := m.th.PushAt(ctx, event.Draft{Source: "s", Type: "t", Content: content}, at)
	if err != nil {
		t.Fatal(err)
	}
	m.release()
	if at.After(m.now) {
		m.add(planned{due: at, content: content})
	} else {
		m.stored = append(m.stored, content)
	}
	if at.After(m.now) != (e.ID == 0) || e.ID != 0 && e.ID != int64(len(m.stored)) {
		t.Fatalf("got id %d of %d, due at %v, now %v", e.ID, len(m.stored), at, m.now)
	}
}

func (m *planModel) PushAfter(t *rapid.T) {
	m.pushed++
	content := fmt.Sprint("after ", m.pushed)
	delay := time.Duration(rapid.SampledFrom([]int{1, 1000, 60_000, 3_600_000}).Draw(t, "ms")) * time.Millisecond
	e, at, err := m.th.PushAfter(ctx, event.Draft{Source: "s", Type: "t", Content: content}, delay)
	if err != nil || e.ID != 0 || !at.Equal(m.now.Add(delay)) {
		t.Fatalf("%+v at %v, %v", e, at, err)
	}
	m.release()
	m.plan()
	m.add(planned{due: at, content: content, since: m.now})
}

func (m *planModel) Push(t *rapid.T) {
	m.pushed++
	content := fmt.Sprint("now ", m.pushed)
	if _, err := m.th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: content}); err != nil {
		t.Fatal(err)
	}
	m.release()
	m.stored = append(m.stored, content)
}

// Schedule adds one, or removes it when it is there.
func (m *planModel) Schedule(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "ü\x00", "a b"}).Draw(t, "name")
	i := rapid.IntRange(0, len(plannedSpecs)-1).Draw(t, "spec")
	draft := event.Draft{Source: "cron", Type: "tick", Content: "tick " + name}
	next, err := m.th.AddSchedule(ctx, Schedule{Name: name, Spec: plannedSpecs[i].spec, Draft: draft})
	if _, there := m.specs[name]; there {
		if !errors.Is(err, ErrScheduleExists) {
			t.Fatalf("twice: %v", err)
		}
		if err := m.th.RemoveSchedule(ctx, name); err != nil {
			t.Fatal(err)
		}
		m.release()
		m.queue = slices.DeleteFunc(m.queue, func(p planned) bool { return p.name == name })
		delete(m.specs, name)
		return
	}
	m.release()
	want := plannedSpecs[i].next(m.now)
	if err != nil || !next.Equal(want) {
		t.Fatalf("%q after %v: %v %v, want %v", plannedSpecs[i].spec, m.now, next, err, want)
	}
	m.specs[name] = i
	m.plan()
	m.add(planned{due: want, name: name, content: draft.Content})
}

// Compact and Repair keep what is scheduled.
func (m *planModel) Compact(t *rapid.T) {
	if _, err := m.th.Compact(ctx); err != nil {
		t.Fatal(err)
	}
}

func (m *planModel) Repair(t *rapid.T) {
	m.n++
	to := filepath.Join(filepath.Dir(m.dir), fmt.Sprint("repaired", m.n))
	r, err := Repair(ctx, m.dir, to)
	if err != nil || r.Lost+len(r.Problems) > 0 {
		t.Fatalf("%+v %v", r, err)
	}
	m.open(t, to)
}

func (m *planModel) Reopen(t *rapid.T) {
	m.th.Close()
	m.open(t, m.dir)
}

// check compares all that can be seen.
func (m *planModel) check(t *rapid.T) {
	info, err := m.th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m.release()
	if info.Scheduled != int64(len(m.queue)) || info.Newest != int64(len(m.stored)) {
		t.Fatalf("%d scheduled and %d stored, want %d and %d", info.Scheduled, info.Newest, len(m.queue), len(m.stored))
	}
	if len(m.queue) > 0 && !info.NextScheduled.Equal(m.queue[0].due) || len(m.queue) == 0 && !info.NextScheduled.IsZero() {
		t.Fatalf("next at %v, want %+v", info.NextScheduled, m.queue)
	}
	after := max(0, len(m.stored)-20)
	i := after
	for e, err := range m.th.Events(ctx, Query{After: int64(after)}) {
		if err != nil || e.ID != int64(i+1) || e.Content != m.stored[i] {
			t.Fatalf("event %+v (%v), want %d %q", e, err, i+1, m.stored[i])
		}
		i++
	}
	if i != len(m.stored) {
		t.Fatalf("%d events, want %d", i, len(m.stored))
	}
	list, err := m.th.Schedules(ctx)
	if err != nil || len(list) != len(m.specs) {
		t.Fatalf("%+v %v", list, err)
	}
	for _, s := range list {
		j := slices.IndexFunc(m.queue, func(p planned) bool { return p.name == s.Name })
		if j < 0 || !s.Next.Equal(m.queue[j].due) || s.Spec != plannedSpecs[m.specs[s.Name]].spec {
			t.Fatalf("%+v, want %+v", s, m.queue)
		}
	}
}

// TestScheduleModel: delayed events and schedules are what a sorted list is, with
// a clock that jumps both ways, and through compact, repair and reopening.
func TestScheduleModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		m := &planModel{now: time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC), specs: map[string]int{}}
		if _, err := Init(filepath.Join(dir, "t")); err != nil {
			rt.Fatal(err)
		}
		m.open(rt, filepath.Join(dir, "t"))
		rt.Repeat(map[string]func(*rapid.T){
			"Clock": m.Clock, "PushAt": m.PushAt, "PushAfter": m.PushAfter, "Push": m.Push, "Schedule": m.Schedule,
			"Compact": m.Compact, "Repair": m.Repair, "Reopen": m.Reopen, "": m.check,
		})
		r, err := Check(ctx, m.th)
		if err != nil || len(r.Faults) > 0 {
			rt.Fatalf("%+v %v", r, err)
		}
	})
}
