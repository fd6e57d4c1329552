package serve

import (
	"context"
	"maps"
	"sync"
	"time"

	"thread/engine"
	"thread/history"
)

const (
	// countTime bounds the counting that one scrape starts.
	countTime = 5 * time.Second
	// infoTime bounds the look at all that need not be counted.
	infoTime = 2 * time.Second
)

// scrapeWait is how long a scrape waits for counts. Those that take longer are continued
// for the next one, and have the values from before. A variable for the tests.
var scrapeWait = 50 * time.Millisecond

// rounds are the most that a thread gets of countTime before every other one had its turn.
var rounds = []time.Duration{10 * time.Millisecond, 200 * time.Millisecond, countTime}

// counting counts the unread events of consumers, in at most one goroutine.
type counting struct {
	ctx   context.Context // of the server
	until func(context.Context, time.Time) (context.Context, context.CancelFunc)

	mu   sync.Mutex
	over chan struct{} // closed when the count under way has ended; nil: there is none
}

// threadState is what a scrape shows of one thread.
type threadState struct {
	t     *thread
	info  engine.Info
	count []engine.Backlog // by subscription
	now   time.Time
	same  bool // nothing was written since the look before
}

// measure returns what is known of the threads. It waits for what can be counted until wait
// has passed since it was called.
func (c *counting) measure(all []*thread, wait time.Duration) []*threadState {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	list := look(all)
	select {
	case <-c.start(list):
	case <-timer.C:
	}
	for _, st := range list {
		st.fill()
	}
	return list
}

// look reads what need not be counted, where the database was written since the last look.
func look(all []*thread) (list []*threadState) {
	look, cancel := context.WithTimeout(context.Background(), infoTime)
	defer cancel()
	for _, t := range all {
		ctx, cancel := context.WithTimeout(look, infoTime/2)
		if st := t.look(ctx); st != nil {
			list = append(list, st)
		}
		cancel()
	}
	return list
}

// look returns nil for a thread that cannot be read.
func (t *thread) look(ctx context.Context) *threadState {
	now, err := t.stamp()
	if err != nil || time.Since(now.modified) < mtimeGranularity {
		now = stamp{}
	}
	if seen := t.lookedAt.Load(); seen != nil && now != (stamp{}) && seen.stamp == now {
		return &threadState{t: t, info: seen.info, same: true}
	}
	info, err := t.t.Info(ctx)
	if err != nil {
		return nil
	}
	t.lookedAt.Store(&seenInfo{info, now})
	return &threadState{t: t, info: info}
}

// counted reports whether each consumer is counted, and nothing was written since.
func (st *threadState) counted() bool {
	known := st.t.counted.Load()
	if !st.same || known == nil {
		return false
	}
	for i := range st.info.Subscriptions {
		if b, ok := (*known)[st.info.Subscriptions[i].Consumer]; !ok || b.Err != nil {
			return false
		}
	}
	return true
}

// start begins to count in the threads, unless a count is under way, and returns what is
// closed at its end.
func (c *counting) start(list []*threadState) (over <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over
	}
	ended := make(chan struct{})
	c.over = ended
	go func() {
		count(c.ctx, list, time.Now().Add(countTime), c.until)
		c.mu.Lock()
		c.over = nil
		c.mu.Unlock()
		close(ended)
	}()
	return ended
}

// count counts in the threads. What is dear in one of them takes nothing from the others:
// each has its share of the time until the deadline, and more of what the others have left.
func count(ctx context.Context, list []*threadState, deadline time.Time, until func(context.Context, time.Time) (context.Context, context.CancelFunc)) {
	var todo []uncounted
	for _, st := range list {
		if st.counted() {
			continue
		}
		u := uncounted{t: st.t}
		for j := range st.info.Subscriptions {
			u.names = append(u.names, st.info.Subscriptions[j].Consumer)
		}
		todo = append(todo, u)
	}
	for round, most := range rounds {
		var left []uncounted
		for i, u := range todo {
			now := time.Now()
			limited, cancel := until(ctx, now.Add(min(most, deadline.Sub(now)/time.Duration(len(todo)-i))))
			if !u.count(limited, round == len(rounds)-1) {
				left = append(left, u)
			}
			cancel()
		}
		todo = left
	}
}

// uncounted are the consumers of a thread that are still to be counted.
type uncounted struct {
	t     *thread
	names []string
}

// count shows scrapes what it has counted, and reports whether the time was enough. Until the
// last round, they see the earlier count of a consumer that is not counted.
func (u *uncounted) count(ctx context.Context, last bool) (enough bool) {
	known := map[string]engine.Backlog{}
	if before := u.t.counted.Load(); before != nil {
		known = maps.Clone(*before) // scrapes read it
	}
	if held, err := history.LimitsHeld(ctx, u.t.t); err == nil {
		u.t.historyHeld.Store(!held.IsZero())
	}
	list := u.t.t.Backlogs(ctx, u.names)
	cut := ctx.Err() != nil && !last
	var left []string
	for i, name := range u.names {
		if list[i].Err != nil && cut {
			left = append(left, name)
		} else {
			known[name] = list[i]
		}
	}
	u.names = left
	u.t.counted.Store(&known)
	return len(left) == 0
}

// fill takes what was counted last. It is not known for a consumer whose last count was cut
// off.
func (st *threadState) fill() {
	st.now = time.Now()
	st.count = make([]engine.Backlog, len(st.info.Subscriptions))
	known := st.t.counted.Load()
	for i := range st.count {
		st.count[i].Err = context.DeadlineExceeded
		if known == nil {
			continue
		}
		if b, ok := (*known)[st.info.Subscriptions[i].Consumer]; ok {
			st.count[i] = b
		}
	}
}

func (st *threadState) unknown(i int) float64 {
	if st.count[i].Err != nil {
		return 1
	}
	return 0
}

func (st *threadState) lag(i int) float64 {
	if st.count[i].At.IsZero() {
		return -1
	}
	return float64(st.count[i].Count)
}

func (st *threadState) age(i int) float64 {
	if st.count[i].At.IsZero() {
		return -1
	}
	return max(0, st.now.Sub(st.count[i].At).Seconds())
}

func (st *threadState) oldest(i int) float64 {
	if st.count[i].At.IsZero() {
		return -1
	}
	at, err := time.Parse(time.RFC3339Nano, st.count[i].Oldest)
	if err != nil {
		return 0
	}
	return max(0, st.now.Sub(at).Seconds())
}
