package trigger

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// buckets are the upper bounds of queue_processing_duration_seconds.
var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// Metrics counts what a trigger did since it was made. Its zero value is not
// usable.
type Metrics struct {
	mu       sync.Mutex
	queue    string
	consumed map[string]int64 // by status
	counts   []int64          // by bucket, the last one above all
	sum      float64
	delay    float64 // seconds between broker and thread, of the latest message
	retries  int64
	workers  int // that there are
	busy     int // of them
	calls    int64
	lag      int64 // -1: not known
	backlog  int64
	parked   int
	wrong    [troubles]wrong
}

func newMetrics(queue string) *Metrics {
	return &Metrics{queue: queue, consumed: map[string]int64{}, counts: make([]int64, len(buckets)+1), lag: -1}
}

// done counts a message that has come to its end.
func (m *Metrics) done(status string, took time.Duration) { m.doneAll(status, took, 1) }

// The statuses of a message.
const (
	StatusStored     = "stored"
	StatusSuccess    = "success"
	StatusFailed     = "failed"
	StatusRejected   = "rejected"
	StatusParseError = "parse_error"
	StatusDuplicate  = "duplicate"
)

// doneAll is done for n messages that took as long.
func (m *Metrics) doneAll(status string, took time.Duration, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.consumed[status] += n
	if status == StatusDuplicate {
		return
	}
	s := took.Seconds()
	m.sum += s * float64(n)
	i, _ := slices.BinarySearch(buckets, s)
	m.counts[i] += n
}

func (m *Metrics) set(fn func(*Metrics)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fn(m)
}

// Counts is a reading of Metrics.
type Counts struct {
	Consumed  map[string]int64 `json:"consumed"` // by status
	Processed int64            `json:"processed"`
	Failed    int64            `json:"failed"`
	DedupHits int64            `json:"dedup_hits"`
	Retries   int64            `json:"retries"`
	Calls     int64            `json:"model_calls"`
	Lag       *int64           `json:"lag"` // nil: the broker does not tell
	Backlog   int64            `json:"backlog"`
	Parked    int              `json:"parked"` // dead messages that wait in the thread for their queue
	Delay     float64          `json:"consumption_delay_seconds"`

	busy int
}

// Read returns the counts. Processed are the messages that came to a good end,
// failed those that could not be parsed or handled.
func (m *Metrics) Read() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := Counts{Consumed: map[string]int64{}, Retries: m.retries, Calls: m.calls, Backlog: m.backlog, Parked: m.parked, Delay: m.delay, busy: m.busy}
	for k, v := range m.consumed {
		c.Consumed[k] = v
	}
	c.Processed = m.consumed[StatusStored] + m.consumed[StatusSuccess]
	c.Failed = m.consumed[StatusFailed] + m.consumed[StatusParseError]
	c.DedupHits = m.consumed[StatusDuplicate]
	if m.lag >= 0 {
		c.Lag = &m.lag
	}
	return c
}

// label is the value of a label in the text format of Prometheus.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// WriteTo writes the metrics in the text format of Prometheus. It is written by
// hand: the library for it would be a fifth of the edge build.
func (m *Metrics) WriteTo(w io.Writer) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	queue := "queue=" + label(m.queue)
	head := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	head("queue_messages_consumed_total", "counter", "Messages that came to their end.")
	for _, s := range []string{StatusDuplicate, StatusFailed, StatusParseError, StatusRejected, StatusStored, StatusSuccess} {
		fmt.Fprintf(&b, "queue_messages_consumed_total{%s,status=\"%s\"} %d\n", queue, s, m.consumed[s])
	}
	head("queue_processing_duration_seconds", "histogram", "From the intake of a message to its end.")
	var n int64
	for i, at := range buckets {
		n += m.counts[i]
		fmt.Fprintf(&b, "queue_processing_duration_seconds_bucket{%s,le=\"%g\"} %d\n", queue, at, n)
	}
	n += m.counts[len(buckets)]
	fmt.Fprintf(&b, "queue_processing_duration_seconds_bucket{%s,le=\"+Inf\"} %d\n", queue, n)
	fmt.Fprintf(&b, "queue_processing_duration_seconds_sum{%s} %g\nqueue_processing_duration_seconds_count{%s} %d\n", queue, m.sum, queue, n)
	one := func(name, kind, help string, v any) {
		head(name, kind, help)
		fmt.Fprintf(&b, "%s{%s} %v\n", name, queue, v)
	}
	one("queue_workers", "gauge", "Workers of the trigger, 0: it does not run.", m.workers)
	one("queue_active_workers", "gauge", "Workers that are busy with a message.", m.busy)
	one("queue_dedup_hits_total", "counter", "Messages that were known already.", m.consumed[StatusDuplicate])
	one("queue_retries_total", "counter", "Failed attempts at handling an event.", m.retries)
	one("queue_model_calls_total", "counter", "Calls of models that handlers reported.", m.calls)
	one("queue_consumption_delay_seconds", "gauge", "Between the broker and the thread, of the latest message.", m.delay)
	one("queue_backlog", "gauge", "Events that wait for their consumer.", m.backlog)
	one("queue_parked_messages", "gauge", "Messages that wait in the thread for the dead letter queue.", m.parked)
	head("queue_trouble_seconds", "gauge", "For how long something has been wrong, 0: it is not.")
	for i := range m.wrong {
		fmt.Fprintf(&b, "queue_trouble_seconds{%s,what=\"%s\"} %g\n", queue, troubleNames[i], m.wrong[i].lasting().Seconds())
	}
	if m.lag >= 0 {
		one("queue_consumer_lag", "gauge", "Messages that the broker has for the group.", m.lag)
	}
	written, err := io.WriteString(w, b.String())
	return int64(written), err
}

// worst returns what has been wrong for the longest time, and for how long; nil for
// nothing.
func (m *Metrics) worst() (lasting time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.wrong {
		if d := m.wrong[i].lasting(); m.wrong[i].err != nil && (err == nil || d > lasting) {
			err, lasting = m.wrong[i].err, d
		}
	}
	return lasting, err
}
