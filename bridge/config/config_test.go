package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"thread/bridge/trigger"
)

func write(t interface {
	TempDir() string
	Fatal(...any)
}, text string) string {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const whole = `queue_trigger:
  name: orders
  queue_name: agent-events
  consumer_group: agents
  concurrency: 4
  adapter:
    type: mock
  parser_type: text
  ack_policy: requeue
  max_retries: 5
  retry_backoff_base: 0.5
  retry_backoff_multiplier: 3
  enable_dedup: false
  idempotency_window: 123
  event_name_header: x-name
  focus: sales
  settle: handled
  handler: ./order.sh
  delivery_limit: 7
  max_backlog: 100000
  map: {source: '"shop:" + headers["a"]'}
  governance: {filter: "type <> 'debug'", fail_open: true}
  tenant: {trust_header: true, trusted_producers: "a, b", signature_secret_envs: [S1, S2]}
  ledger: {enabled: true, keep: 5}
  metrics: {enabled: true, export_interval: 30}
`

// Q-01, cases 43, 45 and 46
func TestReadsWholeFile(t *testing.T) {
	c, err := LoadTrigger(write(t, whole))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "orders" || c.Queue != "agent-events" || c.Group != "agents" || c.Concurrency != 4 || c.Adapter != "mock" || c.Parser != "text" ||
		c.AckPolicy != "requeue" || c.MaxRetries != 5 || c.BackoffBase != .5 || c.Multiplier != 3 || c.Dedup || c.Window != 123 ||
		c.EventNameHeader != "x-name" || *c.Focus != "sales" || c.Settle != "handled" || c.Handler != "./order.sh" || c.Consumer != "orders" ||
		c.DeliveryLimit != 7 || c.MaxBacklog != 100000 || len(c.Map) != 1 || !c.Governance.FailOpen || c.Governance.Filter == "" ||
		!slices.Equal(c.Tenant.Producers, []string{"a", "b"}) || !slices.Equal(c.Tenant.SecretEnvs, []string{"S1", "S2"}) || c.LedgerKeep != 5 || c.ExportInterval != 30 {
		t.Errorf("%+v", c)
	}
}

// Q-01, case 44, with the keys at the top and the adapter's type as a key.
func TestDefaults(t *testing.T) {
	c, err := LoadTrigger(write(t, "queue_name: q\nconsumer_group: g\nfocus: null\nadapter: {mock: }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Concurrency != 1 || c.AckPolicy != "ack" || c.MaxRetries != 3 || c.BackoffBase != 1 || c.Multiplier != 2 || c.Window != 3600 || !c.Dedup ||
		c.Parser != "json" || c.EventNameHeader != "x-event-name" || c.Focus != nil || c.Settle != trigger.SettleStored || !c.MetricsEnabled || c.ExportInterval != 60 || c.Name != "q" {
		t.Errorf("%+v", c)
	}
}

// Q-02, cases 47, 48 and 74: everything at once, each with its line.
func TestAllErrorsAtOnce(t *testing.T) {
	_, err := LoadTrigger(write(t, `queue_trigger:
  queue_name: ""
  concurrency: 0
  ack_policy: maybe
  max_retries: -1
  retry_backoff_base: 0
  retry_backoff_multiplier: 0.5
  idempotency_window: -3
  parser_type: xml
  delivery_limit: many
  quue_name: x
  governance: {filter: "type ="}
  adapter:
    type: kafkaa
`))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := map[int]string{2: "queue_name is required", 3: "concurrency must be positive", 4: "ack_policy must be one of [ack, nack, requeue, dlq]",
		5: "max_retries must be non-negative", 6: "retry_backoff_base must be positive", 7: "retry_backoff_multiplier must be >= 1",
		8: "idempotency_window must be positive", 9: "parser_type must be one of", 10: `delivery_limit must be a whole number, got "many"`,
		11: "quue_name is not a key: did you mean queue_name?", 12: "governance.filter", 13: `adapter type "kafkaa" is not known: supported are jetstream, kafka`, 0: "consumer_group is required"}
	for _, p := range e.Problems {
		if w, ok := want[p.Line]; !ok || !strings.Contains(p.What, w) {
			t.Errorf("line %d: %s", p.Line, p.What)
		}
		delete(want, p.Line)
	}
	for line, w := range want {
		t.Errorf("line %d: no %s", line, w)
	}
}

// Q-03, cases 49 and 50
func TestEnvironment(t *testing.T) {
	t.Setenv("Q", "from-env")
	t.Setenv("N", "9")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadTrigger(write(t, fmt.Sprintf(`queue_name: "${Q}-x"
consumer_group: "${file:%s}"
concurrency: ${N}
tenant: {trust_header: true, trusted_producers: ["${Q}", b]}
handler: "echo ${NOT_SET_ANYWHERE}"
adapter: {type: mock}
`, secret)))
	if err != nil {
		t.Fatal(err)
	}
	if c.Queue != "from-env-x" || c.Group != "s3" || c.Concurrency != 9 || c.Tenant.Producers[0] != "from-env" || c.Handler != "echo " || !slices.Equal(c.Unset, []string{"NOT_SET_ANYWHERE"}) {
		t.Errorf("%+v", c)
	}
	if _, err := LoadTrigger(write(t, "queue_name: ${NOT_SET_ANYWHERE}\nconsumer_group: g\nadapter: {type: mock}\n")); err == nil || !strings.Contains(err.Error(), "line 1: queue_name is required") {
		t.Error(err)
	}
}

// Q-02, cases 51, 52 and 53: distinct errors
func TestNotAMapping(t *testing.T) {
	for text, want := range map[string]string{
		"- a\n":                          "line 1: the file must hold a mapping",
		"queue_trigger: [1]\n":           "line 1: queue_trigger must be a mapping, it is a list",
		"a: [\n":                         "not YAML",
		"":                               "must hold a mapping",
		"queue_name: q\nqueue_name: r\n": "line 2",
	} {
		if _, err := LoadTrigger(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := LoadTrigger(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// Property 5, case 54: what is valid comes back as it was written.
func TestPropertyConfigApplied(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := trigger.NewConfig()
		c.Queue = rapid.StringMatching(`[a-z][a-z0-9.-]{0,20}`).Draw(rt, "queue")
		c.Group = rapid.StringMatching(`[a-z]{1,8}`).Draw(rt, "group")
		c.Concurrency = rapid.IntRange(1, 64).Draw(rt, "concurrency")
		c.AckPolicy = rapid.SampledFrom([]string{"ack", "nack", "requeue", "dlq"}).Draw(rt, "policy")
		c.MaxRetries = rapid.IntRange(0, 20).Draw(rt, "retries")
		c.BackoffBase = float64(rapid.IntRange(1, 1000).Draw(rt, "base")) / 100
		c.Multiplier = 1 + float64(rapid.IntRange(0, 900).Draw(rt, "multiplier"))/100
		c.Window = float64(rapid.IntRange(1, 1e6).Draw(rt, "window"))
		c.Dedup = rapid.Bool().Draw(rt, "dedup")
		c.Parser = rapid.SampledFrom([]string{"json", "text", "binary"}).Draw(rt, "parser")
		path := filepath.Join(t.TempDir(), "c.yaml")
		text := fmt.Sprintf("queue_trigger:\n  queue_name: %s\n  consumer_group: %q\n  concurrency: %d\n  ack_policy: %s\n  max_retries: %d\n  retry_backoff_base: %g\n  retry_backoff_multiplier: %g\n  idempotency_window: %g\n  enable_dedup: %t\n  parser_type: %s\n  adapter: {type: mock}\n",
			c.Queue, c.Group, c.Concurrency, c.AckPolicy, c.MaxRetries, c.BackoffBase, c.Multiplier, c.Window, c.Dedup, c.Parser)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			rt.Fatal(err)
		}
		got, err := LoadTrigger(path)
		if err != nil {
			rt.Fatal(err)
		}
		c.Adapter = "mock"
		c.Complete()
		if fmt.Sprintf("%+v", c) != fmt.Sprintf("%+v", got.Config) {
			rt.Fatalf("%+v, want %+v", got.Config, c)
		}
	})
}

// Q-05, case 60: in both directions and both forms the answer names what is not known
// and lists what is.
func TestUnknownAdapter(t *testing.T) {
	const list = "supported are jetstream, kafka, mock, mqtt, rabbitmq, redis, sqs"
	for text, want := range map[string]string{
		"adapter: {type: pulsar}\n":                 `line 2: adapter type "pulsar" is not known: ` + list,
		"adapter: {type: Kafka}\n":                  `line 2: adapter type "Kafka" is not known: ` + list,
		"adapter: {type: kafka2, connection: {}}\n": `line 2: adapter type "kafka2" is not known: ` + list,
		"adapter: {pulsar: {}}\n":                   "line 2: adapter.pulsar is not a key: use one of connection, jetstream, kafka, mock, mqtt, rabbitmq, redis,",
		"adapter: {type: ''}\n":                     "adapter.type is required",
		"adapter: {}\n":                             "adapter.type is required",
	} {
		text = strings.Replace(text, "\n", "\nconsumer_group: g\n", 1)
		_, in := LoadTrigger(write(t, "queue_name: q\n"+text))
		_, out := LoadPublish(write(t, "queue_name: q\n"+strings.Replace(text, "consumer_group: g", "name: out", 1)))
		for _, err := range []error{in, out} {
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

// cases 38 and 61 to 63: what is not in this build says so, and what helps.
func TestNotBuilt(t *testing.T) {
	for _, kind := range []string{"kafka", "rabbitmq", "sqs"} {
		_, err := LoadTrigger(write(t, "queue_name: q\nconsumer_group: g\nadapter: {type: "+kind+"}\n"))
		if err == nil || !strings.Contains(err.Error(), "line 3: adapter "+kind+" is not in this build (install thread-bridge, which has all adapters, or build it with -tags "+kind+")") {
			t.Error(err)
		}
	}
}

// Case 88
func TestPublishErrors(t *testing.T) {
	_, err := LoadPublish(write(t, "queue_publish:\n  filter: 'type ='\n  body: x\n  headers: {a: 'nosuch'}\n  max_batch: 0\n  adapter: {type: mock}\n"))
	for _, want := range []string{"queue_name is required", "name is required", "line 2: filter", "line 3: body must be one of", "line 4: headers.a", "line 5: max_batch", "line 6: adapter mock cannot be published to"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %s: %v", want, err)
		}
	}
}

// a secret that is not set leaves signed messages to the default tenant.
func TestWarnsOfUnsetSecret(t *testing.T) {
	t.Setenv("SET_SECRET", "s")
	t.Setenv("EMPTY_SECRET", "")
	c, err := LoadTrigger(write(t, "queue_name: q\nconsumer_group: g\nadapter: {type: mock}\ntenant: {trust_header: true, signature_secret_envs: [SET_SECRET, EMPTY_SECRET, NOT_SET_ANYWHERE]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Join(c.Warnings(), "\n")
	if strings.Contains(list, " SET_SECRET") || !strings.Contains(list, " EMPTY_SECRET is not set") || !strings.Contains(list, " NOT_SET_ANYWHERE is not set") {
		t.Error(list)
	}
}

// a program that decides is a list of words, and must be there.
func TestGovernanceCommand(t *testing.T) {
	begin := "queue_name: q\nconsumer_group: g\nadapter: {type: mock}\ngovernance:\n  command: "
	for text, words := range map[string]int{"sh": 1, "[sh, -c, a b]": 3, "['/a b/c']": 1, "./policy --strict": 0, "'a\tb'": 0} {
		c, err := LoadTrigger(write(t, begin+text+"\n"))
		if words == 0 {
			if err == nil || !strings.Contains(err.Error(), "line 5: governance.command must be a list of words") {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil || len(c.Governance.Command) != words {
			t.Errorf("%s: %v %q", text, err, c.Governance.Command)
			continue
		}
		if err := c.CheckGovernance(); (err == nil) != (c.Governance.Command[0] == "sh") || err != nil && !strings.Contains(err.Error(), "line 5: governance.command: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// what validate prints has every key of a file.
func TestShownHasAllKeys(t *testing.T) {
	c, err := LoadTrigger(write(t, whole))
	if err != nil {
		t.Fatal(err)
	}
	shown := c.Shown()
	for key := range c.fields() {
		if _, ok := shown[key]; !ok {
			t.Errorf("no %s", key)
		}
	}
	if len(shown) != len(c.fields()) {
		t.Errorf("%d keys, not %d", len(shown), len(c.fields()))
	}
}

// infinity and what is not a number are not numbers of a file; a time fits into its type.
func TestNumbersAreFinite(t *testing.T) {
	keys := []string{"retry_backoff_base", "retry_backoff_multiplier", "idempotency_window", "metrics.export_interval", "governance.timeout"}
	for _, key := range keys {
		for _, value := range []string{".inf", "-.inf", "inf", "+Inf", ".nan", "NaN", "1e999", "1e300", "-1"} {
			if value == "1e300" && key == "retry_backoff_multiplier" {
				continue // each wait is a day then
			}
			line := key + ": " + value
			if section, name, ok := strings.Cut(key, "."); ok {
				line = section + ": {" + name + ": " + value + "}"
			}
			_, err := LoadTrigger(write(t, "queue_name: q\nconsumer_group: g\nadapter: {type: mock}\n"+line+"\n"))
			var e *Error
			if !errors.As(err, &e) || len(e.Problems) != 1 || e.Problems[0].Line != 4 || !strings.HasPrefix(e.Problems[0].What, key+" must be ") {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

// variables that are not set come first, since they may be why the rest is wrong.
func TestUnsetVariablesFirst(t *testing.T) {
	file := "queue_name: '${NO_SUCH_QUEUE}'\nconsumer_group: g\nname: 'a b'\nadapter: {type: mock, connection: {dir: '${NO_SUCH_DIR}'}}\n"
	_, err := LoadTrigger(write(t, file))
	if err == nil || !strings.Contains(err.Error(), "c.yaml: line 1: ${NO_SUCH_QUEUE} is not set; line 4: ${NO_SUCH_DIR} is not set; line 1: queue_name is required; line 3: name must be") {
		t.Error(err)
	}
	_, err = LoadPublish(write(t, "queue_name: '${NO_SUCH_QUEUE}'\nname: 'a b'\nadapter: {type: mock}\n"))
	if err == nil || !strings.Contains(err.Error(), "c.yaml: line 1: ${NO_SUCH_QUEUE} is not set; ") {
		t.Error(err)
	}
}

// A file of publishers holds one rule or a list of rules, each with a separate name.
func TestPublishRules(t *testing.T) {
	rule := "{name: %s, queue_name: q, adapter: {type: mock}}"
	for text, want := range map[string]string{
		"queue_publish:\n- " + fmt.Sprintf(rule, "a") + "\n- " + fmt.Sprintf(rule, "a") + "\n": "line 3: name a is given to two rules",
		"queue_publish: []\n":  "line 1: queue_publish is an empty list",
		"queue_publish: [a]\n": "line 1: queue_publish must be a list of mappings, there is a value",
		"queue_publish: a\n":   "line 1: queue_publish must be a mapping, it is a value",
	} {
		if _, err := LoadPublish(write(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
