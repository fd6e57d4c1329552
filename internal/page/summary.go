package page

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

const (
	// patience is how long a page waits for counts that are not known yet, or not any
	// more. It then shows those from before.
	patience = 40 * time.Millisecond
	// countTime bounds the counting in one thread, which may have to read its events. It is
	// that of thread info.
	countTime = time.Second
	// fresh is how old the last write must be to tell it from a later one by its time:
	// file systems count in ticks, the coarsest in 2 s.
	fresh = 2 * time.Second
)

// summary is what is known of a thread.
type summary struct {
	info   engine.Info
	of     []jsonform.ConsumerState
	newest string // created_at of the newest event, "" when there is none
	err    error
	at     time.Time // zero: it was never looked at
	// What the database looked like before.
	modified time.Time
	size     int64
}

// summaries remembers a summary for each thread, for as long as its database is not
// written. One goroutine at a time looks, whoever asks.
type summaries struct {
	host Host

	mu      sync.Mutex
	known   map[string]*summary
	looking chan struct{} // closed when the look is over, nil when there is none
}

func newSummaries(host Host) *summaries {
	return &summaries{host: host, known: map[string]*summary{}}
}

// get returns what is known of these threads, in their order, after waiting for at
// most patience. One that is not known yet has no time.
func (s *summaries) get(list []Thread) []summary {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	s.wait(deadline.C, list)
	out := make([]summary, len(list))
	s.mu.Lock()
	for i, t := range list {
		if k := s.known[t.Dir()]; k != nil {
			out[i] = *k
		}
	}
	s.mu.Unlock()
	if len(list) != 1 {
		return out
	}
	out[0].of = withHandlers(list[0].Engine(), out[0].of)
	return out
}

// withHandlers adds what changes without a write. Others may have the same slice.
func withHandlers(t *engine.Thread, of []jsonform.ConsumerState) []jsonform.ConsumerState {
	of = slices.Clone(of)
	for i := range of {
		of[i].Handler, _ = dispatch.Status(t, of[i].Consumer) // without it: as not running
	}
	return of
}

// wait starts a look at what has changed and waits for its end. When another one is
// under way it waits for that, and starts its own.
func (s *summaries) wait(deadline <-chan time.Time, list []Thread) {
	for {
		s.mu.Lock()
		over := s.looking
		mine := over == nil
		if mine {
			over = make(chan struct{})
			s.looking = over
			go s.look(list, over)
		}
		s.mu.Unlock()
		select {
		case <-over:
			if mine {
				return
			}
		case <-deadline:
			return
		}
	}
}

func (s *summaries) look(list []Thread, over chan struct{}) {
	defer func() {
		s.mu.Lock()
		s.looking = nil
		s.mu.Unlock()
		close(over)
	}()
	for _, t := range list {
		select {
		case <-s.host.Done():
			return
		default:
		}
		s.lookAt(t.Dir(), t.Engine())
	}
	if len(list) > 1 {
		s.forget(list)
	}
}

// lookAt counts anew in a thread whose database was written since.
func (s *summaries) lookAt(dir string, t *engine.Thread) {
	file, err := os.Stat(filepath.Join(dir, "events.db"))
	s.mu.Lock()
	k := s.known[dir]
	s.mu.Unlock()
	if err == nil && k != nil && k.err == nil && k.modified.Equal(file.ModTime()) && k.size == file.Size() && k.at.Sub(k.modified) > fresh && k.counted() {
		return
	}
	n := &summary{at: time.Now(), err: err}
	if err == nil {
		n.modified, n.size = file.ModTime(), file.Size()
		n.count(t)
	}
	s.mu.Lock()
	s.known[dir] = n
	s.mu.Unlock()
}

// counted reports whether every count is known.
func (k *summary) counted() bool {
	return !slices.ContainsFunc(k.of, func(c jsonform.ConsumerState) bool { return c.PendingErr != nil && c.FilterErr == nil })
}

func (k *summary) count(t *engine.Thread) {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	if k.info, k.err = t.Info(ctx); k.err != nil {
		return
	}
	if k.newest, k.err = newest(ctx, t, k.info.Newest); k.err != nil {
		return
	}
	names := make([]string, len(k.info.Subscriptions))
	for i := range names {
		names[i] = k.info.Subscriptions[i].Consumer
	}
	for i, b := range t.Backlogs(ctx, names) {
		c := jsonform.ConsumerState{ConsumerInfo: k.info.Subscriptions[i], Pending: b.Count, Oldest: b.Oldest, PendingErr: b.Err}
		if c.FilterErr != nil {
			c.PendingErr = c.FilterErr
		}
		k.of = append(k.of, c)
	}
}

// newest returns when the newest event was made.
func newest(ctx context.Context, t *engine.Thread, id int64) (at string, err error) {
	for e, err := range t.Events(ctx, engine.Query{After: max(0, id-1), Limit: 1, Reverse: true}) {
		return e.CreatedAt, err
	}
	return "", nil
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

// Row is a thread in the map.
type Row struct {
	Name    string  `json:"name"`
	Dir     string  `json:"thread"`
	Stored  *int64  `json:"stored_count"`  // null: not known yet
	Pending *int64  `json:"pending_count"` // of all consumers; null: not known
	Oldest  *string `json:"oldest_pending_at"`
	Running int     `json:"running_count"`
	Dead    int64   `json:"dead_count"`
	Paused  int     `json:"paused_count"`
	Error   string  `json:"error,omitempty"`
	Failing int     `json:"-"` // consumers that do not get on
}

// Map is the first page.
type Map struct {
	Wrong   string `json:"summary"` // one sentence about what is wrong
	Right   bool   `json:"ok"`
	Threads []Row  `json:"threads"`
}

// threads is the map.
func (p *Page) threads(*http.Request) (any, error) {
	all := p.host.Threads()
	bases := map[string]int{}
	for _, t := range all {
		bases[filepath.Base(t.Dir())]++
	}
	m := Map{Threads: make([]Row, len(all))}
	for i, k := range p.summaries.get(all) {
		r := &m.Threads[i]
		r.Dir, r.Name = all[i].Dir(), filepath.Base(all[i].Dir())
		if bases[r.Name] > 1 {
			r.Name = r.Dir
		}
		r.fill(&k, all[i].Runs())
	}
	m.Wrong, m.Right = Wrong(m.Threads)
	return m, nil
}

func (r *Row) fill(k *summary, runs []Run) {
	for i := range runs {
		if runs[i].State == "running" && runs[i].Event == 0 {
			r.Running++
		}
	}
	if k.err != nil {
		r.Error = k.err.Error()
		return
	}
	if k.at.IsZero() {
		return
	}
	r.Stored, r.Pending = &k.info.Stored, new(int64)
	for i := range k.of {
		c := &k.of[i]
		r.Dead += c.Dead
		if c.Trouble() != "" {
			r.Failing++
		}
		if c.Paused {
			r.Paused++
		}
		if c.PendingErr != nil {
			r.Pending, r.Oldest = nil, nil
			break
		}
		*r.Pending += c.Pending
		if c.Oldest != "" && (r.Oldest == nil || c.Oldest < *r.Oldest) {
			r.Oldest = &c.Oldest
		}
	}
}

// Wrong is one sentence about the worst, and whether that is nothing.
func Wrong(rows []Row) (string, bool) {
	var broken, dead, failing, paused, unknown int
	var letters int64
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Error != "":
			broken++
		case r.Stored == nil:
			unknown++
		}
		if r.Dead > 0 {
			dead, letters = dead+1, letters+r.Dead
		}
		failing += r.Failing
		paused += r.Paused
	}
	switch {
	case broken > 0:
		return fmt.Sprintf("%s cannot be read.", many(int64(broken), "thread", "threads")), false
	case letters > 0:
		return fmt.Sprintf("%s in %s.", many(letters, "dead letter", "dead letters"), many(int64(dead), "thread", "threads")), false
	case failing > 0:
		return fmt.Sprintf("%s failing.", many(int64(failing), "consumer is", "consumers are")), false
	case paused > 0:
		return fmt.Sprintf("Nothing is wrong; %s paused.", many(int64(paused), "consumer is", "consumers are")), true
	case unknown > 0:
		return fmt.Sprintf("%s not looked at yet.", many(int64(unknown), "thread is", "threads are")), true
	}
	return "Nothing is wrong.", true
}

func many(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// lanes are those of the process.
func (p *Page) lanes(*http.Request) (any, error) {
	list := p.host.Lanes()
	if list == nil {
		list = []Lane{}
	}
	return list, nil
}

// info is what thread info shows.
func (p *Page) info(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	k := p.summaries.get([]Thread{t})[0]
	switch {
	case k.err != nil:
		return nil, k.err
	case k.at.IsZero():
		return nil, &Error{http.StatusServiceUnavailable, "this thread is being counted: ask again in a moment"}
	}
	return jsonform.NewInfo(&k.info, k.of), nil
}
