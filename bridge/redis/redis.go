// Package redis is the adapter for streams of Redis, from 6.2 on.
package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

func init() {
	adapter.Register(adapter.Spec{
		Type: "redis", Summary: "a stream of Redis, read by a consumer group", Keys: append([]adapter.Key{
			{Name: "address", Required: true, Help: "host:port, redis://host:port/db or rediss://…"},
			{Name: "username", Help: "The user, by default the one in the address, or none."},
			{Name: "password", Kind: adapter.Secret, Help: "The password."},
			{Name: "db", Kind: adapter.Number, Help: "The database, by default the one in the address, or 0."},
			{Name: "connect_timeout", Kind: adapter.Duration, Default: "30s", Help: "How long to try to connect."},
			{Name: "create", Kind: adapter.Bool, Help: "Make the stream when it is not there."},
			{Name: "start", Default: "all", OneOf: []string{"all", "new"}, Help: "Where a group that is new begins."},
			{Name: "shared", Kind: adapter.Bool, Help: "Others read in this group, too: entries are known by keys, not by positions."},
			{Name: "min_idle", Kind: adapter.Duration, Default: "60s", Help: "With shared: when an entry is taken over from a consumer that does not acknowledge it."},
			{Name: "body_field", Default: "body", Help: "The field that is the body; the others are headers."},
			{Name: "max_length", Kind: adapter.Number, Help: "Publishers: how long the stream may become, about; 0: no bound."},
		}, adapter.TLSKeys...),
		Caps:    ownCaps,
		OutCaps: outCaps,
		Source:  func(s *adapter.Settings) (trigger.Source, error) { return newSource(s) },
		Sink:    func(s *adapter.Settings) (trigger.Sink, error) { return newSink(s) },
		Check:   check,
	})
}

var (
	ownCaps    = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "whatever the downtime", Positions: true, Requeue: true, DLQ: true}
	sharedCaps = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "whatever the downtime", Requeue: true, DLQ: true}
	outCaps    = trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "into a separate stream"}
)

func check(s *adapter.Settings) (faults []adapter.Fault) {
	bad := func(key, what string) { faults = append(faults, adapter.Fault{Key: key, What: what}) }
	u, err := parse(s.Text("address"))
	switch {
	case err != nil:
		bad("address", trigger.Redact(err.Error()))
	case u.Scheme == "redis" && s.RequireTLS:
		bad("address", "redis:// is refused: require_tls is true")
	}
	if s.RequireTLS && s.Connection["tls"] == "false" {
		bad("tls", "false is refused: require_tls is true")
	}
	if s.Text("username") != "" && s.Text("password") == "" {
		bad("username", "username and password belong together")
	}
	if s.Bool("shared") && s.Duration("min_idle") < time.Second {
		bad("min_idle", "min_idle must be at least 1s")
	}
	if s.Text("body_field") == "" {
		bad("body_field", "body_field is empty")
	}
	return faults
}

// parse reads an address. Without a scheme it has none.
func parse(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		address = "//" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "" && u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, fmt.Errorf("scheme %s:// is neither redis:// nor rediss://", u.Scheme)
	}
	if u.Hostname() == "" {
		return nil, errors.New("no host")
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if _, err := strconv.ParseUint(db, 10, 31); err != nil {
			return nil, fmt.Errorf("database %q is not a number", db)
		}
	}
	return u, nil
}

func dial(ctx context.Context, s *adapter.Settings) (redis.Conn, error) {
	u, err := parse(s.Text("address"))
	if err != nil {
		return nil, err
	}
	t, err := s.TLS()
	if err != nil {
		return nil, err
	}
	if t == nil && u.Scheme == "rediss" {
		t = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	timeout := max(s.Duration("connect_timeout"), 100*time.Millisecond)
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	db := s.Int("db")
	if _, given := s.Connection["db"]; !given {
		db, _ = strconv.Atoi(strings.Trim(u.Path, "/")) // parse has tried it
	}
	user, password := s.Text("username"), s.Text("password")
	if user == "" && password == "" && u.User != nil {
		user = u.User.Username()
		password, _ = u.User.Password()
	}
	o := []redis.DialOption{redis.DialConnectTimeout(timeout), redis.DialTLSHandshakeTimeout(timeout), redis.DialWriteTimeout(answerWithin), redis.DialDatabase(db)}
	if password != "" {
		o = append(o, redis.DialUsername(user), redis.DialPassword(password))
	}
	if t != nil {
		if t.ServerName == "" {
			t.ServerName = u.Hostname()
		}
		o = append(o, redis.DialUseTLS(true), redis.DialTLSConfig(t))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := redis.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port), o...)
	if err != nil {
		return nil, fmt.Errorf("server %s:%s: %w", u.Hostname(), port, err)
	}
	return c, nil
}

var errNotConnected = errors.New("not connected")

// refused reports whether err is an answer of the server that begins with one of
// these words.
func refused(err error, words ...string) bool {
	var e redis.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, w := range words {
		if strings.HasPrefix(string(e), w) {
			return true
		}
	}
	return false
}
