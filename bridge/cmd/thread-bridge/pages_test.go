package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"thread/bridge/config"
	"thread/bridge/internal/brokertest"
	"thread/bridge/internal/mosquitto"
	"thread/bridge/internal/sqsserver"
)

// page runs the ten lines of docs/guides/NAME.md, with the address of a server of the
// test's own in place of the page's, and checks its files.
func page(t *testing.T, name, address, with string) {
	t.Helper()
	data, err := os.ReadFile("../../../docs/guides/" + name + ".md")
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
	script := regexp.MustCompile("(?s)```sh[^\n]*\n(.*?)```").FindStringSubmatch(text)
	out, err := shell(t, programs(t), script[1]+"wait")
	if err != nil || !strings.Contains(out, `"type":"order_placed"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestMQTTPage(t *testing.T) {
	page(t, "mqtt", "127.0.0.1:1883", mosquitto.New(t, "allow_anonymous true").Addr)
}

func TestKafkaPage(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "orders.dlq"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	page(t, "kafka", "127.0.0.1:9092", c.ListenAddrs()[0])
}

func TestJetStreamPage(t *testing.T) {
	program := "nats-server"
	if _, err := exec.LookPath(program); err != nil {
		program = "/usr/sbin/nats-server" // not in the path of an account
	}
	brokertest.Program(t, program)
	dir, port := t.TempDir(), strconv.Itoa(brokertest.FreePort(t))
	address := "127.0.0.1:" + port
	server := &brokertest.Server{Address: address, Command: func() *exec.Cmd {
		return exec.Command(program, "-a", "127.0.0.1", "-p", port, "-js", "-sd", dir)
	}}
	server.Ready = func() error { // the first line of the page
		nc, err := nats.Connect("nats://" + address)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err == nil {
			_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
		}
		return err
	}
	server.Start(t)
	page(t, "jetstream", "127.0.0.1:4222", address)
}

func TestSQSPage(t *testing.T) {
	server := sqsserver.New(t)
	server.Create("orders")
	t.Setenv("AWS_ACCESS_KEY_ID", sqsserver.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", sqsserver.SecretKey)
	page(t, "sqs", "{region: eu-central-1,", "{region: eu-central-1, endpoint: '"+server.URL+"',")
}
