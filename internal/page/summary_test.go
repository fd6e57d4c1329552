package page

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/jsonform"
)

// TestDear: a count that was not known in time follows, and pages are told; until then the
// last one stays with its time.
func TestDear(t *testing.T) {
	h := newOne(t)
	s := newSummaries(nil)
	s.lookAt(h.Dir(), h.Engine())
	k := s.known[h.Dir()]
	k.of = slices.Clone(k.of)
	c := &k.of[0]
	if !k.counted() || c.Pending != 3 || c.CountedAt.IsZero() {
		t.Fatalf("%+v", c)
	}
	at := time.Date(2026, 11, 23, 8, 3, 55, 0, time.UTC)
	c.PendingErr, c.Pending, c.CountedAt = context.DeadlineExceeded, 2, at
	if got := StandingOf(c, nil, at); got.State != Unknown || !strings.HasPrefix(got.Text, "2 unread at 08:03:55") || !got.Since.Equal(at) {
		t.Errorf("%+v", got)
	}
	news := s.changed()
	s.mu.Lock()
	s.inBackground(&s.dear, h, s.keepDear)
	s.mu.Unlock()
	<-news
	n := s.peek(h.Dir())
	if c = &n.of[0]; !n.counted() || c.Pending != 3 || !c.CountedAt.After(at) {
		t.Errorf("%+v", c)
	}
	if !n.dearAt.After(n.at) {
		t.Error("it is counted again at once")
	}
}

// TestLate: a look has what need not be counted before it counts, does not wait for counts
// that took long before, and those follow.
func TestLate(t *testing.T) {
	h := newOne(t)
	s := newSummaries(nil)
	if err := s.readAgain(h.Dir(), h.Engine(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if k := s.peek(h.Dir()); k.read.IsZero() || len(k.of) == 0 || k.counted() {
		t.Fatalf("before it was counted: %+v", k)
	}
	s.update(h.Dir(), func(k *summary) { k.late, k.lateAt = true, time.Now() })
	s.lookAt(h.Dir(), h.Engine())
	if k := s.peek(h.Dir()); k.counted() || !k.owed || k.at.IsZero() {
		t.Fatalf("a look has waited: %+v", k)
	}
	news := s.changed()
	s.mu.Lock()
	s.follow(h, s.known[h.Dir()])
	s.mu.Unlock()
	<-news
	if k := s.peek(h.Dir()); !k.counted() || k.owed || k.late || k.of[0].Pending != 3 || !k.past.reaches(time.Now()) {
		t.Errorf("%+v", k)
	}
}

// TestSlow: pages wait for a look at a thread that takes long to read only after they have
// changed it, and are told of what the look finds.
func TestSlow(t *testing.T) {
	h := newOne(t)
	s := newSummaries(nil)
	s.lookAt(h.Dir(), h.Engine())
	s.update(h.Dir(), func(k *summary) { k.slow, k.at = true, time.Time{} }) // it is to be read again
	if _, all := s.looked([]Thread{h}, time.Now()); !all {
		t.Error("a page waits for a slow thread")
	}
	news := s.changed()
	s.ask([]Thread{h})
	<-news
	if k := s.peek(h.Dir()); k.at.IsZero() {
		t.Errorf("not looked at: %+v", k)
	}
	s.update(h.Dir(), func(k *summary) { k.slow = true })
	s.await(h.Dir())
	if _, all := s.looked([]Thread{h}, time.Now()); all {
		t.Error("no page waits for a change of its own")
	}
}

// TestPast: the ids at the points of an hour are found by the times of events, between two
// points with the same id without a look-up.
func TestPast(t *testing.T) {
	h := newOne(t)
	for _, ahead := range []int{1, 7, pastPoints - 1} { // the events are as many points ago
		until := time.Now().Add(time.Duration(ahead) * pastStep)
		for _, steps := range []int{1, 2, 3, pastPoints} {
			p := past{until: until}
			k := &summary{newest: event.FormatTime(time.Now())}
			k.info.Newest = 3
			p.fill(h.Engine(), k, steps)
			for i := pastPoints - steps; i < pastPoints; i++ {
				id, err := h.Engine().Before(t.Context(), until.Add(-pastStep*time.Duration(pastPoints-1-i)))
				if err != nil || p.heads[i] != id {
					t.Errorf("%d of %d steps: %d, not %d: %v", i, steps, p.heads[i], id, err)
				}
			}
		}
	}
}

// TestTrail: a chart of a day or a week has a point for each step, as long as the process knows it.
func TestTrail(t *testing.T) {
	step := trailSteps[0]
	begin := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC).Truncate(step)
	unread := func(n int64) *summary {
		return &summary{of: []jsonform.ConsumerState{{ConsumerInfo: engine.ConsumerInfo{Subscription: engine.Subscription{Consumer: "c"}}, Pending: n}}}
	}
	l := trail{}.with(unread(5), step, begin)
	before := l
	if l = l.with(unread(6), step, begin.Add(step-1)); *l.of["c"] != *before.of["c"] {
		t.Error("a point within a step")
	}
	l = l.with(unread(7), step, begin.Add(2*step))
	if list := l.of["c"]; list[pastPoints-3] != 5 || list[pastPoints-2] != -1 || list[pastPoints-1] != 7 || list[0] != -1 || before.of["c"][pastPoints-1] != 5 {
		t.Errorf("%v", list)
	}
	if l = l.with(unread(8), step, begin.Add(100*step)); l.of["c"][pastPoints-1] != 8 || slices.Contains(l.of["c"][:], 7) {
		t.Errorf("%v", l.of["c"])
	}
	k := unread(8)
	k.past.long[0] = l
	for past, want := range map[string]string{"": "remembered from now on", "24h": "remembered from now on", "7d": "remembered from now on", "1h": ""} {
		var c Consumer
		if err := c.chart(k, &k.of[0], past); (err == nil) != (want != "") || c.Unread != want {
			t.Errorf("%q: %q %v", past, c.Unread, err)
		}
	}
	k.past.long[0] = l.with(unread(3), step, begin.Add(101*step))
	var c Consumer
	if err := c.chart(k, &k.of[0], "24h"); err != nil || c.Unread != "8 now, at most 8 in the last 24 hours" || len(c.Axis) != 5 || c.Axis[4].Sub(c.Axis[0]) != 24*time.Hour {
		t.Errorf("%+v %v", c, err)
	}
}

// TestGrowth: one that is behind says how many more are unread with each minute.
func TestGrowth(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 2, 0, 0, time.UTC)
	k := &summary{of: []jsonform.ConsumerState{{ConsumerInfo: engine.ConsumerInfo{Subscription: engine.Subscription{Consumer: "c"}}, Pending: 180, Oldest: event.FormatTime(now.Add(-time.Hour))}}}
	one := &progress{}
	one.unread[pastPoints-2] = 60
	k.past = past{until: now.Add(-time.Minute), of: map[string]*progress{"c": one}}
	list := k.problems("inbox", &k.of[0], nil, now)
	if len(list) != 1 || list[0].Text != "180 unread, 40 more each minute" {
		t.Errorf("%+v", list)
	}
	one.unread[pastPoints-2] = 240
	if got := k.past.growth(&k.of[0], now); got != ", 20 fewer each minute" {
		t.Errorf("%q", got)
	}
	one.unread[pastPoints-2] = -1
	if got := k.past.growth(&k.of[0], now); got != "" {
		t.Errorf("not known: %q", got)
	}
}

// TestKinds: dead letters are a problem with their kinds of error, the most frequent first,
// which is read again when there are others.
func TestKinds(t *testing.T) {
	h := newOne(t)
	begin := time.Now().Add(-time.Second)
	filter := "type = 't'"
	if err := h.Engine().Subscribe(t.Context(), engine.Subscription{Consumer: "c", Pull: true, Filter: &filter}); err != nil {
		t.Fatal(err)
	}
	feed := h.Engine().Feed("c", engine.Policy{MaxAttempts: 1})
	fail := func(text string) {
		t.Helper()
		if _, err := h.Engine().Push(t.Context(), event.Draft{Source: "s", Type: "t"}); err != nil {
			t.Fatal(err)
		}
		var r *engine.Result
		for {
			d, err := feed.Next(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Events) == 0 {
				return
			}
			r = &engine.Result{Verdict: engine.Rejected, Error: text}
		}
	}
	l := NewLook()
	seen := func() (p Problem) {
		t.Helper()
		list := Problems([]Seen{l.At(h.Dir(), h.Engine())}, time.Now())
		at := slices.IndexFunc(list, func(p Problem) bool { return p.State == Dead })
		if at < 0 {
			t.Fatalf("%+v", list)
		}
		return list[at]
	}
	fail("no such customer")
	if p := seen(); p.Text != "1 kind of error" || p.Why != "no such customer" || p.Since.Before(begin) {
		t.Errorf("%+v", p)
	}
	fail("timeout")
	fail("timeout")
	if p := seen(); p.Text != "2 kinds of error" || p.Why != "2 × timeout · 1 × no such customer" || p.Newest.Before(p.Since) {
		t.Errorf("%+v", p)
	}
}

// manyLanes is a host whose lanes are full.
type manyLanes struct{ one }

func (manyLanes) Lanes() []Lane {
	list := make([]Lane, 150)
	for i := range list {
		list[i] = Lane{Name: fmt.Sprint("l", i), Limit: 1, Active: 1, Queued: 1, OldestMS: 60_000}
	}
	return list
}

// TestManyProblems: the first page counts all problems, shows the worst hundred and says so;
// its JSON has all.
func TestManyProblems(t *testing.T) {
	p, err := New(manyLanes{newOne(t)}, Options{Known: func(string) (bool, bool) { return true, true }})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		rw := httptest.NewRecorder()
		p.ServeHTTP(rw, httptest.NewRequest("GET", path, nil), true)
		return rw.Body.String()
	}
	body := get("/")
	if n := strings.Count(body, `<li class="prob"`); n != shownProblems || !strings.Contains(body, "<h1>150 problems</h1>") || !strings.Contains(body, "50 more are not shown.") {
		t.Errorf("%d problems in %s", n, body)
	}
	if n := strings.Count(get("/threads.json"), `"kind":"lane"`); n != 150 {
		t.Errorf("%d in the JSON", n)
	}
}

// TestOrder: problems come in the order of the states, then the older first.
func TestOrder(t *testing.T) {
	now := time.Now()
	list := []Problem{{State: Unknown}, {State: Behind, Since: now}, {State: Dead}, {State: Failing, Since: now, Name: "new"}, {State: Failing, Since: now.Add(-time.Hour), Name: "old"}, {State: Full}, {State: Stalled}}
	slices.SortStableFunc(list, worse)
	var got []string
	for _, p := range list {
		got = append(got, strings.TrimSpace(p.State.String()+" "+p.Name))
	}
	if want := []string{"stalled", "failing old", "failing new", "dead", "behind", "full", "unknown"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestParts: a page is taken apart by its marks, and an age that continues is not a change.
func TestParts(t *testing.T) {
	page := func(age, second string) *parts {
		return split([]byte("<main>a\x00[rows\x00\x00(one\x00<p id=one><time data-a=\"ago\">" + age + "</time></p>\x00)\x00(two\x00" + second + "\x00)\x00]b</main>"))
	}
	old := page("1 s", "<p id=two>x</p>")
	if string(old.page) != "<main>a<p id=one><time data-a=\"ago\">1 s</time></p><p id=two>x</p>b</main>" || !slices.Equal(old.lists["rows"], []string{"one", "two"}) {
		t.Fatalf("%q %v", old.page, old.lists)
	}
	var b bases
	b.keep(old)
	if p := b.changes(old.version, page("2 s", "<p id=two>x</p>")); p.Version != old.version || len(p.Parts) != 0 {
		t.Errorf("an age: %+v", p)
	}
	p := b.changes(old.version, page("3 s", "<p id=two>y</p>"))
	if len(p.Parts) != 1 || p.Parts["two"] != "<p id=two>y</p>" || p.Main != nil {
		t.Errorf("%+v", p)
	}
}
