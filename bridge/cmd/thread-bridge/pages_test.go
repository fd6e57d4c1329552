package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"thread/bridge/config"
	"thread/bridge/internal/mosquitto"
	"thread/bridge/internal/sqsserver"
)

// page runs the ten lines of docs/brokers/NAME.md, with the address of a server of the
// test's own in place of that of the page, and checks its files.
func page(t *testing.T, name, address, with string) {
	t.Helper()
	data, err := os.ReadFile("../../../docs/brokers/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), address, with)
	if text == string(data) {
		t.Fatalf("the page does not name %s", address)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(queue_publish.*?)```").FindAllStringSubmatch(text, -1) {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(m[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.LoadPublish(path); err != nil {
			t.Error(err)
		}
	}
	script := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(text)
	out, err := shell(t, programs(t), script[1]+"wait")
	if err != nil || !strings.Contains(out, `"type":"order_placed"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestMQTTPage(t *testing.T) {
	page(t, "mqtt", "127.0.0.1:1883", mosquitto.New(t, "allow_anonymous true").Addr)
}

func TestSQSPage(t *testing.T) {
	server := sqsserver.New(t)
	server.Create("orders")
	t.Setenv("AWS_ACCESS_KEY_ID", sqsserver.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", sqsserver.SecretKey)
	page(t, "sqs", "{region: eu-central-1,", "{region: eu-central-1, endpoint: '"+server.URL+"',")
}
