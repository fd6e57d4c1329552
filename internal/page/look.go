package page

import (
	"context"
	"slices"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/address"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

// Look counts in threads as the pages do, and remembers it for as long as their
// databases are not written. It is for one goroutine.
type Look struct{ s *summaries }

// NewLook returns one that knows nothing yet.
func NewLook() *Look {
	s := newSummaries(nil)
	s.alone, s.failures = true, failures
	return &Look{s}
}

// Seen is what a look at a thread has found.
type Seen struct {
	Dir       string
	Info      engine.Info
	Consumers []jsonform.ConsumerState // the worst first
	Pushed    string                   // created_at of the newest event, "" when there is none
	Failed    int                      // recorded runs that have failed and are not tried again
	Err       error                    // why the rest is not known

	known summary
}

// At looks at the thread in dir.
func (l *Look) At(dir string, t *engine.Thread) Seen {
	if address.IsURL(dir) {
		l.s.lookAtURL(dir, t, 0)
	} else {
		l.s.lookAt(dir, t)
	}
	k := l.s.peek(dir)
	return Seen{Dir: dir, Info: k.info, Consumers: worstFirst(k.of, nil, time.Now()), Pushed: k.newest, Failed: len(k.failed), Err: k.err, known: k}
}

// lookAtURL looks at a thread on a server, if its version is another one or not known.
func (s *summaries) lookAtURL(url string, t *engine.Thread, version int64) {
	begin := time.Now()
	n := s.peek(url)
	if n.err == nil && version != 0 && n.version == version {
		s.update(url, func(k *summary) { k.at = begin })
		return
	}
	err := s.readAgain(url, t, begin)
	if err == nil && (s.alone || !n.late) {
		s.countQuickly(url, t)
	}
	if s.failures != nil && err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), dearTime)
		n.failed = s.failures(ctx, url)
		cancel()
	}
	past := n.past
	if k := s.peek(url); err == nil && !k.late {
		past = n.past.with(t, &k, begin)
	}
	s.update(url, func(k *summary) {
		if !k.late {
			k.past = past
		}
		k.owed = k.owed || n.late && err == nil
		k.err, k.failed, k.at, k.version = err, n.failed, begin, version
	})
}

// Problems are the problems of all threads, in the order of the first page.
func Problems(all []Seen, now time.Time) (list []Problem) {
	for i := range all {
		r := Row{Name: all[i].Dir}
		k := all[i].known
		k.of, k.err = all[i].Consumers, all[i].Err
		list = append(list, threadProblems(&r, &k, nil, now)...)
	}
	slices.SortStableFunc(list, worse)
	return list
}

// Rank is the worst that there is to a consumer.
func Rank(c *jsonform.ConsumerState, now time.Time) State { return rank(c, nil, now) }

// worstFirst returns the consumers in the order of problems, then by name.
func worstFirst(of []jsonform.ConsumerState, runs []Run, now time.Time) []jsonform.ConsumerState {
	states := make(map[string]State, len(of))
	for i := range of {
		states[of[i].Consumer] = rank(&of[i], runOf(runs, of[i].Consumer), now)
	}
	of = slices.Clone(of)
	slices.SortStableFunc(of, func(a, b jsonform.ConsumerState) int {
		if x, y := states[a.Consumer], states[b.Consumer]; x != y {
			return int(x) - int(y)
		}
		return strings.Compare(a.Consumer, b.Consumer)
	})
	return of
}

// rank is the worst that there is to a consumer.
func rank(c *jsonform.ConsumerState, run *Run, now time.Time) State {
	s := StandingOf(c, run, now).State
	if c.Dead > 0 {
		s = min(s, Dead)
	}
	return s
}

// follow has made what a look has left. s.mu is held.
func (s *summaries) follow(t Thread, k *summary) {
	switch {
	case k.err != nil:
	case k.owed || !k.past.reaches(time.Now()):
		s.inBackground(&s.late, t, s.keepLate)
	case !k.counted() && time.Now().After(k.dearAt):
		s.inBackground(&s.dear, t, s.keepDear)
	}
}

// background are threads about which one goroutine does something, one after the other.
type background struct {
	todo    []Thread
	running bool
}

// inBackground has do called for a thread, once for all calls before it. s.mu is held.
func (s *summaries) inBackground(b *background, t Thread, do func(t Thread)) {
	if !slices.ContainsFunc(b.todo, func(o Thread) bool { return o.Dir() == t.Dir() }) {
		b.todo = append(b.todo, t)
	}
	if b.running {
		return
	}
	b.running = true
	go func() {
		for {
			s.mu.Lock()
			if b.running = len(b.todo) > 0 && !s.ended(); !b.running {
				s.mu.Unlock()
				return
			}
			t := b.todo[0]
			b.todo = b.todo[1:]
			s.mu.Unlock()
			do(t)
		}
	}()
}

// keepLate makes the counts that a look has left, and finds the past.
func (s *summaries) keepLate(t Thread) {
	k := s.peek(t.Dir())
	if k.owed && s.pause(time.Until(k.lateAt)) {
		s.countQuickly(t.Dir(), t.Engine())
	}
	k = s.peek(t.Dir())
	past := k.past.with(t.Engine(), &k, time.Now())
	s.update(t.Dir(), func(k *summary) { k.past = past })
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.known[t.Dir()]; !k.owed {
		s.follow(t, k)
	}
	tell(&s.news)
}

// pause waits, and reports false when the process ends.
func (s *summaries) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.done:
		return false
	}
}

// keepDear counts what takes long.
func (s *summaries) keepDear(t Thread) {
	of := slices.Clone(s.peek(t.Dir()).of)
	of = slices.DeleteFunc(of, func(c jsonform.ConsumerState) bool { return c.PendingErr == nil || c.FilterErr != nil })
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), dearTime)
	countIn(ctx, t.Engine(), of)
	cancel()
	s.update(t.Dir(), func(k *summary) {
		k.setCounts(of)
		k.dearAt = time.Now().Add(dearPause * time.Since(begin))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	tell(&s.news)
}

// countQuickly counts what is quick to count; what is not keeps its last count.
func (s *summaries) countQuickly(dir string, t *engine.Thread) {
	begin := time.Now()
	limit := quickTime
	if s.alone && address.IsURL(dir) { // no second count follows, and the server may be far
		limit = dearTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s.update(dir, func(k *summary) { k.owed = false })
	of := slices.Clone(s.peek(dir).of)
	countIn(ctx, t, of)
	s.update(dir, func(k *summary) {
		k.setCounts(of)
		k.late, k.lateAt = ctx.Err() != nil, time.Now().Add(dearPause*time.Since(begin))
	})
}

// countIn counts for consumers, and keeps the last counts of those that take too long.
func countIn(ctx context.Context, t *engine.Thread, of []jsonform.ConsumerState) {
	names := make([]string, len(of))
	for i := range names {
		names[i] = of[i].Consumer
	}
	now := time.Now()
	for i, b := range t.Backlogs(ctx, names) {
		c := &of[i]
		switch c.PendingErr = b.Err; {
		case c.FilterErr != nil:
			c.PendingErr = c.FilterErr
		case b.Err == nil:
			c.Pending, c.Oldest, c.CountedAt = b.Count, b.Oldest, now
		case !b.At.IsZero():
			c.Pending, c.Oldest, c.CountedAt = b.Count, b.Oldest, b.At
		}
	}
}

// withHandlers adds what changes without a write. Others may have the same slice.
func withHandlers(t *engine.Thread, of []jsonform.ConsumerState) []jsonform.ConsumerState {
	of = slices.Clone(of)
	for i := range of {
		c := &of[i]
		c.Handler, _ = dispatch.Status(t, c.Consumer) // without it: as not running
		if c.LastOutput = ""; c.Handler.Failures > 0 || c.Handler.Stalled {
			c.LastOutput = lastLine(dispatch.OutputPath(t.Dir(), c.Consumer))
		}
	}
	return of
}

// newest returns when the newest event was made.
func newest(ctx context.Context, t *engine.Thread, id int64) (at string, err error) {
	for e, err := range t.Events(ctx, engine.Query{After: max(0, id-1), Limit: 1, Reverse: true}) {
		return e.CreatedAt, err
	}
	return "", nil
}
