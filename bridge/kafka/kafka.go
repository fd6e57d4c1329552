// Package kafka is the adapter for Apache Kafka and what speaks its protocol.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

func init() {
	adapter.Register(adapter.Spec{
		Type: "kafka", Summary: "a topic, read by a consumer group", Keys: append([]adapter.Key{
			{Name: "brokers", Kind: adapter.List, Required: true, Help: "host:port of some brokers."},
			{Name: "start", Default: "earliest", OneOf: []string{"earliest", "latest"}, Help: "Where a group without offsets begins."},
			{Name: "id_from", Default: "position", OneOf: []string{"position", "key"}, Help: "What names a message without x-message-id."},
			{Name: "instance_id", Help: "The static member id; by default one for this thread and trigger."},
			{Name: "connect_timeout", Kind: adapter.Duration, Default: "30s", Help: "How long to try to connect."},
			{Name: "security_protocol", OneOf: []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, Help: "As other clients call it."},
			{Name: "sasl_mechanism", OneOf: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}, Help: "By default PLAIN when there is a user."},
			{Name: "sasl_username", Help: "The user."},
			{Name: "sasl_password", Kind: adapter.Secret, Help: "The password."},
		}, adapter.TLSKeys...),
		Caps:    caps,
		OutCaps: trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "for readers of committed data"},
		Source:  func(s *adapter.Settings) (trigger.Source, error) { return newSource(s) },
		Sink:    func(s *adapter.Settings) (trigger.Sink, error) { return newSink(s) },
		Check:   check,
	})
}

var caps = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "whatever the downtime", Positions: true, Requeue: true, DLQ: true}

func check(s *adapter.Settings) (faults []adapter.Fault) {
	if p := s.Text("security_protocol"); s.RequireTLS && (p == "PLAINTEXT" || p == "SASL_PLAINTEXT") {
		faults = append(faults, adapter.Fault{Key: "security_protocol", What: p + " is refused: require_tls is true"})
	}
	if v, ok := s.Connection["tls"]; ok && v == "false" && s.RequireTLS {
		faults = append(faults, adapter.Fault{Key: "tls", What: "false is refused: require_tls is true"})
	}
	if (s.Text("sasl_username") == "") != (s.Text("sasl_password") == "") {
		faults = append(faults, adapter.Fault{Key: "sasl_username", What: "sasl_username and sasl_password belong together"})
	}
	return faults
}

// options are what consumers and producers share.
func options(s *adapter.Settings) ([]kgo.Opt, error) {
	o := []kgo.Opt{kgo.SeedBrokers(s.List("brokers")...), kgo.ClientID("thread-bridge"), kgo.WithLogger(kgo.BasicLogger(discard{}, kgo.LogLevelNone, nil))}
	timeout := s.Duration("connect_timeout")
	o = append(o, kgo.DialTimeout(max(timeout, 100*time.Millisecond)), kgo.RequestTimeoutOverhead(min(max(timeout, time.Second), 10*time.Second)))
	if p := s.Text("security_protocol"); p == "SSL" || p == "SASL_SSL" {
		c := *s
		c.RequireTLS = true
		s = &c
	}
	t, err := s.TLS()
	if err != nil {
		return nil, err
	}
	if t != nil {
		o = append(o, kgo.DialTLSConfig(t))
	}
	if user := s.Text("sasl_username"); user != "" {
		pass := s.Text("sasl_password")
		switch s.Text("sasl_mechanism") {
		case "SCRAM-SHA-256":
			o = append(o, kgo.SASL(scram.Auth{User: user, Pass: pass}.AsSha256Mechanism()))
		case "SCRAM-SHA-512":
			o = append(o, kgo.SASL(scram.Auth{User: user, Pass: pass}.AsSha512Mechanism()))
		default:
			o = append(o, kgo.SASL(plain.Auth{User: user, Pass: pass}.AsMechanism()))
		}
	}
	return o, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// reach waits for an answer of a broker.
func reach(ctx context.Context, cl *kgo.Client, s *adapter.Settings, what string) error {
	timeout := s.Duration("connect_timeout")
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := cl.Ping(ctx)
		if err == nil {
			return nil
		}
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s failed to start within %s: %w", what, timeout, err)
			}
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func headersOf(r *kgo.Record) map[string]string {
	h := make(map[string]string, len(r.Headers))
	for _, x := range r.Headers {
		h[x.Key] = string(x.Value)
	}
	return h
}

func toHeaders(h map[string]string) (list []kgo.RecordHeader) {
	for _, k := range adapter.Sorted(h) {
		list = append(list, kgo.RecordHeader{Key: k, Value: []byte(h[k])})
	}
	return list
}

func logger(s *adapter.Settings) *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}
