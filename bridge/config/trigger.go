package config

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// Trigger is a file with a queue_trigger.
type Trigger struct {
	trigger.Config
	Spec       *adapter.Spec
	Connection map[string]string
	Unset      []string // variables that the file names and that are not set
	lines      map[string]int
	path       string
}

// LoadTrigger reads a file with a mapping queue_trigger, or with its keys at the
// top. It returns an *Error.
func LoadTrigger(path string) (*Trigger, error) {
	f := newFile(path)
	t := &Trigger{Config: trigger.NewConfig(), lines: map[string]int{}, path: path}
	n := f.read("queue_trigger")
	if n == nil {
		return nil, f.err()
	}
	before := len(f.problems)
	f.fill("", n, t.fields())
	malformed := map[string]bool{}
	for _, p := range f.problems[before:] {
		key, _, _ := strings.Cut(p.What, " ")
		malformed[key] = true
	}
	noteLines(t.lines, "", n)
	for _, p := range t.Validate() {
		if !malformed[p.Key] {
			f.bad(t.lines[p.Key], "%s", p.What)
		}
	}
	if n.fields["adapter"] == nil {
		f.bad(0, "adapter is required")
	}
	f.checkQueue(t.Spec, t.Queue, t.lines["queue_name"], true)
	t.Complete()
	t.Unset = f.unset
	return t, f.err()
}

func noteLines(lines map[string]int, prefix string, n *node) {
	for _, k := range n.keys {
		lines[prefix+k] = n.fields[k].line
		if n.fields[k].kind == mapping {
			noteLines(lines, prefix+k+".", n.fields[k])
		}
	}
}

func (t *Trigger) fields() map[string]field {
	c := &t.Config
	return map[string]field{
		"name": textField(&c.Name), "queue_name": textField(&c.Queue), "consumer_group": textField(&c.Group),
		"concurrency": intField(&c.Concurrency), "ack_policy": textField(&c.AckPolicy), "max_retries": intField(&c.MaxRetries),
		"retry_backoff_base": floatField(&c.BackoffBase), "retry_backoff_multiplier": floatField(&c.Multiplier),
		"idempotency_window": floatField(&c.Window), "enable_dedup": boolField(&c.Dedup), "parser_type": textField(&c.Parser),
		"event_name_header": textField(&c.EventNameHeader), "settle": textField(&c.Settle), "handler": textField(&c.Handler),
		"consumer": textField(&c.Consumer), "delivery_limit": intField(&c.DeliveryLimit), "max_backlog": intField(&c.MaxBacklog),
		"order_by": textField(&c.OrderBy), "content": textField(&c.Content), "map": mapField(&c.Map), "dlq_name": textField(&c.DLQ),
		"max_batch": intField(&c.MaxBatch), "focus": focusField(&c.Focus),
		"governance": section(map[string]field{"filter": textField(&c.Governance.Filter), "command": wordsField(&c.Governance.Command),
			"timeout": floatField(&c.Governance.Timeout), "fail_open": boolField(&c.Governance.FailOpen)}),
		"tenant": section(map[string]field{"trust_header": boolField(&c.Tenant.Trust), "trusted_producers": listField(&c.Tenant.Producers),
			"signature_secret_envs": listField(&c.Tenant.SecretEnvs)}),
		"ledger":  section(map[string]field{"enabled": boolField(&c.Ledger), "keep": intField(&c.LedgerKeep)}),
		"metrics": section(map[string]field{"enabled": boolField(&c.MetricsEnabled), "export_interval": floatField(&c.ExportInterval)}),
		"adapter": func(f *file, name string, n *node) string {
			kind, connection, requireTLS, what := adapterOf(f, name, n)
			if what != "" {
				return what
			}
			c.Adapter, t.Connection, c.RequireTLS = kind, connection, requireTLS
			t.Spec, what = f.spec(n, kind, t.Connection, c.RequireTLS, true)
			return what
		},
	}
}

func focusField(to **string) field {
	return func(f *file, name string, n *node) string {
		if n.kind == null {
			return ""
		}
		var s string
		*to = &s
		return textField(&s)(f, name, n)
	}
}

// adapterOf reads {type, require_tls, connection} or {<type>: connection}.
func adapterOf(f *file, name string, n *node) (kind string, conn map[string]string, requireTLS bool, what string) {
	if n.kind != mapping {
		return "", nil, false, name + " must be a mapping, it is " + n.kind.String()
	}
	conn = map[string]string{}
	connection := func(f *file, name string, n *node) string {
		if n.kind == null {
			return ""
		}
		if n.kind != mapping {
			return name + " must be a mapping, it is " + n.kind.String()
		}
		for _, k := range n.keys {
			var list []string
			if what := listField(&list)(f, name+"."+k, n.fields[k]); what != "" {
				f.bad(n.fields[k].line, "%s", what)
			}
			conn[k] = n.fields[k].text
			if n.fields[k].kind == sequence {
				conn[k] = strings.Join(list, ",")
			}
		}
		return ""
	}
	fields := map[string]field{"type": textField(&kind), "require_tls": boolField(&requireTLS), "connection": connection}
	for _, known := range adapter.Known {
		fields[known.Type] = func(f *file, name string, n *node) string {
			kind = known.Type
			return connection(f, name, n)
		}
	}
	f.fill(name+".", n, fields)
	if kind == "" {
		what = "adapter.type is required"
	}
	return kind, conn, requireTLS, what
}

// spec finds the adapter and checks its connection.
func (f *file) spec(n *node, kind string, conn map[string]string, requireTLS, in bool) (*adapter.Spec, string) {
	s, err := adapter.Find(kind)
	if err != nil {
		var build *adapter.NotInBuildError
		if errors.As(err, &build) {
			return nil, err.Error() + " (" + build.Remedy() + ")"
		}
		return nil, err.Error()
	}
	if what := directions(s, in); what != "" {
		return nil, what
	}
	at := n.fields["connection"]
	if at == nil {
		at = n.fields[kind]
	}
	line := func(k string) int {
		if at != nil && at.fields[k] != nil {
			return at.fields[k].line
		}
		return n.line
	}
	known := map[string]field{}
	for _, k := range s.Keys {
		known[k.Name] = nil
		v, given := conn[k.Name]
		if !given {
			if k.Required {
				f.bad(line(k.Name), "adapter.connection.%s is required", k.Name)
			}
			continue
		}
		if what := k.CheckValue(v); what != "" {
			f.bad(line(k.Name), "adapter.connection.%s", what)
		}
		if k.Kind == adapter.File && v != "" {
			if _, err := os.Stat(v); err != nil {
				f.bad(line(k.Name), "adapter.connection.%s: %v", k.Name, err)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(conn)) {
		if _, ok := known[k]; !ok {
			f.bad(line(k), "adapter.connection.%s is not a key of %s%s", k, kind, didYouMean(k, known))
		}
	}
	if s.Check != nil {
		for _, fault := range s.Check(&adapter.Settings{Connection: conn, Keys: s.Keys, RequireTLS: requireTLS}) {
			f.bad(line(fault.Key), "adapter.connection.%s: %s", fault.Key, fault.What)
		}
	}
	return s, ""
}

// checkQueue asks the adapter about the name of its queue.
func (f *file) checkQueue(s *adapter.Spec, queue string, line int, in bool) {
	if s != nil && s.CheckQueue != nil && queue != "" {
		if what := s.CheckQueue(queue, in); what != "" {
			f.bad(line, "%s", what)
		}
	}
}

// directions says when an adapter does not do what is asked of it.
func directions(s *adapter.Spec, in bool) string {
	switch {
	case s.Source == nil && s.Sink == nil:
		return "adapter " + s.Type + " is not built yet: use one that thread trigger adapters lists"
	case in && s.Source == nil:
		return "adapter " + s.Type + " cannot be read from"
	case !in && s.Sink == nil:
		return "adapter " + s.Type + " cannot be published to"
	}
	return ""
}

// Settings is what the adapter of t is told.
func (t *Trigger) Settings() *adapter.Settings {
	return &adapter.Settings{Name: t.Name, Queue: t.Queue, Group: t.Group, DLQ: t.DLQ, Concurrency: t.Concurrency, MaxBatch: t.MaxBatch,
		Handled: t.Settle == trigger.SettleHandled, RequireTLS: t.RequireTLS, Connection: t.Connection, Keys: t.Spec.Keys}
}

// CheckGovernance returns an error when the program that decides about messages cannot be
// found or executed: a trigger would take none of them.
func (t *Trigger) CheckGovernance() error {
	if len(t.Governance.Command) == 0 {
		return nil
	}
	if _, err := exec.LookPath(t.Governance.Command[0]); err != nil {
		return &Error{Path: t.path, Problems: []Problem{{t.lines["governance.command"], "governance.command: " + err.Error()}}}
	}
	return nil
}

// Warnings are what is not an error and not what was meant, perhaps.
func (t *Trigger) Warnings() (list []string) {
	for _, name := range t.Unset {
		list = append(list, "${"+name+"} is not set: it counts as empty")
	}
	for _, name := range t.Tenant.SecretEnvs {
		if os.Getenv(name) == "" {
			list = append(list, "tenant.signature_secret_envs: "+name+" is not set: a message that is signed with it counts as of tenant "+trigger.DefaultTenant)
		}
	}
	if n, _ := t.Parallel(); t.Settle == trigger.SettleHandled && t.Handler != "" && n < t.Concurrency {
		list = append(list, "order_by "+t.OrderBy+" is kept by handling one event at a time: concurrency counts for parsing and governance")
	}
	if t.AckPolicy == trigger.PolicyRequeue && t.Spec != nil && !t.Spec.Caps.Requeue {
		list = append(list, "adapter "+t.Adapter+" cannot requeue: what fails goes to the dead letter queue")
	}
	if !t.Dedup && t.Spec != nil && !t.Spec.Caps.Positions && t.Spec.Caps.Promise == trigger.ExactlyOnce {
		list = append(list, "with enable_dedup: false messages are stored at least once")
	}
	return list
}
