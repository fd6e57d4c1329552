package page

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/address"
	"thread/internal/jsonform"
	"thread/internal/watch"
)

const (
	// patience is how long a page waits for what is not known yet, or not any more. It then
	// shows what was known before, and the rest follows as patches.
	patience = 40 * time.Millisecond
	// quickTime bounds the counting of a look, and dearTime the counting of the second one, which
	// no page waits for.
	quickTime = 40 * time.Millisecond
	dearTime  = 5 * time.Second
	// dearPause is how many times as long as a dear count has taken it is left alone.
	dearPause = 4
	// fresh is how old the last write must be to tell it from a later one by its time:
	// file systems count in ticks, the coarsest in 2 s.
	fresh = 2 * time.Second
	// statusTime is how long the states of handlers are believed that no write goes with.
	statusTime = 5 * time.Second
)

// RunRow is a recorded run.
type RunRow struct{ history.RunRow }

// summary is what is known of a thread.
type summary struct {
	info   engine.Info
	of     []jsonform.ConsumerState
	newest string // created_at of the newest event, "" when there is none
	err    error
	read   time.Time // when info was read; zero: it was not
	at     time.Time // of the last look; zero: there was none
	status time.Time // when the states of the handlers were read
	late   bool      // its counts took longer than quickTime: no look waits for them
	slow   bool      // reading it took longer than patience: no page waits for a look
	owed   bool      // they are to be made again
	lateAt time.Time // when that may be
	dearAt time.Time // when the rest may be counted again
	past   past
	dead   map[string]deadKinds
	failed []RunRow // recorded runs that have failed and are not tried again
	// What the files looked like before.
	database, run, records stamp
	version                int64 // of Thread.Version at the last look
}

// stamp tells whether a file was written.
type stamp struct {
	modified time.Time
	size     int64
}

// stampOf returns the stamp of a thread directory.
func stampOf(dir string) (stamp, error) {
	at, size, err := watch.Written(dir)
	return stamp{at, size}, err
}

// same reports whether nothing was written since, at the time of a look.
func (s stamp) same(now stamp, at time.Time) bool {
	return s == now && at.Sub(s.modified) > fresh
}

// counted reports whether every count is known.
func (k *summary) counted() bool {
	return !slices.ContainsFunc(k.of, func(c jsonform.ConsumerState) bool { return c.PendingErr != nil && c.FilterErr == nil })
}

// summaries remembers a summary for each thread. Looks are made by one goroutine, one
// after the other, counts that no look waits for by another, and dear ones by a third: no
// page waits longer than patience.
type summaries struct {
	done  <-chan struct{} // closed when the process ends
	alone bool            // nothing is counted in the background
	// failures returns the recorded runs of a thread that have failed for good; nil: not asked.
	failures func(ctx context.Context, dir string) []RunRow

	mu      sync.Mutex
	known   map[string]*summary
	todo    []Thread // to be looked at
	looking bool
	late    background      // counts that no look waits for, and the past
	dear    background      // dear counts
	seen    chan struct{}   // closed after each look
	aside   map[string]bool // threads on servers and slow ones that are being looked at
	waited  bool            // a page has not waited for the end of its looks
	news    chan struct{}   // closed when something is known that a page had not waited for
}

func newSummaries(done <-chan struct{}) *summaries {
	return &summaries{done: done, known: map[string]*summary{}, aside: map[string]bool{}, seen: make(chan struct{}), news: make(chan struct{})}
}

// changed is closed when something is known that pages have not waited for.
func (s *summaries) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.news
}

// tell closes that channel, and makes the next. s.mu is held.
func tell(news *chan struct{}) {
	close(*news)
	*news = make(chan struct{})
}

// peek returns what is known of a thread, without a look.
func (s *summaries) peek(dir string) summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.known[dir]; k != nil {
		return *k
	}
	return summary{}
}

// get returns what is known of these threads after a look at each, or after patience.
// One that is not known yet has no time.
func (s *summaries) get(list []Thread) []summary {
	begin := time.Now()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	s.ask(list)
	for waiting := true; waiting; {
		seen, over := s.looked(list, begin)
		if over {
			break
		}
		select {
		case <-seen:
		case <-deadline.C:
			waiting = false
			s.mu.Lock()
			s.waited = s.looking || len(s.aside) > 0
			s.mu.Unlock()
		case <-s.done:
			waiting = false
		}
	}
	out := make([]summary, len(list))
	for i, t := range list {
		out[i] = s.peek(t.Dir())
	}
	return out
}

// looked reports whether all of these threads were looked at since, except slow ones; until
// then, seen is closed after the next look.
func (s *summaries) looked(list []Thread, since time.Time) (seen <-chan struct{}, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen, !slices.ContainsFunc(list, func(t Thread) bool {
		k := s.known[t.Dir()]
		return k == nil || k.at.Before(since) && !k.slow
	})
}

// await has the next page wait for a look at a thread that was changed, even at a slow one.
func (s *summaries) await(dir string) {
	s.update(dir, func(k *summary) { k.slow = false })
}

// ask has threads looked at, the threads of the last call first.
func (s *summaries) ask(list []Thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := map[string]bool{}
	for _, t := range list {
		asked[t.Dir()] = true
	}
	rest := slices.DeleteFunc(s.todo, func(t Thread) bool { return asked[t.Dir()] })
	s.todo = append(slices.Clone(list), rest...)
	if !s.looking && len(s.todo) > 0 {
		s.looking = true
		go s.look()
	}
}

// look looks at what was asked for until nothing is left.
func (s *summaries) look() {
	for {
		s.mu.Lock()
		if s.looking = len(s.todo) > 0 && !s.ended(); !s.looking {
			s.lookedAll()
			s.mu.Unlock()
			return
		}
		t := s.todo[0]
		s.todo = s.todo[1:]
		if k := s.known[t.Dir()]; address.IsURL(t.Dir()) || s.aside[t.Dir()] || k != nil && k.slow {
			s.lookAside(t)
			s.mu.Unlock()
			continue
		}
		s.mu.Unlock()
		s.lookAt(t.Dir(), t.Engine())
		s.mu.Lock()
		s.follow(t, s.known[t.Dir()])
		tell(&s.seen)
		s.mu.Unlock()
	}
}

// lookedAll tells the pages that have not waited for the end of the looks. s.mu is held.
func (s *summaries) lookedAll() {
	if s.waited && !s.looking && len(s.aside) == 0 {
		s.waited = false
		tell(&s.news)
	}
}

// lookAside looks at a thread on a server or a slow one, which may take its time. s.mu is held.
func (s *summaries) lookAside(t Thread) {
	if s.aside[t.Dir()] {
		return
	}
	s.aside[t.Dir()] = true
	go func() {
		written := false
		if address.IsURL(t.Dir()) {
			s.lookAtURL(t.Dir(), t.Engine(), t.Version())
		} else {
			written = s.lookAt(t.Dir(), t.Engine())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.aside, t.Dir())
		s.follow(t, s.known[t.Dir()])
		tell(&s.seen)
		if written {
			tell(&s.news) // no page has waited for it
		}
		s.lookedAll()
	}()
}

func (s *summaries) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// lookAt looks at a thread, and counts again if its database was written since. Counts that
// took long before are left to follow.
func (s *summaries) lookAt(dir string, t *engine.Thread) (written bool) {
	n := s.peek(dir) // its slices are not changed
	begin := time.Now()
	database, err := stampOf(dir)
	run := stamp{}
	if info, err := os.Stat(filepath.Join(dir, "run")); err == nil {
		run = stamp{info.ModTime(), info.Size()}
	}
	records, _ := stampOf(filepath.Join(dir, "history"))
	written = err != nil || n.at.IsZero() || n.err != nil || !n.database.same(database, n.at)
	if written && err == nil {
		err = s.readAgain(dir, t, begin)
	}
	if err == nil && (written || !n.run.same(run, n.at) || begin.Sub(n.status) > statusTime) {
		of := withHandlers(t, s.peek(dir).of)
		s.update(dir, func(k *summary) { k.setHandlers(of, begin) })
	}
	slow := n.slow
	if written {
		slow = time.Since(begin) > patience
	}
	late := n.late && !s.alone
	if err == nil && written {
		ctx, cancel := context.WithTimeout(context.Background(), quickTime)
		n.dead = kindsOf(ctx, t, s.peek(dir).of, n.dead)
		cancel()
	}
	if err == nil && written && !late {
		s.countQuickly(dir, t)
	}
	if s.failures != nil && (records != stamp{}) && !n.records.same(records, n.at) {
		ctx, cancel := context.WithTimeout(context.Background(), quickTime)
		n.failed = s.failures(ctx, dir)
		cancel()
	}
	past := n.past
	if k := s.peek(dir); err == nil && !k.late {
		past = n.past.with(t, &k, begin)
	}
	s.update(dir, func(k *summary) {
		if !k.late {
			k.past = past
		}
		k.owed = k.owed || written && late
		k.err, k.dead, k.failed, k.at, k.slow, k.database, k.run, k.records = err, n.dead, n.failed, begin, slow, database, run, records
	})
	return written
}

// update changes what is known of a thread. What peek has returned stays as it is.
func (s *summaries) update(dir string, change func(k *summary)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := summary{}
	if k := s.known[dir]; k != nil {
		n = *k
	}
	n.of = slices.Clone(n.of)
	change(&n)
	s.known[dir] = &n
}

// errNotCounted is the error of a count that was not begun.
var errNotCounted = errors.New("not counted yet")

// readAgain reads what need not be counted. Counts stay as they were.
func (s *summaries) readAgain(dir string, t *engine.Thread, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), dearTime)
	defer cancel()
	info, err := t.Info(ctx)
	if err != nil {
		return err
	}
	at, err := newest(ctx, t, info.Newest)
	if err != nil {
		return err
	}
	s.update(dir, func(k *summary) {
		before := byName(k.of)
		k.info, k.newest, k.read = info, at, now
		k.of = make([]jsonform.ConsumerState, len(info.Subscriptions))
		for i := range k.of {
			c := &k.of[i]
			c.ConsumerInfo, c.PendingErr = info.Subscriptions[i], errNotCounted
			if b := before[c.Consumer]; b != nil {
				c.Pending, c.Oldest, c.CountedAt, c.PendingErr = b.Pending, b.Oldest, b.CountedAt, b.PendingErr
				c.Handler, c.LastOutput = b.Handler, b.LastOutput
			}
			if c.FilterErr != nil {
				c.PendingErr = c.FilterErr
			}
		}
	})
	return nil
}

func byName(of []jsonform.ConsumerState) map[string]*jsonform.ConsumerState {
	m := make(map[string]*jsonform.ConsumerState, len(of))
	for i := range of {
		m[of[i].Consumer] = &of[i]
	}
	return m
}

func (k *summary) setHandlers(of []jsonform.ConsumerState, now time.Time) {
	by := byName(of)
	for i := range k.of {
		if b := by[k.of[i].Consumer]; b != nil {
			k.of[i].Handler, k.of[i].LastOutput = b.Handler, b.LastOutput
		}
	}
	k.status = now
}

func (k *summary) setCounts(of []jsonform.ConsumerState) {
	by := byName(of)
	for i := range k.of {
		if b := by[k.of[i].Consumer]; b != nil {
			k.of[i].Pending, k.of[i].Oldest, k.of[i].CountedAt, k.of[i].PendingErr = b.Pending, b.Oldest, b.CountedAt, b.PendingErr
		}
	}
}

// forget leaves out what is not served any more.
func (s *summaries) forget(list []Thread) {
	dirs := map[string]bool{}
	for _, t := range list {
		dirs[t.Dir()] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir := range s.known {
		if !dirs[dir] {
			delete(s.known, dir)
		}
	}
}
