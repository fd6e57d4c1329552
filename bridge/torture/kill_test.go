// Package torture kills the real program while it takes messages, and counts.
package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"thread/bridge/adapter"
	_ "thread/bridge/jetstream"
	_ "thread/bridge/kafka"

	"thread/bridge/internal/verb"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/cli"
	"thread/internal/fsck"
)

const asBridge = "THREAD_TORTURE_BRIDGE"

func TestMain(m *testing.M) {
	if os.Getenv(asBridge) != "" {
		cli.Main("thread-bridge", verb.Verbs)
	}
	os.Exit(m.Run())
}

// kills is how often the program is killed: a twentieth of what make torture-bridge
// does, unless THREAD_KILLS says otherwise.
func kills(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("THREAD_KILLS"))
	if err != nil {
		n = 10
	}
	return n
}

// queue is a broker: what stands in the file of the trigger, how a message is sent,
// and whether nothing is left there.
type queue struct {
	config string
	send   func(n int64) error
	empty  func() bool
}

func kafkaQueue(t *testing.T) *queue {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &queue{
		config: fmt.Sprintf("queue_name: orders\nconsumer_group: g\nadapter: {type: kafka, connection: {brokers: %q}}\n", strings.Join(c.ListenAddrs(), ",")),
		send: func(n int64) error {
			return cl.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Key: fmt.Appendf(nil, "k%d", n%17), Value: fmt.Appendf(nil, `{"n":%d}`, n)}).FirstErr()
		},
		empty: func() bool { return true }, // events are counted
	}
}

func natsQueue(t *testing.T) *queue {
	nc, err := nats.Connect("nats://127.0.0.1:4222")
	if err != nil {
		if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
			t.Fatalf("NATS must run: %v", err)
		}
		t.Skipf("NATS does not run: %v", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("K%d", time.Now().UnixNano())
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".in"}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = js.DeleteStream(context.Background(), name); nc.Close() })
	return &queue{
		config: fmt.Sprintf("queue_name: %s\nconsumer_group: g\nadapter: {type: jetstream, connection: {servers: \"nats://127.0.0.1:4222\", ack_wait: 1s}}\n", name),
		send: func(n int64) error {
			_, err := js.Publish(context.Background(), name+".in", fmt.Appendf(nil, `{"n":%d}`, n))
			return err
		},
		empty: func() bool {
			c, err := js.Consumer(context.Background(), name, "g")
			return err == nil && c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0
		},
	}
}

func mockQueue(t *testing.T) *queue {
	dir := filepath.Join(t.TempDir(), "queue")
	return &queue{
		config: fmt.Sprintf("queue_name: q\nconsumer_group: g\nadapter: {type: mock, connection: {dir: %q}}\n", dir),
		send: func(n int64) error {
			return adapter.Spool(dir, &trigger.Message{ID: fmt.Sprintf("m-%d", n), Body: fmt.Appendf(nil, `{"n":%d}`, n)}, nil)
		},
		empty: func() bool {
			left, err := filepath.Glob(filepath.Join(dir, "*.json"))
			return err == nil && len(left) == 0
		},
	}
}

// child is one run of the program.
type child struct {
	cmd     *exec.Cmd
	started chan struct{} // closed when it has connected
	log     bytes.Buffer
	ended   chan struct{}
}

func run(t *testing.T, dir, config string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], "trigger", "run", "--thread", dir, "--config", config), started: make(chan struct{}), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), asBridge+"=1")
	out, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		seen := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !strings.Contains(lines.Text(), "level=INFO msg=stored") && c.log.Len() < 1<<16 {
				fmt.Fprintln(&c.log, lines.Text())
			}
			if !seen && strings.Contains(lines.Text(), "msg=started") {
				seen = true
				close(c.started)
			}
		}
		_ = c.cmd.Wait() // it is killed
	}()
	return c
}

func (c *child) ready(t *testing.T) {
	t.Helper()
	select {
	case <-c.started:
	case <-c.ended:
		t.Fatalf("the program ended: %s", &c.log)
	case <-time.After(30 * time.Second):
		t.Fatal("the program does not start")
	}
}

func (c *child) end(sig syscall.Signal) {
	_ = c.cmd.Process.Signal(sig) // it may have ended
	<-c.ended
}

// Proof 1: killed at random, nothing is lost and nothing there twice.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	for name, open := range map[string]func(*testing.T) *queue{"kafka": kafkaQueue, "jetstream": natsQueue, "mock": mockQueue} {
		t.Run(name, func(t *testing.T) {
			q := open(t)
			dir := filepath.Join(t.TempDir(), "t")
			th, err := engine.Init(dir)
			if err != nil {
				t.Fatal(err)
			}
			config := filepath.Join(t.TempDir(), "c.yaml")
			if err := os.WriteFile(config, []byte("name: torture\nmax_batch: 50\n"+q.config), 0o600); err != nil {
				t.Fatal(err)
			}
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))

			var sent atomic.Int64
			stop, stopped := context.WithCancel(context.Background())
			produced := make(chan error, 1)
			go func() {
				for stop.Err() == nil {
					if err := q.send(sent.Load() + 1); err != nil {
						produced <- err
						return
					}
					if sent.Add(1)%20 == 0 {
						time.Sleep(5 * time.Millisecond) // some 3,000 in a second: the program keeps up
					}
				}
				produced <- nil
			}()
			n := kills(t)
			for range n {
				c := run(t, dir, config)
				c.ready(t)
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond) // when it is killed is left to chance
				c.end(syscall.SIGKILL)
			}
			stopped()
			if err := <-produced; err != nil {
				t.Fatal(err)
			}
			c := run(t, dir, config)
			c.ready(t)
			for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				info, err := th.Info(context.Background())
				if err == nil && info.EventCount >= sent.Load() && q.empty() {
					break
				}
				if time.Now().After(deadline) {
					t.Logf("%d of %d events, empty %t\n%s", info.EventCount, sent.Load(), q.empty(), &c.log)
					break
				}
			}
			c.end(syscall.SIGTERM)
			count(t, th, sent.Load(), n)
		})
	}
}

// count fails for what is lost or there twice.
func count(t *testing.T, th *engine.Thread, sent int64, kills int) {
	t.Helper()
	seen := map[int64]int{}
	for e, err := range th.Events(context.Background(), engine.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		var content struct{ Message struct{ N int64 } }
		if err := json.Unmarshal([]byte(e.Content), &content); err != nil {
			t.Fatal(err)
		}
		seen[content.Message.N]++
	}
	lost, doubled := 0, 0
	for n := int64(1); n <= sent; n++ {
		switch seen[n] {
		case 0:
			lost++
		case 1:
		default:
			doubled++
		}
	}
	rep, err := fsck.Check(context.Background(), th)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d messages, %d kills: lost %d, doubled %d, faults %d", sent, kills, lost, doubled, len(rep.Faults))
	if lost > 0 || doubled > 0 || len(rep.Faults) > 0 {
		t.Errorf("lost %d, doubled %d of %d; faults %v", lost, doubled, sent, rep.Faults)
	}
	if sent < int64(kills) {
		t.Errorf("only %d messages: this proves nothing", sent)
	}
}
