package config

import (
	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// Publish is a file with a queue_publish.
type Publish struct {
	trigger.PublishConfig
	Spec       *adapter.Spec
	Connection map[string]string
	Unset      []string
}

// LoadPublish reads a file with a mapping queue_publish, or with its keys at the
// top. It returns an *Error.
func LoadPublish(path string) (*Publish, error) {
	f := &file{path: path}
	p := &Publish{PublishConfig: trigger.NewPublishConfig()}
	c := &p.PublishConfig
	n := f.read("queue_publish")
	if n == nil {
		return nil, f.err()
	}
	f.fill("", n, map[string]field{
		"name": textField(&c.Name), "queue_name": textField(&c.Queue), "filter": textField(&c.Filter), "headers": mapField(&c.Headers),
		"key": textField(&c.Key), "body": textField(&c.Body), "shadow": boolField(&c.Shadow), "max_batch": intField(&c.MaxBatch),
		"prune_after": intField(&c.PruneAfter),
		"adapter": func(f *file, name string, n *node) string {
			kind, conn, requireTLS, what := adapterOf(f, name, n)
			if what != "" {
				return what
			}
			c.Adapter, p.Connection, c.RequireTLS = kind, conn, requireTLS
			p.Spec, what = f.spec(n, kind, conn, requireTLS, false)
			return what
		},
	})
	lines := map[string]int{}
	noteLines(lines, "", n)
	for _, problem := range p.Validate() {
		f.bad(lines[problem.Key], "%s", problem.What)
	}
	if n.fields["adapter"] == nil {
		f.bad(0, "adapter is required")
	}
	f.checkQueue(p.Spec, p.Queue, lines["queue_name"], false)
	p.Unset = f.unset
	return p, f.err()
}

// Settings is what the adapter of p is told.
func (p *Publish) Settings() *adapter.Settings {
	return &adapter.Settings{Name: p.Name, Queue: p.Queue, Group: p.Name, Concurrency: 1, MaxBatch: p.MaxBatch, RequireTLS: p.RequireTLS,
		Connection: p.Connection, Keys: p.Spec.Keys}
}

// Shown is the file as it may be printed, but for Redact.
func (t *Trigger) Shown() map[string]any {
	return map[string]any{"name": t.Name, "queue_name": t.Queue, "consumer_group": t.Group, "settle": t.Settle, "consumer": t.Consumer, "handler": t.Handler,
		"concurrency": t.Concurrency, "ack_policy": t.AckPolicy, "max_retries": t.MaxRetries, "retry_backoff_base": t.BackoffBase,
		"retry_backoff_multiplier": t.Multiplier, "delivery_limit": t.DeliveryLimit, "idempotency_window": t.Window, "enable_dedup": t.Dedup,
		"parser_type": t.Parser, "event_name_header": t.EventNameHeader, "focus": t.Focus,
		"adapter": map[string]any{"type": t.Adapter, "require_tls": t.RequireTLS, "connection": t.Connection}}
}

// Promise is on what the promise of the adapter depends.
func (t *Trigger) Promise() string {
	if t.Spec.Caps.Condition == "" {
		return "whatever is killed"
	}
	return t.Spec.Caps.Condition
}
