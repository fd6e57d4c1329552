package redis

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// ownServer is a Redis with TLS that syncs every command, and with accounts.
func ownServer(t *testing.T, accounts map[string]string) (s *brokertest.Server, cert string) {
	t.Helper()
	brokertest.Program(t, "redis-server")
	dir := t.TempDir()
	cert, key := brokertest.Certificate(t)
	port := brokertest.FreePort(t)
	conf := fmt.Sprintf("bind 127.0.0.1\nport 0\ntls-port %d\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients no\ndir %s\n"+
		"appendonly yes\nappendfsync always\nsave \"\"\nuser default off\n", port, cert, key, cert, dir)
	for name, rights := range accounts {
		conf += fmt.Sprintf("user %s on >secret-%s %s\n", name, name, rights)
	}
	path := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s = &brokertest.Server{Address: fmt.Sprintf("127.0.0.1:%d", port), Command: func() *exec.Cmd { return exec.Command("redis-server", path) }}
	s.Ready = func() error {
		k := &client{s: secured("admin", "x", s.Address, cert)}
		defer k.close()
		_, err := k.do(t.Context(), "PING")
		return err
	}
	s.Start(t)
	return s, cert
}

func secured(name, stream, address, cert string) *adapter.Settings {
	s := (&box{stream: stream}).settings()
	s.RequireTLS = true
	s.Connection = map[string]string{"address": address, "username": name, "password": "secret-" + name, "ca_file": cert, "connect_timeout": "5s"}
	return s
}

// rights reads the accounts of docs/guides/redis.md: of the row of that name.
func rights(t *testing.T, row string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/guides/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\| ` + row + " \\| `([^`]*)` \\|$").FindSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no rights of %s", row)
	}
	return strings.ReplaceAll(string(m[1]), `\|`, "|")
}

// TLS, accounts with the rights of the page and no others, and a server that is killed
// under load.
func TestOwnServer(t *testing.T) {
	server, cert := ownServer(t, map[string]string{"admin": "~* &* +@all", "reader": rights(t, "a trigger"),
		"shared": rights(t, "a trigger in a shared group"), "writer": rights(t, "a publisher")})
	admin := &client{s: secured("admin", "orders", server.Address, cert)}
	defer admin.close()
	open := func(stream string) *brokertest.Broker {
		if _, err := admin.do(t.Context(), "XGROUP", "CREATE", stream, "g", "0", "MKSTREAM"); err != nil {
			t.Fatal(err)
		}
		b := &box{cmd: admin, stream: stream}
		br := b.broker()
		br.Settings = secured("reader", stream, server.Address, cert)
		return br
	}
	t.Run("refused", func(t *testing.T) {
		open("mine")
		for what, change := range map[string]func(*adapter.Settings){
			"a wrong password":        func(s *adapter.Settings) { s.Connection["password"] = "hunter2" },
			"a certificate of nobody": func(s *adapter.Settings) { delete(s.Connection, "ca_file") },
			"another name":            func(s *adapter.Settings) { s.Connection["server_name"] = "example.org" },
			"a stream of others":      func(s *adapter.Settings) {},
			"an account that only sends": func(s *adapter.Settings) {
				s.Connection["username"], s.Connection["password"] = "writer", "secret-writer"
			},
			"no TLS": func(s *adapter.Settings) { s.RequireTLS = false; delete(s.Connection, "ca_file") },
		} {
			s := secured("reader", "mine", server.Address, cert)
			change(s)
			src, err := newSource(s)
			if err == nil {
				err = src.Connect(t.Context(), trigger.NoState)
			}
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	t.Run("shared", func(t *testing.T) {
		b := open("shop.orders")
		b.Settings = secured("shared", "shop.orders", server.Address, cert)
		b.Settings.Connection["shared"], b.Settings.Connection["min_idle"] = "true", minIdle.String()
		r := brokertest.New(t, b, brokertest.Handled(trigger.PolicyRequeue))
		b.Send(t, `{"n":1}`, "x-message-id", "m-1")
		b.Send(t, `oops`, "x-message-id", "m-2")
		r.Handle(engine.Failed, engine.Succeeded)
		r.Drained()
	})
	t.Run("publisher", func(t *testing.T) {
		th, err := engine.Init(t.TempDir() + "/t")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := th.Push(t.Context(), event.Draft{Source: "s", Type: "a", Content: "{}"}); err != nil {
			t.Fatal(err)
		}
		k, err := newSink(secured("writer", "events", server.Address, cert))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		for range 2 {
			if _, err := k.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := k.Publish(t.Context(), []trigger.Outgoing{{Event: 1, ID: "x:1", Body: []byte("{}"), Headers: map[string]string{"x-message-id": "x:1"}}}); err != nil {
				t.Fatal(err)
			}
		}
		if h := k.Health(t.Context()); !h.OK {
			t.Error(h)
		}
	})
	t.Run("too large to bury", func(t *testing.T) {
		b := open("large")
		b.Settings = secured("admin", "large", server.Address, cert)
		size := 5 << 20
		b.Send(t, strings.Repeat("x", size), "x-message-id", "bad")
		// Since then the server takes less.
		if _, err := admin.do(t.Context(), "CONFIG", "SET", "proto-max-bulk-len", "1mb"); err != nil {
			t.Fatal(err)
		}
		r := brokertest.New(t, b, nil)
		b.Send(t, `{"n":1}`)
		r.Events(1)
		r.Drained()
		if body, h := b.Dead(t); len(body) != 64<<10 || h["x-dlq-body-bytes"] != fmt.Sprint(size) || h["x-message-id"] != "bad" {
			t.Errorf("%d bytes, %v", len(body), h)
		}
		if _, err := admin.do(t.Context(), "CONFIG", "SET", "proto-max-bulk-len", "512mb"); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("killed under load", func(t *testing.T) {
		b := open("orders")
		r := brokertest.New(t, b, nil)
		kills, err := strconv.Atoi(os.Getenv("THREAD_KILLS"))
		if err != nil {
			kills = 60
		}
		const each = 300
		n := 0
		for range max(kills/20, 1) {
			sent, some := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(sent)
				for i := range each {
					h := map[string]string{"x-message-id": fmt.Sprint("m-", n)}
					args := append([]any{"orders", "*"}, fieldsOf("body", fmt.Appendf(nil, `{"n":%d}`, n), h)...)
					for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) { // until the server is back
						if _, err := admin.do(t.Context(), "XADD", args...); err == nil {
							break
						} else if time.Now().After(end) {
							t.Error(err)
							return
						}
					}
					if n++; i == each/3 {
						close(some)
					}
				}
			}()
			<-some
			server.Kill()
			server.Start(t)
			<-sent
		}
		r.Events(n)
		r.Drained()
		if es := r.Events(n); len(es) != n || brokertest.Contains(es, fmt.Sprintf(`"n":%d}`, n-1)) != 1 {
			t.Errorf("%d messages, %d events", n, len(es))
		}
		if _, err := admin.do(t.Context(), "XADD", "orders", "*", "body", "oops"); err != nil {
			t.Fatal(err)
		}
		r.Until("the bad one", func() bool { return r.Health().Metrics.Consumed[trigger.StatusParseError] == 1 })
	})
}
