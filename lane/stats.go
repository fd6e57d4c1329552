package lane

import (
	"cmp"
	"slices"
	"time"
)

// Stats describes one lane at one moment.
type Stats struct {
	Name   string
	Limit  int
	Queued int // Tasks waiting in the lane.
	Active int // Tasks with a slot. A task in a session lane may wait in a global lane.
	// Oldest is how long the task at the head has waited, over both lanes; 0
	// when none waits.
	Oldest time.Duration
}

// Lanes describes the lanes that are in use or have a limit that was set, by
// name. Idle lanes with a default limit do not exist.
func (q *Queue) Lanes() []Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	all := make([]Stats, 0, len(q.lanes))
	for _, l := range q.lanes {
		s := Stats{Name: l.name, Limit: l.limit, Queued: l.waiting.len, Active: l.active}
		if t := l.waiting.first; t != nil {
			s.Oldest = now.Sub(t.submittedAt)
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Depth counts the tasks that wait or are active in a lane; 0 for a lane that
// does not exist (L-07).
func (q *Queue) Depth(name string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lanes[GlobalLane(name)]; l != nil {
		return l.depth()
	}
	return 0
}

// Total is the sum of [Queue.Depth] over all lanes (L-07). A task on a two-lane path
// counts in both once it has the slot of its session lane.
func (q *Queue) Total() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, l := range q.lanes {
		n += l.depth()
	}
	return n
}

// Active counts the running tasks, each once, without those that [Queue.Reset]
// disowned.
func (q *Queue) Active() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running.len
}
