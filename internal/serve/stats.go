package serve

import (
	"sync"
	"time"
)

// durations are the bounds of the buckets of a histogram, in seconds.
var durations = []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800}

// histogram counts durations. It is guarded by stats.mu.
type histogram struct {
	counts [11]uint64 // by bucket, the last one for all that is longer
	sum    float64
}

func (h *histogram) observe(d time.Duration) {
	s := d.Seconds()
	i := 0
	for i < len(durations) && s > durations[i] {
		i++
	}
	h.counts[i]++
	h.sum += s
}

// laneStats are what has happened in a lane since the process began.
type laneStats struct {
	ok, failed, retries uint64
	waited, ran         histogram
}

// stats are those of all lanes.
type stats struct {
	mu    sync.Mutex
	lanes map[string]*laneStats
}

// in calls f with the lane's, under the lock.
func (s *stats) in(lane string, f func(l *laneStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes == nil {
		s.lanes = map[string]*laneStats{}
	}
	l := s.lanes[lane]
	if l == nil {
		l = &laneStats{}
		s.lanes[lane] = l
	}
	f(l)
}
