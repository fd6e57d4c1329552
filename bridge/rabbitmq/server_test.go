package rabbitmq

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
)

// serverProgram does not change the user, as that in the path does.
const serverProgram = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// ownServer is a RabbitMQ with TLS, and with the accounts that docs/guides/rabbitmq.md
// describes: their rights are the three patterns, to configure, write and read.
func ownServer(t *testing.T, accounts map[string][3]string) (s *brokertest.Server, tlsAddress, cert string) {
	t.Helper()
	brokertest.Program(t, serverProgram)
	dir := t.TempDir()
	cert, key := brokertest.Certificate(t)
	port, tlsPort, dist := brokertest.FreePort(t), brokertest.FreePort(t), brokertest.FreePort(t)
	type object = map[string]any
	users, permissions := []object{}, []object{}
	for name, rights := range accounts {
		sum := sha256.Sum256([]byte("salt" + "secret-" + name))
		tags := ""
		users = append(users, object{"name": name, "password_hash": base64.StdEncoding.EncodeToString(append([]byte("salt"), sum[:]...)),
			"hashing_algorithm": "rabbit_password_hashing_sha256", "tags": tags})
		permissions = append(permissions, object{"user": name, "vhost": "shop", "configure": rights[0], "write": rights[1], "read": rights[2]})
	}
	definitions, err := json.Marshal(object{"users": users, "permissions": permissions, "vhosts": []object{{"name": "shop"}}, "rabbit_version": "3.10.0",
		"queues": []object{}, "exchanges": []object{}, "bindings": []object{}, "policies": []object{}, "parameters": []object{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"definitions.json": string(definitions),
		"enabled_plugins":  "[].\n",
		"rabbitmq.conf": fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d\nlisteners.ssl.1 = 127.0.0.1:%d\nssl_options.cacertfile = %s\nssl_options.certfile = %s\n"+
			"ssl_options.keyfile = %s\nssl_options.verify = verify_none\nmax_message_size = 1000000\nload_definitions = %s\n", port, tlsPort, cert, cert, key, filepath.Join(dir, "definitions.json")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = &brokertest.Server{Address: fmt.Sprintf("127.0.0.1:%d", tlsPort)}
	s.Command = func() *exec.Cmd {
		c := exec.Command(serverProgram)
		c.Dir = dir
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "RABBITMQ_") {
				c.Env = append(c.Env, v)
			}
		}
		c.Env = append(c.Env, "HOME="+dir, fmt.Sprintf("RABBITMQ_NODENAME=thread%d@localhost", port), "RABBITMQ_DIST_PORT="+strconv.Itoa(dist),
			"RABBITMQ_MNESIA_BASE="+dir, "RABBITMQ_LOG_BASE="+dir, "RABBITMQ_CONFIG_FILE="+filepath.Join(dir, "rabbitmq.conf"),
			"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(dir, "enabled_plugins"), "RABBITMQ_CONF_ENV_FILE=/dev/null")
		return c
	}
	s.Ready = func() error {
		c, err := amqp.Dial(fmt.Sprintf("amqp://%s:secret-%s@127.0.0.1:%d/shop", "admin", "admin", port))
		if err != nil {
			return err
		}
		return c.Close()
	}
	s.Start(t)
	return s, s.Address, cert
}

func secured(name, queue, address, cert string) *adapter.Settings {
	s := (&rabbit{queue: queue}).settings()
	s.RequireTLS = true
	s.Connection = map[string]string{"servers": address, "vhost": "shop", "username": name, "password": "secret-" + name, "ca_file": cert, "connect_timeout": "5s"}
	return s
}

// TLS, accounts with the rights of docs/guides/rabbitmq.md and no others, and a server that is
// killed under load. A start of the server takes it some 4 s of CPU: the other tests of
// RabbitMQ that wait for something run next to that.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	accounts := map[string][3]string{
		"plain":  {`^$`, `^amq\.default$`, `^orders$`},
		"reader": {`^orders\.dlq$`, `^(amq\.default|orders\.dlq)$`, `^orders$`},
		"stream": {`^thread-bridge\.`, `^(amq\.default|log|thread-bridge\..*)$`, `^(log|thread-bridge\..*)$`},
		"writer": {`^$`, `^amq\.default$`, `^$`},
	}
	page, err := os.ReadFile("../../docs/guides/rabbitmq.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, rights := range accounts {
		if row := "| `" + strings.Join(rights[:], "` | `") + "` |"; !strings.Contains(strings.ReplaceAll(string(page), `\|`, "|"), row) {
			t.Errorf("the page does not have the rights of %s: %s", name, row)
		}
	}
	accounts["admin"] = [3]string{".*", ".*", ".*"}
	server, address, cert := ownServer(t, accounts)
	admin := &publisher{s: secured("admin", "orders", address, cert), purpose: "admin"}
	if err := admin.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer admin.close()
	for queue, kind := range map[string]string{"orders": "quorum", "log": "stream", "log.dlq": "classic"} {
		if _, err := admin.ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			t.Fatal(err)
		}
	}
	broker := func(name, queue string) *brokertest.Broker {
		b := &rabbit{queue: queue}
		out, err := newSink(secured("writer", queue, address, cert))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = out.Close() })
		br := b.broker(secured(name, queue, address, cert))
		br.Send = func(t *testing.T, body string, headers ...string) {
			h := map[string]string{}
			for i := 0; i < len(headers); i += 2 {
				h[headers[i]] = headers[i+1]
			}
			for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) { // until the server is back
				_, err := out.Send(t.Context(), trigger.Message{ID: h["x-message-id"], Body: []byte(body), Headers: h})
				if err == nil {
					return
				}
				if time.Now().After(end) {
					t.Error(err)
					return
				}
			}
		}
		return br
	}
	t.Run("refused", func(t *testing.T) {
		for what, change := range map[string]func(*adapter.Settings){
			"a wrong password":        func(s *adapter.Settings) { s.Connection["password"] = "hunter2" },
			"another virtual host":    func(s *adapter.Settings) { s.Connection["vhost"] = "/" },
			"a certificate of nobody": func(s *adapter.Settings) { delete(s.Connection, "ca_file") },
			"another name":            func(s *adapter.Settings) { s.Connection["server_name"] = "example.org" },
			"a queue of others":       func(s *adapter.Settings) { s.Queue = "log" },
			"an account that only sends": func(s *adapter.Settings) {
				s.Connection["username"], s.Connection["password"] = "writer", "secret-writer"
			},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel() // the server answers each wrong password after a second
				s := secured("reader", "orders", address, cert)
				change(s)
				src, err := newSource(s)
				if err == nil {
					err = src.Connect(t.Context(), trigger.NoState)
				}
				if err == nil || strings.Contains(err.Error(), "hunter2") {
					t.Error(err)
				}
			})
		}
	})
	t.Run("stream", func(t *testing.T) {
		b := broker("stream", "log")
		b.Send(t, `{"n":1}`)
		b.Send(t, `oops`)
		r := brokertest.New(t, b, nil)
		r.Events(1)
		r.Until("the bad one", func() bool { return r.Health().Metrics.Consumed[trigger.StatusParseError] == 1 })
	})
	t.Run("too large to bury", func(t *testing.T) {
		src, err := newSource(secured("reader", "orders", address, cert))
		if err != nil {
			t.Fatal(err)
		}
		defer src.out.close()
		for _, size := range []int{1_000_001, 64 << 10} { // the first one has ended the connection
			err := src.SendToDLQ(t.Context(), trigger.Message{ID: "m", Body: make([]byte, size)}, trigger.Reason{})
			if errors.Is(err, trigger.ErrTooLarge) != (size > 1_000_000) || size < 1_000_000 && err != nil {
				t.Errorf("%d: %v", size, err)
			}
		}
	})
	t.Run("killed under load", func(t *testing.T) {
		b := broker("reader", "orders")
		r := brokertest.New(t, b, nil)
		kills, err := strconv.Atoi(os.Getenv("THREAD_KILLS"))
		if err != nil {
			kills = 20
		}
		const each = 300
		n := 0
		for range max(kills/20, 1) {
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for range each {
					b.Send(t, fmt.Sprintf(`{"n":%d}`, n), "x-message-id", fmt.Sprint("m-", n))
					n++
				}
			}()
			r.Until("some events", func() bool { return r.Health().Processed > 0 })
			server.Kill()
			server.Start(t)
			<-sent
		}
		es := r.Events(n)
		seen := map[string]int{}
		for i := range es {
			seen[es[i].Content[:strings.IndexByte(es[i].Content, '}')]]++
		}
		if len(es) != n || len(seen) != n {
			t.Errorf("%d messages, %d events, %d different ones", n, len(es), len(seen))
		}
		b.Send(t, `oops`, "x-message-id", "bad")
		r.Until("the bad one", func() bool { return r.Health().Metrics.Consumed[trigger.StatusParseError] == 1 })
		// Once the dead letter queue is there, less will do.
		r.Stop()
		b.Settings = secured("plain", "orders", address, cert)
		r.Start()
		b.Send(t, `oops`, "x-message-id", "bad-2")
		r.Until("the other bad one", func() bool { return r.Health().Metrics.Consumed[trigger.StatusParseError] == 1 })
	})
}
