package trigger

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// idleBeat is after how long a publisher with nothing to do shows that it is alive.
const idleBeat = 20 * time.Second

// publishState is what is known of a publisher while it runs.
type publishState struct {
	running             bool
	published, shadowed int64
	position            int64 // id of the last event that is confirmed
	wrong               wrong
	beat                time.Time
}

func (p *Publisher) note(fn func(*publishState)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.state)
}

// noteTrouble notes why nothing is published.
func (p *Publisher) noteTrouble(err error) {
	p.note(func(s *publishState) {
		s.beat = time.Now()
		if s.wrong.err == nil {
			s.wrong.since = s.beat
		}
		s.wrong.err = err
	})
}

func (p *Publisher) read() (s publishState) {
	p.note(func(now *publishState) { s = *now })
	return s
}

// Beat is when the publisher has last come round; the present while it does not run.
func (p *Publisher) Beat() time.Time {
	if s := p.read(); s.running {
		return s.beat
	}
	return time.Now()
}

// PublishStatus is the answer of a health check of a publisher.
type PublishStatus struct {
	Status         string  `json:"status"` // healthy or unhealthy
	Name           string  `json:"name"`
	Queue          string  `json:"queue"`
	Running        bool    `json:"running"`
	Shadow         bool    `json:"shadow"`
	AdapterHealthy bool    `json:"adapter_healthy"`
	Published      int64   `json:"published"` // by the process that runs
	Shadowed       int64   `json:"shadowed"`
	Position       int64   `json:"position"` // id of the last event that the broker has confirmed
	Detail         *string `json:"detail"`   // what is wrong, without credentials
}

// Health returns how the publisher is: healthy while it runs and nothing has been wrong
// for more than 5 s.
func (p *Publisher) Health(ctx context.Context) PublishStatus {
	now := p.read()
	s := PublishStatus{Status: "unhealthy", Name: p.cfg.Name, Queue: p.cfg.Queue, Running: now.running, Shadow: p.cfg.Shadow,
		Published: now.published, Shadowed: now.shadowed, Position: now.position}
	h := Health{OK: true} // in shadow mode there is no connection
	if !p.cfg.Shadow {
		h = Health{Detail: "not running"}
		if now.running {
			h = p.sink.Health(ctx)
		}
	}
	s.AdapterHealthy = h.OK
	if now.running && h.OK && now.wrong.lasting() < patience {
		s.Status = "healthy"
	}
	switch {
	case now.wrong.err != nil:
		s.Detail = text(Redact(now.wrong.err.Error()))
	case !h.OK:
		s.Detail = text(Redact(h.Detail))
	}
	return s
}

// WritePublishMetrics writes the metrics of publishers in the text format of Prometheus.
func WritePublishMetrics(w io.Writer, list []*Publisher) error {
	var b strings.Builder
	for _, m := range []struct {
		name, kind, help string
		value            func(publishState) float64
	}{
		{"queue_published_total", "counter", "Events that the broker has confirmed.", func(s publishState) float64 { return float64(s.published) }},
		{"queue_publish_position", "gauge", "The id of the last event that the broker has confirmed.", func(s publishState) float64 { return float64(s.position) }},
		{"queue_publish_trouble_seconds", "gauge", "For how long nothing could be published, 0: it can.", func(s publishState) float64 { return s.wrong.lasting().Seconds() }},
	} {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for _, p := range list {
			fmt.Fprintf(&b, "%s{publisher=%s,queue=%s} %v\n", m.name, label(p.cfg.Name), label(p.cfg.Queue), m.value(p.read()))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
