package serve

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"thread/engine"
)

// maxScrapes bounds how many are answered at once: each looks at every thread.
const maxScrapes = 4

func newStats() *stats {
	lane := []string{"lane"}
	durations := []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800} // seconds
	return &stats{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "thread_runs_total", Help: "Runs of handlers that have ended."}, []string{"lane", "result"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "thread_retries_total", Help: "Runs that were put off after a failure."}, lane),
		ran: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "thread_run_duration_seconds", Help: "How long handlers ran.", Buckets: durations}, lane),
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "thread_lane_wait_seconds", Help: "How long consumers waited for their turn.", Buckets: durations}, lane),
	}
}

// ended counts a run. A lane has all of its samples from its first run on, so that
// the first failure is an increase, too.
func (s *stats) ended(lane string, ok bool, waited, ran time.Duration) {
	lane = labelValue(lane)
	good, failed := s.runs.WithLabelValues(lane, "ok"), s.runs.WithLabelValues(lane, "failed")
	if ok {
		good.Inc()
	} else {
		failed.Inc()
	}
	s.retries.WithLabelValues(lane)
	s.waited.WithLabelValues(lane).Observe(waited.Seconds())
	s.ran.WithLabelValues(lane).Observe(ran.Seconds())
}

// retried counts a run that was put off.
func (s *stats) retried(lane string) { s.retries.WithLabelValues(labelValue(lane)).Inc() }

// labelValue makes a name one that a label can have: paths are bytes.
func labelValue(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// metricsHandler answers /metrics. The metrics are of the moment; counters of runs
// and pushes begin with the process.
func (s *Server) metricsHandler(ctx context.Context) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		s.stats.runs, s.stats.retries, s.stats.ran, s.stats.waited, laneCollector{s}, threadCollector{s, &counting{ctx: ctx, until: context.WithDeadline}})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorLog: s.httpErrors(),
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// threadMetric is a metric of a thread.
type threadMetric struct {
	*prometheus.Desc
	kind  prometheus.ValueType
	value func(st *threadState) float64
}

var threadMetrics = sync.OnceValue(func() []threadMetric {
	return []threadMetric{
		{describe("thread_events_total", "Events ever stored in the thread.", "thread"), prometheus.CounterValue,
			func(st *threadState) float64 { return float64(st.info.EventCount) }},
		{describe("thread_events_stored", "Events that the thread still has.", "thread"), prometheus.GaugeValue,
			func(st *threadState) float64 { return float64(st.info.Stored) }},
		{describe("thread_scheduled", "Delayed events and schedules.", "thread"), prometheus.GaugeValue,
			func(st *threadState) float64 { return float64(st.info.Scheduled) }},
		{describe("thread_limit_held_events", "Events over the thread's limits that a consumer or a dead letter keeps from being dropped.", "thread"), prometheus.GaugeValue,
			func(st *threadState) float64 { return heldEvents(st.info.Limits) }},
		{describe("thread_history_limit_held", "1 while the history exceeds a limit and cannot drop events.", "thread"), prometheus.GaugeValue,
			func(st *threadState) float64 {
				if st.t.historyHeld.Load() {
					return 1
				}
				return 0
			}},
		{describe("thread_pushes_total", "Pushes that told this process.", "thread"), prometheus.CounterValue,
			func(st *threadState) float64 { return float64(st.t.pushes.Load()) }},
	}
})

// heldEvents returns how many events a thread could not drop, 0 for a thread within its limits.
func heldEvents(l *engine.LimitsState) float64 {
	if l == nil || l.Held == nil {
		return 0
	}
	return float64(l.Held.Through - l.Held.First + 1)
}

// consumerMetric is one of a subscription, by its place among the thread's. A value
// below 0 is not known.
type consumerMetric struct {
	*prometheus.Desc
	value func(st *threadState, i int) float64
}

var consumerMetrics = sync.OnceValue(func() []consumerMetric {
	return []consumerMetric{
		{describe("thread_consumer_lag_events", "Unread events that match.", "thread", "consumer"),
			func(st *threadState, i int) float64 { return st.lag(i) }},
		{describe("thread_consumer_oldest_seconds", "Age of the oldest unread event that matches, 0 for none.", "thread", "consumer"),
			func(st *threadState, i int) float64 { return st.oldest(i) }},
		{describe("thread_consumer_lag_unknown", "1 while the two above are from an earlier look, or missing, as they could not be counted.", "thread", "consumer"),
			func(st *threadState, i int) float64 { return st.unknown(i) }},
		{describe("thread_consumer_lag_age_seconds", "How long ago they were counted.", "thread", "consumer"),
			func(st *threadState, i int) float64 { return st.age(i) }},
		{describe("thread_consumer_dead_letters", "Dead letters.", "thread", "consumer"),
			func(st *threadState, i int) float64 { return float64(st.info.Subscriptions[i].Dead) }},
		{describe("thread_consumer_retries", "Dead letters that were sent back and are not settled yet.", "thread", "consumer"),
			func(st *threadState, i int) float64 { return float64(st.info.Subscriptions[i].Retries) }},
	}
})

// servedThreads is the one metric of all threads.
var servedThreads = sync.OnceValue(func() *prometheus.Desc {
	return describe("thread_served_threads", "Threads that this process serves.")
})

// threadCollector looks at the threads, at each scrape.
type threadCollector struct {
	s *Server
	c *counting
}

// Describe tells the names.
func (c threadCollector) Describe(to chan<- *prometheus.Desc) {
	to <- servedThreads()
	for _, m := range threadMetrics() {
		to <- m.Desc
	}
	for _, m := range consumerMetrics() {
		to <- m.Desc
	}
}

// Collect looks.
func (c threadCollector) Collect(to chan<- prometheus.Metric) {
	all := c.s.all()
	to <- prometheus.MustNewConstMetric(servedThreads(), prometheus.GaugeValue, float64(len(all)))
	for _, st := range c.c.measure(all, scrapeWait) {
		dir := labelValue(st.t.dir)
		for _, m := range threadMetrics() {
			to <- prometheus.MustNewConstMetric(m.Desc, m.kind, m.value(st), dir)
		}
		for i := range st.info.Subscriptions {
			for _, m := range consumerMetrics() {
				if v := m.value(st, i); v >= 0 {
					to <- prometheus.MustNewConstMetric(m.Desc, prometheus.GaugeValue, v, dir, labelValue(st.info.Subscriptions[i].Consumer))
				}
			}
		}
	}
}

// laneMetric is a metric of a lane.
type laneMetric struct {
	*prometheus.Desc
	value func(l *Lane) float64
}

var laneMetrics = sync.OnceValue(func() []laneMetric {
	return []laneMetric{
		{describe("thread_lane_limit", "Handlers that may run at once.", "lane"), func(l *Lane) float64 { return float64(l.Limit) }},
		{describe("thread_lane_active", "Handlers that run.", "lane"), func(l *Lane) float64 { return float64(l.Active) }},
		{describe("thread_lane_queued", "Consumers that wait for their turn.", "lane"), func(l *Lane) float64 { return float64(l.Queued) }},
		{describe("thread_lane_oldest_wait_seconds", "How long the first of them has waited.", "lane"), func(l *Lane) float64 { return float64(l.OldestMS) / 1000 }},
	}
})

// laneCollector tells what is in the lanes.
type laneCollector struct{ s *Server }

// Describe tells the names.
func (c laneCollector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range laneMetrics() {
		to <- m.Desc
	}
}

// Collect asks the lanes.
func (c laneCollector) Collect(to chan<- prometheus.Metric) {
	for _, l := range c.s.lanes() {
		for _, m := range laneMetrics() {
			to <- prometheus.MustNewConstMetric(m.Desc, prometheus.GaugeValue, m.value(&l), labelValue(l.Name))
		}
	}
}
