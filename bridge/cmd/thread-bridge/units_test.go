package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thread/bridge/adapter"
	"thread/bridge/internal/verb"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/cli"
)

// each adapter says what it promises, and does not connect before it is asked.
func TestSpecs(t *testing.T) {
	for _, s := range adapter.All() {
		if s.Source == nil {
			continue // not built yet
		}
		if s.Summary == "" || s.Caps.Promise == "" {
			t.Errorf("%s: %+v", s.Type, s)
		}
		conn := map[string]string{}
		for _, k := range s.Keys {
			if k.Help == "" {
				t.Errorf("%s.%s has no help", s.Type, k.Name)
			}
			if k.Required {
				conn[k.Name] = "127.0.0.1:1"
			}
		}
		src, err := s.Source(&adapter.Settings{Name: "x", Queue: "q", Group: "g", Concurrency: 1, MaxBatch: 1, Keys: s.Keys, Connection: conn})
		if err != nil {
			t.Errorf("%s: %v", s.Type, err)
			continue
		}
		if h := src.Health(t.Context()); h.OK {
			t.Errorf("%s is healthy before Connect", s.Type)
		}
		if err := src.Close(); err != nil {
			t.Errorf("%s: %v", s.Type, err)
		}
		if _, ok := src.(trigger.Keeper); !ok && src.Capabilities().KeepEvery > 0 {
			t.Errorf("%s wants to be kept and cannot be", s.Type)
		}
	}
}

// call runs one command line and returns its exit code and what it says.
func call(args ...string) (code int, said string) {
	var out bytes.Buffer
	code = cli.NewProgram("thread-bridge", verb.Verbs).Run(args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

// a broker that is away at the start ends each verb that connects with one line,
// which names the queue and the server, no password, and what this verb can do about it.
func TestAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	for kind, connection := range map[string]string{
		"jetstream": "servers: 'nats://user:hunter2@127.0.0.1:1'", "kafka": "brokers: '127.0.0.1:1', sasl_username: u, sasl_password: hunter2",
		"mqtt": "server: '127.0.0.1:1', username: u, password: hunter2", "rabbitmq": "servers: 'amqp://user:hunter2@127.0.0.1:2, 127.0.0.1:1'",
		"redis": "address: 'redis://user:hunter2@127.0.0.1:1'", "sqs": "region: r, endpoint: 'http://127.0.0.1:1', access_key_id: u, secret_access_key: hunter2",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "with a space.yaml")
			text := "name: " + kind + "\nqueue_name: nobody\nconsumer_group: g\nadapter: {type: " + kind + ", connection: {" + connection + ", connect_timeout: 1s}}\n"
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"run", "--thread", dir}, {"run", "--dry-run", "--thread", dir}, {"validate", "--connect"}, {"send", "--thread", dir, "--body", "{}"}} {
				code, said := call(append([]string{"trigger", args[0], "--config", path}, args[1:]...)...)
				line := said[strings.Index(said, "Error: "):] // run logs, too
				if code != 1 || !strings.HasPrefix(line, "Error: cannot connect to queue nobody: ") || !strings.Contains(line, "127.0.0.1:1") || strings.Count(line, "\n") != 1 ||
					strings.Contains(said, "hunter2") || strings.Contains(line, "--wait-connect") != (len(args) == 3 && args[0] == "run") {
					t.Errorf("%v: %d %s", args, code, said)
				}
			}
		})
	}
}

// Q-05, case 64: what is in this build passes, as a source, without being connected to.
func TestInstalled(t *testing.T) {
	for _, known := range adapter.Known {
		s, err := adapter.Find(known.Type)
		if err != nil {
			t.Errorf("%s: %v", known.Type, err) // without tags all are built in
			continue
		}
		conn := ""
		for _, k := range s.Keys {
			if k.Required {
				conn += k.Name + ": '127.0.0.1:1', "
			}
		}
		path := filepath.Join(t.TempDir(), "c.yaml")
		text := "queue_name: q\nconsumer_group: g\nadapter: {type: " + known.Type + ", connection: {" + conn + "}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := call("trigger", "validate", "--config", path); code != 0 || !strings.Contains(out, "is valid: "+known.Type+" q, ") {
			t.Errorf("%s: %d %s", known.Type, code, out)
		}
		if code, out := call("trigger", "adapters"); code != 0 || !strings.Contains("\n"+out, "\n"+known.Type+" ") {
			t.Errorf("%s is not listed: %s", known.Type, out)
		}
	}
}
