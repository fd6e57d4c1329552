package config

// Shown is the file as it may be printed, except for Redact: every key, those that the file
// leaves out with their defaults.
func (t *Trigger) Shown() map[string]any {
	return map[string]any{
		"name": t.Name, "queue_name": t.Queue, "consumer_group": t.Group, "settle": t.Settle, "consumer": t.Consumer, "handler": t.Handler,
		"concurrency": t.Concurrency, "order_by": t.OrderBy, "ack_policy": t.AckPolicy, "max_retries": t.MaxRetries, "retry_backoff_base": t.BackoffBase,
		"retry_backoff_multiplier": t.Multiplier, "delivery_limit": t.DeliveryLimit, "max_backlog": t.MaxBacklog, "max_batch": t.MaxBatch,
		"idempotency_window": t.Window, "enable_dedup": t.Dedup, "parser_type": t.Parser, "event_name_header": t.EventNameHeader, "focus": t.Focus,
		"content": t.Content, "map": t.Map, "dlq_name": t.DLQ,
		"governance": map[string]any{"filter": t.Governance.Filter, "command": list(t.Governance.Command), "timeout": t.Governance.Timeout, "fail_open": t.Governance.FailOpen},
		"tenant":     map[string]any{"trust_header": t.Tenant.Trust, "trusted_producers": list(t.Tenant.Producers), "signature_secret_envs": names(t.Tenant.SecretEnvs)},
		"ledger":     map[string]any{"enabled": t.Ledger, "keep": t.LedgerKeep},
		"metrics":    map[string]any{"enabled": t.MetricsEnabled, "export_interval": t.ExportInterval},
		"adapter":    map[string]any{"type": t.Adapter, "require_tls": t.RequireTLS, "connection": t.Connection},
	}
}

// names are the names of variables: printed as they are, though the key has the name of a
// secret.
type names []string

func list(words []string) []any {
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = w
	}
	return out
}
