package serve

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/engine"
)

// scrapeTime bounds the look at the threads for one scrape: scrapers wait 10 s.
// What was not looked at by then has no sample.
const scrapeTime = 5 * time.Second

// exposition is a text in the format of Prometheus, version 0.0.4.
type exposition struct{ buf []byte }

// family begins the samples of a metric.
func (x *exposition) family(name, kind, help string) {
	x.buf = append(x.buf, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
}

// sample appends one; labels are names and values by turns.
func (x *exposition) sample(name string, value float64, labels ...string) {
	x.buf = append(x.buf, name...)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		x.buf = append(x.buf, sep+labels[i]+`="`+labelValue(labels[i+1])+`"`...)
	}
	if len(labels) > 0 {
		x.buf = append(x.buf, '}')
	}
	x.buf = strconv.AppendFloat(append(x.buf, ' '), value, 'g', -1, 64)
	x.buf = append(x.buf, '\n')
}

func labelValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\uFFFD"))
}

func (x *exposition) histogram(name string, h *histogram, labels ...string) {
	labels = slices.Clip(labels)
	total := uint64(0)
	for i, n := range h.counts {
		total += n
		le := "+Inf"
		if i < len(durations) {
			le = strconv.FormatFloat(durations[i], 'g', -1, 64)
		}
		x.sample(name+"_bucket", float64(total), append(labels, "le", le)...)
	}
	x.sample(name+"_sum", h.sum, labels...)
	x.sample(name+"_count", float64(total), labels...)
}

// appendMetrics appends all metrics. They are of the moment; counters of runs
// and pushes begin with the process.
func (s *Server) appendMetrics(b []byte) []byte {
	x := &exposition{b}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	s.threadMetrics(ctx, x)
	s.laneMetrics(x)
	return x.buf
}

// threadState is what a scrape shows of one thread.
type threadState struct {
	t      *thread
	info   engine.Info
	lag    []float64 // by subscription, -1 for not known
	oldest []float64 // seconds, too
}

func (s *Server) threadMetrics(ctx context.Context, x *exposition) {
	var states []threadState
	all := s.all()
	for _, t := range all {
		if st, err := t.measure(ctx); err == nil {
			states = append(states, st)
		}
	}
	x.family("thread_served_threads", "gauge", "Threads that this process serves.")
	x.sample("thread_served_threads", float64(len(all)))
	perThread := func(name, kind, help string, value func(st *threadState) float64) {
		x.family(name, kind, help)
		for i := range states {
			x.sample(name, value(&states[i]), "thread", states[i].t.dir)
		}
	}
	perThread("thread_events_total", "counter", "Events ever stored in the thread.", func(st *threadState) float64 { return float64(st.info.EventCount) })
	perThread("thread_events_stored", "gauge", "Events that the thread still has.", func(st *threadState) float64 { return float64(st.info.Stored) })
	perThread("thread_scheduled", "gauge", "Delayed events and schedules.", func(st *threadState) float64 { return float64(st.info.Scheduled) })
	perThread("thread_pushes_total", "counter", "Pushes that told this process.", func(st *threadState) float64 { return float64(st.t.pushes.Load()) })

	perConsumer := func(name, help string, value func(st *threadState, i int) float64) {
		x.family(name, "gauge", help)
		for i := range states {
			st := &states[i]
			for j := range st.info.Subscriptions {
				if v := value(st, j); v >= 0 {
					x.sample(name, v, "thread", st.t.dir, "consumer", st.info.Subscriptions[j].Consumer)
				}
			}
		}
	}
	perConsumer("thread_consumer_lag_events", "Unread events that match.", func(st *threadState, i int) float64 { return st.lag[i] })
	perConsumer("thread_consumer_oldest_seconds", "Age of the oldest unread event that matches, 0 for none.", func(st *threadState, i int) float64 { return st.oldest[i] })
	perConsumer("thread_consumer_dead_letters", "Dead letters.", func(st *threadState, i int) float64 { return float64(st.info.Subscriptions[i].Dead) })
	perConsumer("thread_consumer_retries", "Dead letters that were sent back and are not settled yet.", func(st *threadState, i int) float64 { return float64(st.info.Subscriptions[i].Retries) })
}

// measure looks at one thread.
func (t *thread) measure(ctx context.Context) (st threadState, err error) {
	st.t = t
	if st.info, err = t.t.Info(ctx); err != nil {
		return st, err
	}
	now := time.Now()
	names := make([]string, len(st.info.Subscriptions))
	for i := range names {
		names[i] = st.info.Subscriptions[i].Consumer
	}
	for _, b := range t.t.Backlogs(ctx, names) {
		lag, age := -1.0, -1.0
		if b.Err == nil {
			lag, age = float64(b.Count), 0
			if at, err := time.Parse(time.RFC3339Nano, b.Oldest); err == nil {
				age = max(0, now.Sub(at).Seconds())
			}
		}
		st.lag, st.oldest = append(st.lag, lag), append(st.oldest, age)
	}
	return st, nil
}

func (s *Server) laneMetrics(x *exposition) {
	lanes := s.lanes()
	perLane := func(name, help string, value func(l *Lane) float64) {
		x.family(name, "gauge", help)
		for i := range lanes {
			x.sample(name, value(&lanes[i]), "lane", lanes[i].Name)
		}
	}
	perLane("thread_lane_limit", "Handlers that may run at once.", func(l *Lane) float64 { return float64(l.Limit) })
	perLane("thread_lane_active", "Handlers that run.", func(l *Lane) float64 { return float64(l.Active) })
	perLane("thread_lane_queued", "Consumers that wait for their turn.", func(l *Lane) float64 { return float64(l.Queued) })
	perLane("thread_lane_oldest_wait_seconds", "How long the first of them has waited.", func(l *Lane) float64 { return float64(l.OldestMS) / 1000 })

	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.stats.lanes))
	each := func(name, kind, help string, f func(lane string, l *laneStats)) {
		x.family(name, kind, help)
		for _, lane := range names {
			f(lane, s.stats.lanes[lane])
		}
	}
	each("thread_runs_total", "counter", "Runs of handlers that have ended.", func(lane string, l *laneStats) {
		x.sample("thread_runs_total", float64(l.ok), "lane", lane, "result", "ok")
		x.sample("thread_runs_total", float64(l.failed), "lane", lane, "result", "failed")
	})
	each("thread_retries_total", "counter", "Runs that were put off after a failure.", func(lane string, l *laneStats) {
		x.sample("thread_retries_total", float64(l.retries), "lane", lane)
	})
	each("thread_run_duration_seconds", "histogram", "How long handlers ran.", func(lane string, l *laneStats) {
		x.histogram("thread_run_duration_seconds", &l.ran, "lane", lane)
	})
	each("thread_lane_wait_seconds", "histogram", "How long consumers waited for their turn.", func(lane string, l *laneStats) {
		x.histogram("thread_lane_wait_seconds", &l.waited, "lane", lane)
	})
}
