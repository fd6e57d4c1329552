package trigger

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"thread/bridge/internal/expression"
	"thread/engine"
	"thread/filter"
)

// Settle says when the broker is told that a message is through.
const (
	SettleStored  = "stored"  // once its event is stored
	SettleHandled = "handled" // once a consumer is through with its event
)

// The policies for a message that failed or was rejected.
const (
	PolicyAck     = "ack"     // acknowledged; a dead letter stays in the thread
	PolicyNack    = "nack"    // refused: the broker does what is configured there
	PolicyRequeue = "requeue" // delivered again, up to Config.DeliveryLimit times
	PolicyDLQ     = "dlq"     // into the dead letter queue, then acknowledged
)

// Config is what a trigger does. NewConfig has the defaults.
type Config struct {
	Name  string // unique in a thread; by default the queue's
	Queue string // required
	Group string // required
	// Adapter is the type of the adapter, and the first half of an event's source.
	Adapter string

	Settle   string // SettleStored or SettleHandled; "": handled when there is a Handler
	Handler  string // a shell command to subscribe for the consumer, "": none
	Consumer string // whose outcome counts; by default the name of the trigger

	Concurrency   int
	AckPolicy     string
	MaxRetries    int
	BackoffBase   float64 // seconds
	Multiplier    float64
	DeliveryLimit int // deliveries of a message that is requeued, until it goes to the DLQ
	MaxBacklog    int64
	OrderBy       string // none, key, partition, group; see docs/reference/bridge.md

	Window float64 // seconds for which a settled key counts
	Dedup  bool

	Parser          string // json, text, binary
	EventNameHeader string
	Focus           *string
	Content         string            // payload: the whole of Q-13; message: the body alone
	Map             map[string]string // source, type, subtype, content: expressions of expr

	Governance Governance
	Tenant     Tenancy

	Ledger     bool
	LedgerKeep int64 // records that are kept at least

	MetricsEnabled bool
	ExportInterval float64 // seconds

	DLQ        string // the name of the dead letter queue, "" for the adapter's default
	RequireTLS bool
	MaxBatch   int // messages in one transaction
}

// Governance decides which messages may come in: by a filter over the event that
// would be stored, or by a co-process.
type Governance struct {
	Filter   string   // SQL; a message whose event does not match is rejected
	Command  []string // a program that speaks NDJSON, see docs/reference/bridge.md
	Timeout  float64  // seconds for one answer
	FailOpen bool     // let messages in that no process could decide about
}

// Tenancy says when header x-tenant-id is believed.
type Tenancy struct {
	Trust      bool     // without it every message is of tenant "default"
	Producers  []string // only of these, header x-producer; nil: of all
	SecretEnvs []string // environment variables with secrets; nil: no signature is asked for
}

// DefaultTenant is the tenant of a message that may not name one.
const DefaultTenant = "default"

// DefaultMaxBatch bounds a transaction: two syncs are paid for with it.
const DefaultMaxBatch = 5000

// maxSeconds bounds a number of seconds in a configuration: 30 years.
const maxSeconds = 30 * 365 * 86400

// maxBatchBytes bounds the bodies in one transaction.
const maxBatchBytes = 8 << 20

// NewConfig returns the defaults.
func NewConfig() Config {
	return Config{
		Concurrency: 1, AckPolicy: PolicyAck, MaxRetries: 3, BackoffBase: 1, Multiplier: 2, DeliveryLimit: 20,
		Window: 3600, Dedup: true, Parser: "json", EventNameHeader: "x-event-name", Content: "payload", OrderBy: "none",
		Governance: Governance{Timeout: 5}, Ledger: true, LedgerKeep: 100000,
		MetricsEnabled: true, ExportInterval: 60, MaxBatch: DefaultMaxBatch,
	}
}

// Problem is something wrong with a configuration: the key, in dotted form, and
// what.
type Problem struct{ Key, What string }

func (p Problem) String() string { return p.What }

var (
	ackPolicies = []string{PolicyAck, PolicyNack, PolicyRequeue, PolicyDLQ}
	parserTypes = []string{"json", "text", "binary"}
	nameForm    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
)

func oneOf(list []string) string { return "[" + strings.Join(list, ", ") + "]" }

// Complete fills in what follows from the rest.
func (c *Config) Complete() {
	if c.Name == "" {
		c.Name = nameOf(c.Queue)
	}
	if c.Settle == "" {
		c.Settle = SettleStored
		if c.Handler != "" {
			c.Settle = SettleHandled
		}
	}
	if c.Consumer == "" && c.Settle == SettleHandled {
		c.Consumer = c.Name
	}
}

// nameOf makes a name of a queue's, whose characters may not do.
func nameOf(queue string) string {
	name := strings.Trim(regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(queue, "-"), "-._")
	return name[:min(len(name), 100)]
}

// Validate returns everything that is wrong, nil for nothing.
func (c *Config) Validate() (problems []Problem) {
	bad := func(key, format string, args ...any) {
		problems = append(problems, Problem{key, fmt.Sprintf(format, args...)})
	}
	if strings.TrimSpace(c.Queue) == "" {
		bad("queue_name", "queue_name is required")
	}
	if strings.TrimSpace(c.Group) == "" {
		bad("consumer_group", "consumer_group is required")
	}
	if c.Name != "" && !nameForm.MatchString(c.Name) {
		bad("name", "name must be letters, digits, dots, hyphens and underscores, at most 100, got %q", c.Name)
	}
	if c.Concurrency <= 0 {
		bad("concurrency", "concurrency must be positive, got %d", c.Concurrency)
	}
	if !slices.Contains(ackPolicies, c.AckPolicy) {
		bad("ack_policy", "ack_policy must be one of %s, got %q", oneOf(ackPolicies), c.AckPolicy)
	}
	if c.MaxRetries < 0 {
		bad("max_retries", "max_retries must be non-negative, got %d", c.MaxRetries)
	}
	// seconds checks a number of seconds, which must fit into a time.Duration.
	seconds := func(key string, v float64) {
		switch {
		case !(v > 0):
			bad(key, "%s must be positive, got %g", key, v)
		case v > maxSeconds:
			bad(key, "%s must be at most %d seconds, got %g", key, maxSeconds, v)
		}
	}
	seconds("retry_backoff_base", c.BackoffBase)
	if !(c.Multiplier >= 1) || math.IsInf(c.Multiplier, 1) {
		bad("retry_backoff_multiplier", "retry_backoff_multiplier must be >= 1, got %g", c.Multiplier)
	}
	seconds("idempotency_window", c.Window)
	if !slices.Contains(parserTypes, c.Parser) {
		bad("parser_type", "parser_type must be one of %s, got %q", oneOf(parserTypes), c.Parser)
	}
	if c.DeliveryLimit <= 0 {
		bad("delivery_limit", "delivery_limit must be positive, got %d", c.DeliveryLimit)
	}
	if c.MaxBacklog < 0 {
		bad("max_backlog", "max_backlog must be non-negative, got %d", c.MaxBacklog)
	}
	if c.MaxBatch <= 0 || c.MaxBatch > 10000 {
		bad("max_batch", "max_batch must be from 1 to 10000, got %d", c.MaxBatch)
	}
	if c.LedgerKeep < 0 {
		bad("ledger.keep", "ledger.keep must be non-negative, got %d", c.LedgerKeep)
	}
	seconds("metrics.export_interval", c.ExportInterval)
	if c.EventNameHeader == "" {
		bad("event_name_header", "event_name_header is empty")
	}
	if !slices.Contains([]string{"", SettleStored, SettleHandled}, c.Settle) {
		bad("settle", "settle must be one of [stored, handled], got %q", c.Settle)
	}
	if c.Handler != "" && c.Settle == SettleStored {
		bad("handler", "handler needs settle: handled, got settle: stored")
	}
	if !slices.Contains([]string{"payload", "message"}, c.Content) {
		bad("content", "content must be one of [payload, message], got %q", c.Content)
	}
	if !slices.Contains([]string{"none", "key", "partition", "group"}, c.OrderBy) {
		bad("order_by", "order_by must be one of [none, key, partition, group], got %q", c.OrderBy)
	}
	if c.MaxBacklog > 0 && c.Consumer == "" && c.Settle != SettleHandled && c.Handler == "" {
		bad("max_backlog", "max_backlog needs a consumer, whose backlog counts")
	}
	if c.Governance.Filter != "" {
		if len(c.Governance.Command) > 0 {
			bad("governance.command", "governance takes a filter or a command, not both")
		}
		if _, err := filter.Compile(c.Governance.Filter); err != nil {
			bad("governance.filter", "governance.filter: %v", err)
		}
	}
	seconds("governance.timeout", c.Governance.Timeout)
	if !c.Tenant.Trust && len(c.Tenant.Producers)+len(c.Tenant.SecretEnvs) > 0 {
		bad("tenant.trust_header", "tenant.trust_header must be true for trusted_producers and signature_secret_envs to count")
	}
	if _, err := compileMap(c.Map); err != nil {
		problems = append(problems, *err)
	}
	return problems
}

func compileMap(texts map[string]string) (mapping, *Problem) {
	m := mapping{}
	for _, field := range slices.Sorted(maps.Keys(texts)) {
		if !slices.Contains(mapped, field) {
			return nil, &Problem{"map." + field, fmt.Sprintf("map.%s is not a field of an event: use one of %s", field, oneOf(mapped))}
		}
		p, err := expression.Compile(texts[field], mapEnv{})
		if err != nil {
			return nil, &Problem{"map." + field, fmt.Sprintf("map.%s: %v", field, err)}
		}
		m[field] = p
	}
	return m, nil
}

// ConfigError is returned by New for a configuration with problems.
type ConfigError struct{ Problems []Problem }

func (e *ConfigError) Error() string {
	var list []string
	for _, p := range e.Problems {
		list = append(list, p.What)
	}
	return "invalid trigger configuration: " + strings.Join(list, "; ")
}

// Delay returns the wait after the n-th failure in a row, n from 1.
func (c *Config) Delay(n int64) time.Duration {
	d := c.BackoffBase
	for ; n > 1 && d < 86400; n-- {
		d *= c.Multiplier
	}
	return time.Duration(min(d, 86400) * float64(time.Second))
}

// window is how long a settled key counts, in milliseconds.
func (c *Config) window() int64 { return max(1, int64(c.Window*1000)) }

// Policy is how the consumer's events are tried.
func (c *Config) Policy() engine.Policy {
	return engine.Policy{Limit: 1, MaxAttempts: int64(c.MaxRetries) + 1, Backoff: c.Delay}
}

// Parallel returns how many events the handler is given at once, and the place of
// the key in their content whose events stay in order and one at a time, "" for
// none. Where the order asked for is not the order of keys in the content, it is 1.
func (c *Config) Parallel() (n int, key string) {
	switch {
	case c.OrderBy == "none":
		return c.Concurrency, ""
	case c.OrderBy == "key" && c.Content == "payload" && c.Map["content"] == "":
		return c.Concurrency, "$.key"
	}
	return 1, ""
}

// mapEnv is what an expression of map sees. Message is of json the object, else the
// text. A header that is missing is nil.
type mapEnv struct {
	Headers   map[string]any `expr:"headers"`
	Message   any            `expr:"message"`
	MessageID string         `expr:"message_id"`
	Key       string         `expr:"key"`
	Queue     string         `expr:"queue"`
	EventName string         `expr:"event_name"`
	TenantID  string         `expr:"tenant_id"`
}

// mapping makes the fields of an event out of a message.
type mapping map[string]*expression.Program

var mapped = []string{"content", "source", "subtype", "type"}
