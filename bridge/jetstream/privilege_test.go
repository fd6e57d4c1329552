package jetstream

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"thread/bridge/adapter"
	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
)

// guarded starts a server with the users of docs/guides/jetstream.md and one who may do
// everything.
func guarded(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	brokertest.Program(t, "nats-server")
	data, err := os.ReadFile("../../docs/guides/jetstream.md")
	if err != nil {
		t.Fatal(err)
	}
	users := regexp.MustCompile("(?s)```conf\n(.*?)```").FindSubmatch(data)
	if users == nil {
		t.Fatal("the page has no users")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	text := strings.Replace(string(users[1]), "users = [", "users = [\n    { user: admin, password: secret }", 1)
	text = strings.NewReplacer("$ORDERS_PASSWORD", "secret", "$OUT_PASSWORD", "secret").Replace(text)
	conf := filepath.Join(t.TempDir(), "nats.conf")
	text = fmt.Sprintf("listen: %s\njetstream: { store_dir: %q }\n", address, t.TempDir()) + text
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &brokertest.Server{Address: address, Command: func() *exec.Cmd { return exec.Command("nats-server", "-c", conf) }}
	s.Start(t)
	nc, err := nats.Connect("nats://"+address, nats.UserInfo("admin", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	for name, subject := range map[string]string{"ORDERS": "orders", "EVENTS": "events", "OTHER": "other"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, Storage: jetstream.MemoryStorage}); err != nil {
			t.Fatal(err)
		}
	}
	return "nats://" + address, js
}

func asUser(url, user, queue string) *adapter.Settings {
	spec, _ := adapter.Find("jetstream")
	return &adapter.Settings{Name: user, Queue: queue, Group: "inbox", Keys: spec.Keys, MaxBatch: 100, Instance: "thread-x",
		Connection: map[string]string{"servers": url, "username": user, "password": "secret", "inbox_prefix": "_INBOX_" + user, "connect_timeout": "5"}}
}

// The users of the page may do what a trigger and a publisher do, and nothing else.
func TestLeastPrivilege(t *testing.T) {
	url, js := guarded(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, body := range []string{"a", "b", "c"} {
		if _, err := js.Publish(ctx, "orders", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := takes(ctx, url); err != nil {
		t.Error(err)
	}
	dead, err := js.Stream(ctx, "ORDERS_dlq")
	if err != nil || dead.CachedInfo().State.Msgs != 1 {
		t.Errorf("%+v %v", dead, err)
	}
	out := &sink{s: asUser(url, "out", "events")}
	defer out.Close()
	for i := range int64(2) {
		last, err := out.Connect(ctx)
		if err != nil || last != i {
			t.Fatal(last, err)
		}
		id := fmt.Sprintf("x:%d", i+1)
		if err := out.Publish(ctx, []trigger.Outgoing{{Event: i + 1, ID: id, Headers: map[string]string{trigger.HeaderMessageID: id}}}); err != nil {
			t.Fatal(err)
		}
	}
	// What is not theirs.
	short, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	other := &source{s: asUser(url, "orders", "OTHER")}
	other.s.Connection["connect_timeout"] = "1"
	if err := other.Connect(short, nil); err == nil {
		t.Error("it reads a stream of others")
	}
	nc, err := connect(asUser(url, "orders", "ORDERS"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	refused := make(chan error, 4)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	if _, err := nc.SubscribeSync("_INBOX.>"); err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("orders", nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), "permissions violation") && !strings.Contains(err.Error(), "Permissions Violation") {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Fatal("not refused")
		}
	}
}

// takes does what a trigger does with three messages.
func takes(ctx context.Context, url string) error {
	src := &source{s: asUser(url, "orders", "ORDERS")}
	defer src.Close()
	if err := src.Connect(ctx, nil); err != nil {
		return err
	}
	if _, err := src.ProbeDLQ(ctx); err != nil {
		return err
	}
	var ms []trigger.Message
	for len(ms) < 3 {
		more, err := src.Consume(ctx, 3-len(ms))
		if err != nil {
			return err
		}
		ms = append(ms, more...)
	}
	if err := src.Keep(ctx, ms); err != nil {
		return err
	}
	if _, err := src.Lag(ctx); err != nil {
		return err
	}
	if err := src.SendToDLQ(ctx, ms[0], trigger.Reason{Text: "why"}); err != nil {
		return err
	}
	if err := src.Ack(ctx, ms[:2]); err != nil {
		return err
	}
	if err := src.Nack(ctx, ms[2], true); err != nil {
		return err
	}
	again, err := src.Consume(ctx, 1)
	if err != nil || len(again) != 1 || !again[0].Redelivered {
		return fmt.Errorf("%v %w", again, err)
	}
	if err := src.Ack(ctx, again); err != nil {
		return err
	}
	_, err = src.ProbeDLQ(ctx)
	return err
}
