package trigger

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// originalCases are the test cases of the project that the specification was taken
// from, by file and name, each with the test of ours for the same behaviour.
const originalCases = `
1 queue_trigger lifecycle_health: TestLifecycle
2 queue_trigger process_and_dedup: TestProcessAndDedup
3 queue_trigger parse_failure_routes_to_dlq: TestParseFailure
4 queue_trigger ack_policy_requeue_on_runtime_error: TestExhaustedByPolicy
5 queue_trigger retries_then_succeeds: TestRetriesThenSucceeds
6 queue_trigger retry_exhausted_routes_by_ack_policy: TestExhaustedByPolicy
7 queue_trigger retry_logs_each_retry: TestRetryLogs
8 queue_trigger init_rejects_invalid_config: TestNewRefusesConfig
9 queue_trigger consume_loop_recovers_after_process_exception: TestGoesOnAfterErrors
10 queue_trigger dedup_key_falls_back_to_message_id: TestStoredOnce
11 queue_trigger idempotency_exists_failure_degrades_to_processing: TestStoreFailure
12 queue_trigger idempotency_record_uses_config_ttl: TestWindow
13 queue_trigger backoff_formula: TestDelayFormula
14 queue_trigger governance_reject_routes_to_dlq_and_records_ledger: TestGovernanceRejects
15 queue_trigger governance_unavailable_fails_closed_by_default: TestGovernanceUnavailable
16 queue_trigger governance_unavailable_supports_fail_open_when_configured: TestGovernanceUnavailable
17 queue_trigger records_success_ledger_fields: TestProcessAndDedup
18 queue_trigger metrics_and_trace_logs: TestRetryLogs
19 queue_trigger multi_tenant_propagation: TestTenants
20 queue_trigger ignores_tenant_header_by_default: TestTenants
21 queue_trigger ignores_tenant_header_of_untrusted_producer: TestTenants
22 queue_trigger accepts_tenant_header_of_trusted_producer: TestTenants
23 queue_trigger requires_valid_tenant_signature_when_configured: TestTenants
24 queue_trigger accepts_signature_from_rotated_secret_envs: TestTenants
25 queue_trigger_properties lifecycle_transitions: TestPropertyLifecycle
26 queue_trigger_properties parse_failure_to_dlq: TestPropertyStored
27 queue_trigger_properties error_recovery_continues: TestPropertyStored
28 queue_trigger_properties dedup_counter: TestPropertyStored
29 queue_trigger_properties governance_rejection_respects_ack_policy: TestGovernanceRejects
30 queue_trigger_properties attempts: TestPropertyHandled
31 queue_trigger_properties context_and_routing: TestPropertyStored
32 queue_trigger_properties processing_error_respects_ack_policy: TestPropertyHandled
33 queue_trigger_properties ledger_success_completeness: TestPropertyStored
34 queue_trigger_properties tenant_isolation: TestPropertyStored
35 queue_kafka_adapter consume_and_ack_commits_next_offset: kafka.TestStored
36 queue_kafka_adapter nack_requeue_and_dlq: kafka.TestRequeue
37 queue_kafka_adapter health_and_close: kafka.TestHealthAndClose
38 queue_kafka_adapter missing_client_error_text: config.TestNotBuilt
39 queue_kafka_adapter connect_timeout: kafka.TestConnectTimeout
40 queue_kafka_adapter producer_timeout: kafka.TestConnectTimeout
41 queue_kafka_adapter message_id_from_position: kafka.TestStored
42 queue_kafka_adapter_properties message_fields_preserved: kafka.TestPropertyFieldsPreserved
43 queue_config reads_full_yaml: config.TestReadsWholeFile
44 queue_config defaults: config.TestDefaults
45 queue_config comma_separated_trusted_producers: config.TestReadsWholeFile
46 queue_config comma_separated_secret_envs: config.TestReadsWholeFile
47 queue_config rejects_bad_enum: config.TestAllErrorsAtOnce
48 queue_config rejects_non_integer: config.TestAllErrorsAtOnce
49 queue_config env_replacement: config.TestEnvironment
50 queue_config recursive_env_replacement: config.TestEnvironment
51 queue_config missing_file: config.TestNotAMapping
52 queue_config non_mapping_root: config.TestNotAMapping
53 queue_config non_mapping_section: config.TestNotAMapping
54 queue_config_properties valid_config_round_trips: config.TestPropertyConfigApplied
55 queue_idempotency ttl_expiry: TestWindow
56 queue_idempotency store_key_and_value: TestKeyRecord
57 queue_idempotency guarantee: TestPropertyStored
58 queue_idempotency window: TestPropertyWindow
59 queue_adapter_dependencies mock_allowed: config.TestDefaults
60 queue_adapter_dependencies unknown_rejected: config.TestUnknownAdapter
61 queue_adapter_dependencies kafka_missing: config.TestNotBuilt
62 queue_adapter_dependencies rabbitmq_missing: config.TestNotBuilt
63 queue_adapter_dependencies sqs_missing: config.TestNotBuilt
64 queue_adapter_dependencies passes_when_installed: main.TestInstalled
65 queue_log_security nested_keys_masked: TestRedact
66 queue_log_security config_hides_secrets: verb.TestValidateHidesSecrets
67 queue_log_security log_arguments_masked: TestLogRedacted
68 queue_log_security error_text_patterns: TestRedact
69 queue_log_security trigger_error_and_dlq_reason: TestExhaustedByPolicy
70 queue_log_security_properties credentials_redacted: TestPropertyRedact
71 queue_log_security_properties error_message_redacted: TestPropertyRedact
72 queue_mock_adapter ack_nack_dlq_close: TestMock
73 queue_models headers_extracted_and_zone_added: TestEnvelope
74 queue_models invalid_config_lists_all_errors: config.TestAllErrorsAtOnce
75 queue_parsers json_object: TestParsers
76 queue_parsers json_non_object_rejected: TestParsers
77 queue_parsers text_bad_utf8: TestParsers
78 queue_parsers binary_raw: TestParsers
79 queue_properties multi_format_parsing: TestPropertyParsers
80 queue_properties envelope_completeness: TestPropertyEnvelope
81 queue_trigger_e2e full_flow: verb.TestSendMock
82 queue_trigger_e2e idempotent_once: TestProcessAndDedup
83 queue_trigger_e2e retries_delays_then_dlq: TestRetriesDelaysThenDLQ
84 queue_trigger_e2e error_scenarios_keep_running: TestPropertyStored
85 queue_kafka_adapter_integration real_broker: kafka.TestForeignClient
86 bindings_queue_executor publish_with_mapped_headers: kafka.TestPublish
87 bindings_queue_executor shadow_mode_publishes_nothing: kafka.TestPublish
88 bindings_queue_executor config_errors: config.TestPublishErrors
89 bindings_queue_executor one_adapter_per_connection: TestConnectsOnce
`

// properties are the properties of the seed, each with its test of at least 100 cases.
const properties = `
1 adapters behave alike: TestPropertyStored
2 envelope completeness: TestPropertyEnvelope
3 formats: TestPropertyParsers
4 parse failure to the dead letter queue: TestPropertyStored
5 configuration applied: config.TestPropertyConfigApplied
6 lifecycle: TestPropertyLifecycle
7 recovery: TestPropertyStored
8 context: TestPropertyParsers
9 routing: TestPropertyStored
10 governance: TestPropertyStored
11 ack policy: TestPropertyInFlight
12 retries: TestPropertyDelays
13 exhausted: TestPropertyHandled
14 retry history: TestPropertyInFlight
15 idempotency: TestPropertyStored
16 window: TestPropertyWindow
17 dedup count: TestPropertyStored
18 ledger: TestPropertyStored
19 metrics: TestPropertyStored
20 tenants: TestPropertyStored
21 stages logged: TestPropertyStored
22 health: TestPropertyLifecycle
23 credentials: TestPropertyRedact
24 graceful stop: TestPropertyInFlight
`

// TestOriginalCases: every case and every property has a test that is there.
func TestOriginalCases(t *testing.T) {
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for dir, prefix := range map[string]string{".": "", "../../bridge/config": "config.", "../../bridge/kafka": "kafka.", "../../bridge/internal/verb": "verb.", "../../bridge/cmd/thread-bridge": "main."} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range function.FindAllSubmatch(text, -1) {
				there[prefix+string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		table string
		n     int
	}{"case": {originalCases, 89}, "property": {properties, 24}} {
		lines := strings.Split(strings.TrimSpace(c.table), "\n")
		if len(lines) != c.n {
			t.Errorf("%d lines for %d of kind %s", len(lines), c.n, what)
		}
		for _, line := range lines {
			_, test, _ := strings.Cut(line, ": ")
			if !there[test] {
				t.Errorf("%s %s: no such test", what, line)
			}
			if what == "property" && !strings.Contains(test, "Property") {
				t.Errorf("%s %s is no property test", what, line)
			}
		}
	}
}

// Q-10, case 56: what is stored of a key, and that it is of its trigger and tenant.
func TestKeyRecord(t *testing.T) {
	k := keyRecord{state: settled, event: 7, deliveries: 2, settledAt: 1, window: 3}
	got, err := decodeKey(k.encode())
	if err != nil || got != k {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := decodeKey([]byte("x")); err == nil {
		t.Error("a key record of one byte")
	}
	keys := []string{string(key(kindKey, "a", "b", "c")), string(key(kindKey, "ab", "", "c")), string(key(kindKey, "a", "bc", "")), string(key(kindKey, "a", "b", strings.Repeat("c", 5000)))}
	if slices.Sort(keys); len(slices.Compact(keys)) != 4 || len(keys[3]) > 2000 {
		t.Errorf("%q", keys)
	}
}

// the ledger cannot fail alone, and can be left out.
func TestLedgerBounds(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.LedgerKeep, c.MaxBatch = 3, 1 })
	r.start()
	for _, id := range strings.Split("abcdefgh", "") {
		r.send(id, `{}`)
	}
	r.acked(8)
	r.stop()
	if rows := r.ledger(); len(rows) != 3 || rows[0].MessageID != "h" {
		t.Errorf("%+v", rows)
	}
	r = newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.Ledger = false })
	r.start()
	r.send("a", `{}`)
	r.acked(1)
	r.stop()
	if rows := r.ledger(); len(rows) != 0 || len(r.events()) != 1 {
		t.Errorf("%+v", rows)
	}
}

//
func TestMetrics(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", nil)
	r.start()
	r.send("a", `{}`)
	r.acked(1)
	r.until("the end of the intake", func() bool { return r.tr.Health(t.Context()).ActiveWorkers == 0 })
	var out strings.Builder
	if _, err := r.tr.Metrics().WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	r.stop()
	for _, want := range []string{`queue_messages_consumed_total{queue="q",status="stored"} 1`, `queue_processing_duration_seconds_count{queue="q"} 1`,
		`queue_processing_duration_seconds_bucket{queue="q",le="+Inf"} 1`, `queue_active_workers{queue="q"} 0`, `queue_workers{queue="q"} 1`, `queue_model_calls_total{queue="q"} 0`, `queue_dedup_hits_total{queue="q"} 0`, `queue_retries_total{queue="q"} 0`} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

// 500 messages are through their handler within a minute.
func TestThroughput(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", handled)
	begun := time.Now()
	r.start()
	for i := range 500 {
		r.send(fmt.Sprint("m", i), `{}`)
	}
	r.until("the events", func() bool { return len(r.events()) == 500 })
	r.handle(succeeds)
	r.acked(500)
	r.stop()
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("500 messages in %s", d)
	}
}
