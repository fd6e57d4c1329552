// Package jetstream is the adapter for NATS JetStream.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

func init() {
	adapter.Register(adapter.Spec{
		Type: "jetstream", Summary: "a stream of NATS, read by a durable consumer", Keys: append([]adapter.Key{
			{Name: "servers", Kind: adapter.List, Required: true, Help: "nats://host:port of some servers."},
			{Name: "subject", Help: "Read only this subject of the stream; publishers: the subject, by default the queue's name."},
			{Name: "start", Default: "all", OneOf: []string{"all", "new"}, Help: "Where a consumer that is new begins."},
			{Name: "ack_wait", Kind: adapter.Duration, Default: "30s", Help: "When the server delivers again what was not acknowledged."},
			{Name: "max_ack_pending", Kind: adapter.Number, Default: "20000", Help: "How many messages may be unacknowledged."},
			{Name: "connect_timeout", Kind: adapter.Duration, Default: "30s", Help: "How long to try to connect."},
			{Name: "username", Help: "The user."},
			{Name: "password", Kind: adapter.Secret, Help: "The password."},
			{Name: "token", Kind: adapter.Secret, Help: "The token."},
			{Name: "credentials_file", Kind: adapter.File, Help: "A .creds file."},
			{Name: "nkey_file", Kind: adapter.File, Help: "A file with the seed of an nkey."},
			{Name: "inbox_prefix", Default: "_INBOX", Help: "What the subjects of answers begin with, so that the account may read no others."},
		}, adapter.TLSKeys...),
		Caps:    caps,
		OutCaps: outCaps,
		Source:  func(s *adapter.Settings) (trigger.Source, error) { return &source{s: s}, nil },
		Sink:    func(s *adapter.Settings) (trigger.Sink, error) { return &sink{s: s}, nil },
		Check:   check,
	})
}

// By keys, never by positions: a message that is lost on its way to us is redelivered
// after those behind it.
var (
	caps    = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "whatever the downtime", Requeue: true, DLQ: true}
	outCaps = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "while no other program publishes to the subject"}
)

func check(s *adapter.Settings) (faults []adapter.Fault) {
	if s.RequireTLS && s.Connection["tls"] == "false" {
		faults = append(faults, adapter.Fault{Key: "tls", What: "false is refused: require_tls is true"})
	}
	if prefix := s.Text("inbox_prefix"); strings.ContainsAny(prefix, "*> ") || strings.HasSuffix(prefix, ".") {
		faults = append(faults, adapter.Fault{Key: "inbox_prefix", What: "a subject without wildcards, such as _INBOX_orders"})
	}
	if (s.Text("username") == "") != (s.Text("password") == "") {
		faults = append(faults, adapter.Fault{Key: "username", What: "username and password belong together"})
	}
	return faults
}

func connect(s *adapter.Settings, more ...nats.Option) (*nats.Conn, error) {
	o := append([]nats.Option{nats.Name("thread-bridge " + s.Name), nats.Timeout(max(s.Duration("connect_timeout"), 100*time.Millisecond)), nats.MaxReconnects(-1)}, more...)
	if prefix := strings.TrimSuffix(s.Text("inbox_prefix"), "."); prefix+"." != nats.InboxPrefix {
		o = append(o, nats.CustomInboxPrefix(prefix))
	}
	t, err := s.TLS()
	if err != nil {
		return nil, err
	}
	if t != nil {
		o = append(o, nats.Secure(t))
	}
	if user := s.Text("username"); user != "" {
		o = append(o, nats.UserInfo(user, s.Text("password")))
	}
	if token := s.Text("token"); token != "" {
		o = append(o, nats.Token(token))
	}
	if path := s.Text("credentials_file"); path != "" {
		o = append(o, nats.UserCredentials(path))
	}
	if path := s.Text("nkey_file"); path != "" {
		n, err := nats.NkeyOptionFromSeed(path)
		if err != nil {
			return nil, err
		}
		o = append(o, n)
	}
	nc, err := nats.Connect(strings.Join(s.List("servers"), ","), o...)
	if err != nil {
		return nil, fmt.Errorf("NATS at %s: %w", trigger.Redact(strings.Join(s.List("servers"), ", ")), err)
	}
	if s.RequireTLS {
		if _, err := nc.TLSConnectionState(); err != nil {
			nc.Close()
			return nil, errors.New("the connection has no TLS: require_tls is true")
		}
	}
	return nc, nil
}

// streamOf finds a stream.
func streamOf(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("make it: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	return s, nil
}

func toHeader(h map[string]string) nats.Header {
	out := nats.Header{}
	for k, v := range h {
		// A header of NATS is a line.
		out[clean(k)] = []string{clean(v)}
	}
	return out
}

func clean(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) }

func fromHeader(h nats.Header) map[string]string {
	out := make(map[string]string, len(h))
	for k, v := range h {
		out[k] = strings.Join(v, ",")
	}
	return out
}
