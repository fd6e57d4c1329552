package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"thread/bridge/config"
	"thread/bridge/internal/verb"
	"thread/bridge/trigger"
	"thread/internal/cli"
	"thread/internal/verb/core"
)

// TestMain makes this binary the programs that the page calls.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "thread":
		cli.Main("thread", core.Verbs)
	case "thread-bridge":
		cli.Main("thread-bridge", verb.Verbs)
	}
	os.Exit(m.Run())
}

// TestExample: the file of the compose example is valid, and the compose file is YAML
// that mounts it.
func TestExample(t *testing.T) {
	t.Setenv("NATS_SERVERS", "nats://nats:4222")
	dir := filepath.Join("..", "..", "..", "examples", "bridge")
	c, err := config.LoadTrigger(filepath.Join(dir, "orders.yaml"))
	if err != nil || c.Name != "orders" || c.Connection["servers"] != "nats://nats:4222" {
		t.Errorf("%+v %v", c, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Command []string
			Volumes []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	run := file.Services["bridge"]
	if !slices.Contains(run.Volumes, "./orders.yaml:/etc/thread/orders.yaml:ro") || !slices.Contains(run.Command, "/etc/thread/orders.yaml") {
		t.Errorf("%+v", run)
	}
	if _, err := os.Stat(filepath.Join(dir, "orders.yaml")); err != nil {
		t.Error(err)
	}
	alerts, err := os.ReadFile("../../../packaging/prometheus/trigger-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(alerts, &rules); err != nil || len(rules.Groups) != 1 || len(rules.Groups[0].Rules) < 5 {
		t.Fatalf("%+v %v", rules, err)
	}
	// Every metric that an alert is about is one that a trigger has.
	tr, err := trigger.New(nil, trigger.NewMock(), c.Config, trigger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if _, err := tr.Metrics().WriteTo(&said); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules.Groups[0].Rules {
		for _, name := range regexp.MustCompile(`queue_[a-z_]+`).FindAllString(r.Expr, -1) {
			if name != "queue_consumer_lag" && !strings.Contains(said.String(), name) { // the broker may not tell
				t.Errorf("%s is about %s, which there is not", r.Alert, name)
			}
		}
	}
}

// TestPage: the files in docs/reference/bridge.md are valid. TestPages of cmd/thread runs its
// commands.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/bridge.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KAFKA_PASSWORD", "x")
	for i, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(data, -1) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, m[1], 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(m[1]), "queue_publish") {
			_, err = config.LoadPublish(path)
		} else {
			_, err = config.LoadTrigger(path)
		}
		if err != nil {
			t.Errorf("block %d: %v", i, err)
		}
	}
}
