package jetstream

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
)

// shared is b for what every broker is tested for.
func (b *broker) shared(t *testing.T) *brokertest.Broker {
	return &brokertest.Broker{Adapter: "jetstream", Settings: b.settings("orders"), Send: b.send,
		Pending: func(t *testing.T, _ trigger.Source) int { return b.pending(t) }}
}

func (b *broker) publish(body, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := b.js.PublishMsg(ctx, &nats.Msg{Subject: b.stream + ".in", Data: []byte(body), Header: nats.Header{"X-Message-Id": {id}}})
	return err
}

// Proof 3: a second bridge reads the same durable consumer for a while.
func TestJoinAndLeave(t *testing.T) {
	b := newBroker(t)
	brokertest.JoinAndLeave(t, b.shared(t), brokertest.Rounds(20), b.publish)
}

// Proof 3: the server is killed under load, with all that it has on the disk.
func TestBrokerRestarts(t *testing.T) {
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
	server.Ready = func() error {
		nc, err := nats.Connect("nats://" + address)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err == nil {
			_, err = js.AccountInfo(t.Context())
		}
		return err
	}
	server.Start(t)
	nc, err := nats.Connect("nats://"+address, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b := &broker{stream: "LOAD"}
	if b.js, err = jetstream.New(nc); err == nil {
		_, err = b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.stream, Subjects: []string{b.stream + ".in"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	s := b.shared(t)
	s.Settings.Connection["servers"] = "nats://" + address
	s.Pending = func(t *testing.T, _ trigger.Source) int {
		c, err := b.js.Consumer(context.Background(), b.stream, "g")
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
			return -1
		}
		if err != nil {
			t.Fatal(err)
		}
		return int(c.CachedInfo().NumPending) + c.CachedInfo().NumAckPending
	}
	brokertest.Restarts(t, s, server, brokertest.Rounds(10), b.publish)
}
