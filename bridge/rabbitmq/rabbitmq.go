// Package rabbitmq is the adapter for queues and streams of RabbitMQ, over AMQP 0-9-1.
package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

func init() {
	adapter.Register(adapter.Spec{
		Type: "rabbitmq", Summary: "a queue (classic or quorum) or a stream of RabbitMQ", Keys: append([]adapter.Key{
			{Name: "servers", Kind: adapter.List, Required: true, Help: "host:port, amqp://host:port/vhost or amqps://… of some nodes."},
			{Name: "vhost", Help: "The virtual host, by default the one in the address, or /."},
			{Name: "username", Help: "The user, by default the one in the address, or guest."},
			{Name: "password", Kind: adapter.Secret, Help: "The password."},
			{Name: "sasl_mechanism", Default: "PLAIN", OneOf: []string{"PLAIN", "EXTERNAL"}, Help: "EXTERNAL: the client's certificate is the user."},
			{Name: "connect_timeout", Kind: adapter.Duration, Default: "30s", Help: "How long to try to connect."},
			{Name: "heartbeat", Kind: adapter.Duration, Default: "10s", Help: "How often a silent connection is tried."},
			{Name: "create", OneOf: []string{"classic", "quorum", "stream"}, Help: "Make the queue, durable and of this type, when it is not there."},
			{Name: "prefetch", Kind: adapter.Number, Help: "How many messages may be out; by default concurrency, or max_batch with settle: stored and of a stream."},
			{Name: "start", Default: "first", OneOf: []string{"first", "next"}, Help: "Where a stream that was never read begins."},
			{Name: "dlq_exchange", Help: "The exchange that dead letters go to, by default the default one."},
			{Name: "exchange", Help: "Publishers: the exchange, by default the default one."},
			{Name: "routing_key", Help: "Publishers: the routing key of messages without a key, by default the queue's name."},
		}, adapter.TLSKeys...),
		Caps:    queueCaps,
		OutCaps: outCaps,
		Source:  func(s *adapter.Settings) (trigger.Source, error) { return newSource(s) },
		Sink:    func(s *adapter.Settings) (trigger.Sink, error) { return newSink(s) },
		Check:   check,
	})
}

var (
	queueCaps  = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "of a stream, or with message ids", Requeue: true, DLQ: true}
	streamCaps = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "whatever the downtime", Positions: true, Requeue: true, DLQ: true}
	outCaps    = trigger.Caps{Promise: trigger.AtLeastOnce, Condition: "with message ids"}
)

// maxPrefetch is what the protocol can say.
const maxPrefetch = 1<<16 - 1

func check(s *adapter.Settings) (faults []adapter.Fault) {
	bad := func(key, format string, args ...any) {
		faults = append(faults, adapter.Fault{Key: key, What: fmt.Sprintf(format, args...)})
	}
	for _, server := range s.List("servers") {
		scheme, _, ok := strings.Cut(server, "://")
		if ok && scheme == "amqp" && s.RequireTLS {
			bad("servers", "amqp:// is refused: require_tls is true")
		}
		if _, err := amqp.ParseURI(address(server, false)); err != nil {
			bad("servers", "%s", trigger.Redact(err.Error()))
		}
	}
	if s.RequireTLS && s.Connection["tls"] == "false" {
		bad("tls", "false is refused: require_tls is true")
	}
	if s.Text("username") == "" && s.Text("password") != "" {
		bad("username", "username and password belong together")
	}
	if s.Text("sasl_mechanism") == "EXTERNAL" && s.Text("cert_file") == "" {
		bad("sasl_mechanism", "EXTERNAL needs cert_file and key_file")
	}
	if n := s.Int("prefetch"); n > maxPrefetch {
		bad("prefetch", "prefetch must be at most %d, got %d", maxPrefetch, n)
	}
	return faults
}

// address returns the URI of a server that may be named by host and port alone.
func address(server string, secure bool) string {
	scheme, rest, ok := strings.Cut(server, "://")
	if !ok {
		scheme, rest = "amqp", server
	}
	if scheme == "amqp" && secure {
		scheme = "amqps"
	}
	return scheme + "://" + rest
}

// dial connects to the first of the servers that answers.
func dial(ctx context.Context, s *adapter.Settings, purpose string) (*amqp.Connection, error) {
	var errs []error
	for _, server := range s.List("servers") {
		conn, err := dialOne(ctx, s, server, purpose)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func dialOne(ctx context.Context, s *adapter.Settings, server, purpose string) (*amqp.Connection, error) {
	t, err := s.TLS()
	if err != nil {
		return nil, err
	}
	secure := t != nil
	uri, err := amqp.ParseURI(address(server, secure))
	if err != nil {
		return nil, err
	}
	if t == nil {
		t = &tls.Config{MinVersion: tls.VersionTLS12} // of amqps://
	}
	c := amqp.Config{Vhost: s.Text("vhost"), TLSClientConfig: t, Heartbeat: max(s.Duration("heartbeat"), time.Second)}
	c.Properties = amqp.NewConnectionProperties()
	c.Properties.SetClientConnectionName("thread-bridge " + s.Name + " " + purpose)
	switch user := s.Text("username"); {
	case s.Text("sasl_mechanism") == "EXTERNAL":
		c.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
	case user != "":
		c.SASL = []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: s.Text("password")}}
	}
	var unwatch func() bool
	timeout := max(s.Duration("connect_timeout"), 100*time.Millisecond)
	c.Dial = func(network, addr string) (net.Conn, error) {
		nc, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		unwatch = context.AfterFunc(ctx, func() { nc.Close() })
		return nc, nc.SetDeadline(time.Now().Add(timeout)) // until the handshake has ended
	}
	conn, err := amqp.DialConfig(address(server, secure), c)
	if unwatch != nil && !unwatch() && err == nil {
		conn.Close()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("RabbitMQ at %s:%d: %w", uri.Host, uri.Port, err)
	}
	return conn, nil
}

// hangUp closes a connection that may be lost, or that the server does not read.
func hangUp(conn *amqp.Connection) { _ = conn.CloseDeadline(time.Now().Add(2 * time.Second)) }

var errNotConnected = errors.New("not connected")

// code reports whether err is an exception of the server with that code.
func code(err error, n int) bool {
	var e *amqp.Error
	return errors.As(err, &e) && e.Code == n
}
