package config

import (
	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// Publish is one rule of a file with queue_publish.
type Publish struct {
	trigger.PublishConfig
	Spec       *adapter.Spec
	Connection map[string]string
	Unset      []string // variables that the file names and that are not set
}

// LoadPublish reads a file with queue_publish, one rule or a list of rules, or with the
// keys of one at the top. It returns an *Error.
func LoadPublish(path string) ([]*Publish, error) {
	f := newFile(path)
	var list []*Publish
	named := map[string]bool{}
	for _, n := range f.readList("queue_publish") {
		p := f.publish(n)
		if named[p.Name] {
			f.bad(n.line, "name %s is given to two rules", p.Name)
		}
		named[p.Name] = p.Name != ""
		list = append(list, p)
	}
	for _, p := range list {
		p.Unset = f.unset
	}
	return list, f.err()
}

func (f *file) publish(n *node) *Publish {
	p := &Publish{PublishConfig: trigger.NewPublishConfig()}
	c := &p.PublishConfig
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
	return p
}

// Settings is what the adapter of p is told.
func (p *Publish) Settings() *adapter.Settings {
	return &adapter.Settings{Name: p.Name, Queue: p.Queue, Group: p.Name, Concurrency: 1, MaxBatch: p.MaxBatch, RequireTLS: p.RequireTLS,
		Connection: p.Connection, Keys: p.Spec.Keys}
}

// Promise is on what the promise of the adapter depends.
func (t *Trigger) Promise() string {
	if t.Spec.Caps.Condition == "" {
		return "whatever is killed"
	}
	return t.Spec.Caps.Condition
}
