package engine

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
	"thread/internal/store/bolt"
	"thread/jsonlog"
)

// model is the oracle: a thread is a slice of events and two maps.
type model struct {
	t   *rapid.T
	dir string
	th  *Thread
	now time.Time

	events   []event.Event
	order    []string // of subscriptions
	subs     map[string]Subscription
	progress map[string]Progress
	rotated  bool // a full events.jsonl is gone, moved aside or deleted
}

var ctx = context.Background()

func (m *model) clock() time.Time { return m.now }

func (m *model) open() {
	var err error
	if m.th, err = Open(m.dir, WithClock(m.clock)); err != nil {
		m.t.Fatal(err)
	}
	dirOf(m.th).MaxGroup = 700
}

var (
	someNames     = rapid.SampledFrom([]string{"a", "b", "self", "external:x:y", "a\x00b", "A", "ä", strings.Repeat("s", 4096)})
	someTypes     = rapid.SampledFrom([]string{"message", "record", "5"})
	someSubtypes  = rapid.SampledFrom([]*string{nil, event.Text(""), event.Text("toolcall")})
	someConsumers = rapid.SampledFrom([]string{"c", "../../etc/x", "with space", "ü\n"})
	// Each filter has a plain Go twin.
	someFilters = []struct {
		where string
		match func(e *event.Event) bool
	}{
		{"", func(*event.Event) bool { return true }},
		{"type = 'message'", func(e *event.Event) bool { return e.Type == "message" }},
		{"source = 'a'", func(e *event.Event) bool { return e.Source == "a" }},
		{"source LIKE 'ext%' OR subtype = ''", func(e *event.Event) bool {
			return strings.HasPrefix(e.Source, "ext") || e.Subtype != nil && *e.Subtype == ""
		}},
		{"content LIKE '%x%' AND id > 3", func(e *event.Event) bool { return strings.Contains(strings.ToLower(e.Content), "x") && e.ID > 3 }},
		{"subtype IS NULL AND content = 'yy'", func(e *event.Event) bool { return e.Subtype == nil && e.Content == "yy" }},
		{"type = 'none'", func(*event.Event) bool { return false }},
	}
)

func someDraft(t *rapid.T) event.Draft {
	return event.Draft{
		Source:  someNames.Draw(t, "source"),
		Type:    someTypes.Draw(t, "type"),
		Subtype: someSubtypes.Draw(t, "subtype"),
		Content: strings.Repeat(rapid.SampledFrom([]string{"x", "y", "\n", "\u2028"}).Draw(t, "content"), rapid.SampledFrom([]int{0, 1, 2, 5000}).Draw(t, "times")),
	}
}

func (m *model) stored(ds []event.Draft) (es []event.Event) {
	for _, d := range ds {
		e := event.Event{ID: int64(len(m.events) + 1), CreatedAt: event.FormatTime(m.now), Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
		m.events = append(m.events, e)
		es = append(es, e)
	}
	return es
}

func (m *model) tick(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
}

func (m *model) Push(t *rapid.T) {
	m.tick(t)
	d := someDraft(t)
	got, err := m.th.Push(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	sameEvents(t, []event.Event{got}, m.stored([]event.Draft{d}))
}

func (m *model) PushBatch(t *rapid.T) {
	m.tick(t)
	n := rapid.SampledFrom([]int{0, 1, 3, 300, 1024}).Draw(t, "n")
	d := someDraft(t)
	d.Content = strings.TrimSuffix(d.Content, d.Content[min(len(d.Content), 3):])
	ds := make([]event.Draft, n)
	for i := range ds {
		ds[i] = d
		ds[i].Source = fmt.Sprint("batch", i%7)
	}
	got, err := m.th.PushBatch(ctx, ds)
	if err != nil {
		t.Fatal(err)
	}
	sameEvents(t, got, m.stored(ds))
}

// LongBatch goes through the spool and several transactions.
func (m *model) LongBatch(t *rapid.T) {
	m.tick(t)
	fail := rapid.Bool().Draw(t, "fail")
	ds := make([]event.Draft, dirOf(m.th).MaxGroup+rapid.IntRange(1, 1500).Draw(t, "n"))
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("long", i%300), Type: "message", Content: "x"}
	}
	broken := errors.New("the sequence broke")
	b, err := m.th.PushAll(ctx, func(yield func(event.Draft, error) bool) {
		for _, d := range ds {
			if !yield(d, nil) {
				return
			}
		}
		if fail {
			yield(event.Draft{}, broken)
		}
	})
	if fail {
		if err != broken {
			t.Fatalf("got %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	want := m.stored(ds)
	if b.First != want[0].ID || b.Last != want[len(want)-1].ID || b.CreatedAt != want[0].CreatedAt {
		t.Fatalf("got %+v", b)
	}
}

// CutBatch leaves what a crash in the middle of a long batch leaves.
func (m *model) CutBatch(t *rapid.T) {
	ds := make([]event.Draft, dirOf(m.th).MaxGroup+1)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("cut", i%50), Type: "message", Content: "x"}
	}
	cutBatch(t, m.th, ds)
}

// cutBatch stores the beginning of a long batch, its first transaction.
func cutBatch(t *rapid.T, th *Thread, ds []event.Draft) {
	if err := bolt.CutBatch(ctx, dirOf(th), ds); err != nil {
		t.Fatal(err)
	}
}

func (m *model) Subscribe(t *rapid.T) {
	f := rapid.SampledFrom(someFilters).Draw(t, "filter")
	s := Subscription{Consumer: someConsumers.Draw(t, "consumer"), Handler: "true", Filter: event.Text(f.where)}
	err := m.th.Subscribe(ctx, s)
	if _, ok := m.subs[s.Consumer]; ok {
		if !errors.Is(err, ErrSubscriptionExists) {
			t.Fatalf("got %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	m.subs[s.Consumer] = s
	m.order = append(m.order, s.Consumer)
}

func (m *model) Unsubscribe(t *rapid.T) {
	c := someConsumers.Draw(t, "consumer")
	err := m.th.Unsubscribe(ctx, c)
	if _, ok := m.subs[c]; !ok {
		if !errors.Is(err, ErrNoSubscription) {
			t.Fatalf("got %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(m.subs, c)
	m.order = slices.DeleteFunc(m.order, func(s string) bool { return s == c })
}

func (m *model) someID(t *rapid.T) int64 {
	head := int64(len(m.events))
	return rapid.OneOf(rapid.Int64Range(0, head+3), rapid.SampledFrom([]int64{0, head, head + 1, math.MaxInt64})).Draw(t, "id")
}

func (m *model) Pop(t *rapid.T) {
	m.tick(t)
	c, id := someConsumers.Draw(t, "consumer"), m.someID(t)
	limit := rapid.SampledFrom([]int64{1, 2, 100, 20000, math.MaxInt64}).Draw(t, "limit")
	page, err := m.th.Pop(ctx, c, PopQuery{LastAcked: id, Limit: limit})
	s, ok := m.subs[c]
	if !ok {
		if !errors.Is(err, ErrNoSubscription) {
			t.Fatalf("got %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if page.Previous != m.progress[c].LastAcked || page.Newest != int64(len(m.events)) {
		t.Fatalf("got %+v", page)
	}
	m.progress[c] = Progress{LastAcked: id, Newest: int64(len(m.events)), UpdatedAt: event.FormatTime(m.now)}
	var got []event.Event
	for e, err := range page.Events {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	sameEvents(t, got, m.matching(id, limit, deref(s.Filter)))
}

func (m *model) Ack(t *rapid.T) {
	m.tick(t)
	c, id := someConsumers.Draw(t, "consumer"), m.someID(t)
	err := m.th.Ack(ctx, c, id)
	p := m.progress[c]
	switch _, ok := m.subs[c]; {
	case !ok:
		if !errors.Is(err, ErrNoSubscription) {
			t.Fatalf("got %v", err)
		}
	case id > int64(len(m.events)):
		if !errors.Is(err, ErrInvalid) {
			t.Fatalf("got %v", err)
		}
	case err != nil:
		t.Fatal(err)
	case id > min(p.LastAcked, p.Newest):
		m.progress[c] = Progress{LastAcked: id, Newest: int64(len(m.events)), UpdatedAt: event.FormatTime(m.now)}
	}
}

func (m *model) Peek(t *rapid.T) {
	f := rapid.SampledFrom(someFilters).Draw(t, "filter")
	q := Query{After: m.someID(t), Limit: rapid.SampledFrom([]int64{0, 1, 100, 2000}).Draw(t, "limit"), Filter: f.where}
	got, err := m.th.Peek(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	if q.Limit == 0 {
		q.Limit = math.MaxInt64
	}
	sameEvents(t, got, m.matching(q.After, q.Limit, q.Filter))
}

// LoseLines cuts events.jsonl, or deletes it, as a crash or a user does. The
// next push makes it whole again.
func (m *model) LoseLines(t *rapid.T) {
	path := filepath.Join(m.dir, "events.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(text))
	if rapid.IntRange(0, 4).Draw(t, "how") == 0 {
		// A full file is taken for one that was just rotated, and not written again.
		m.rotated = m.rotated || bytes.Count(text, []byte{'\n'}) > jsonlog.MaxLines
		err = os.Remove(path)
	} else {
		err = os.Truncate(path, rapid.Int64Range(max(0, size-20000), size).Draw(t, "to"))
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Push(t)
}

func (m *model) Reopen(t *rapid.T) {
	if err := m.th.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.th.Peek(ctx, Query{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
	if rapid.Bool().Draw(t, "run/ and logs/ deleted") {
		os.RemoveAll(filepath.Join(m.dir, "run"))
		os.RemoveAll(filepath.Join(m.dir, "logs"))
	}
	m.open()
}

func (m *model) matching(after, limit int64, where string) (es []event.Event) {
	i := slices.IndexFunc(someFilters, func(f struct {
		where string
		match func(e *event.Event) bool
	}) bool {
		return f.where == where
	})
	for _, e := range m.events[min(after, int64(len(m.events))):] {
		if int64(len(es)) < limit && someFilters[i].match(&e) {
			es = append(es, e)
		}
	}
	return es
}

// Check compares everything that can be seen.
func (m *model) Check(t *rapid.T) {
	info, err := m.th.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(len(m.events)); info.EventCount != n || info.Stored != n || info.Newest != n || len(info.Subscriptions) != len(m.order) {
		t.Fatalf("got %+v, want %d events and %q", info, n, m.order)
	}
	due, err := m.th.Due(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range info.Subscriptions {
		p, ok := m.progress[c.Consumer]
		if c.Consumer != m.order[i] || c.Where() != deref(m.subs[c.Consumer].Filter) || c.LastAcked != p.LastAcked || (c.UpdatedAt != nil) != ok {
			t.Fatalf("got %+v, want %q at %+v", c, m.order[i], p)
		}
		unread := m.matching(p.From(), math.MaxInt64, c.Where())
		if len(unread) > 0 {
			if len(due) == 0 || due[0].Consumer != c.Consumer || due[0].First != unread[0].ID {
				t.Fatalf("%q: first unread is %d, got %+v", c.Consumer, unread[0].ID, due)
			}
			due = due[1:]
		}
		count, oldest, err := m.th.Backlog(ctx, c.Consumer)
		if err != nil || count != int64(len(unread)) || count > 0 && oldest != unread[0].CreatedAt {
			t.Fatalf("%q: backlog %d since %q, %v; want %d", c.Consumer, count, oldest, err, len(unread))
		}
	}
	if len(due) > 0 {
		t.Fatalf("due without work: %+v", due)
	}
	m.checkLines(t)
}

// checkLines compares events.jsonl and its predecessors with the events.
func (m *model) checkLines(t *rapid.T) {
	last, err := os.ReadFile(filepath.Join(m.dir, "events.jsonl"))
	if err != nil && len(m.events) > 0 {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(last, []byte{'\n'})
	if n := len(lines) - 1; len(lines[n]) != 0 {
		t.Fatalf("torn line %q", lines[n])
	} else if lines = lines[:n]; len(lines) > len(m.events) {
		t.Fatalf("%d lines of %d events", n, len(m.events))
	}
	old, err := filepath.Glob(filepath.Join(m.dir, "events-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	rest := m.events[len(m.events)-len(lines):]
	if len(old) == 0 && !m.rotated && len(rest) != len(m.events) {
		t.Fatalf("%d lines of %d events, nothing rotated", len(lines), len(m.events))
	}
	for i, line := range lines {
		if want := string(rest[i].AppendJSON(nil)) + "\n"; string(line) != want {
			t.Fatalf("line %q, want %q", line, want)
		}
	}
}

func sameEvents(t *rapid.T, got, want []event.Event) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i := range got {
		if g, w := string(got[i].AppendJSON(nil)), string(want[i].AppendJSON(nil)); g != w {
			t.Fatalf("event %d of %d: %.200s, want %.200s", i, len(got), g, w)
		}
	}
}

// T-41: progress and page are one step, among others.
func TestModel(t *testing.T) {
	base := t.TempDir()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == quickChecks { // a case is long
		if err := f.Value.Set("12"); err != nil {
			t.Fatal(err)
		}
		defer f.Value.Set(quickChecks)
	}
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		m := &model{t: t, dir: filepath.Join(base, fmt.Sprint("thread ", n)), now: time.UnixMilli(1773829800123), subs: map[string]Subscription{}, progress: map[string]Progress{}}
		defer os.RemoveAll(m.dir)
		var err error
		if m.th, err = Init(m.dir, WithClock(m.clock)); err != nil {
			t.Fatal(err)
		}
		dirOf(m.th).MaxGroup = 700
		t.Repeat(map[string]func(*rapid.T){
			"push": m.Push, "push again": m.Push, "batch": m.PushBatch, "long batch": m.LongBatch, "cut batch": m.CutBatch,
			"subscribe": m.Subscribe, "unsubscribe": m.Unsubscribe, "pop": m.Pop, "ack": m.Ack, "peek": m.Peek,
			"lose lines": m.LoseLines, "reopen": m.Reopen, "": m.Check,
		})
	})
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
