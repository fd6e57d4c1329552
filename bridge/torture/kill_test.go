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
	_ "thread/bridge/rabbitmq"
	_ "thread/bridge/redis"

	"thread/bridge/internal/verb"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/cli"
	"thread/internal/fsck"
	"thread/internal/verb/core"
)

const asBridge = "THREAD_TORTURE_BRIDGE"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "thread" { // of handlers
		cli.Main("thread", core.Verbs)
	}
	if os.Getenv(asBridge) != "" {
		cli.Main("thread-bridge", verb.Verbs)
	}
	if args := os.Getenv(asVictim); args != "" {
		if err := victim(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
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
	dead   []string // what to put in place of what in config, to read the dead letters
	send   func(n int64) error
	empty  func() bool
	// settled says whether the thread is through with the broker, too. May be nil.
	settled func(*engine.Thread) bool
}

// maxAhead bounds the messages that wait: what is killed all the time must come to an
// end in the time that the test has.
const maxAhead = 5000

func stored(th *engine.Thread) int64 {
	info, err := th.Info(context.Background())
	if err != nil {
		return 0
	}
	return info.EventCount
}

// over reports whether nothing is left to do about the queue.
func (q *queue) over(th *engine.Thread) bool {
	return (q.empty == nil || q.empty()) && (q.settled == nil || q.settled(th))
}

var queues = map[string]func(*testing.T) *queue{
	"kafka":           kafkaQueue,
	"jetstream":       natsQueue,
	"mock":            mockQueue,
	"mqtt":            mqttQueue,
	"rabbitmq":        rabbitQueue,
	"rabbitmq-stream": rabbitStream,
	"redis":           redisQueue,
	"redis-shared":    redisShared,
	"sqs":             sqsQueue,
}

func kafkaQueue(t *testing.T) *queue {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders"), kfake.SeedTopics(1, "orders.dlq"))
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
		dead:   []string{"queue_name: orders", "queue_name: orders.dlq"},
		config: fmt.Sprintf("queue_name: orders\nconsumer_group: g\nadapter: {type: kafka, connection: {brokers: %q}}\n", strings.Join(c.ListenAddrs(), ",")),
		send: func(n int64) error {
			return cl.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Key: fmt.Appendf(nil, "k%d", n%17), Value: fmt.Appendf(nil, `{"n":%d}`, n)}).FirstErr()
		},
		empty: func() bool { return true }, // events are counted
	}
}

// openJetStream connects to the NATS of this host, until the test ends.
func openJetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("nats://127.0.0.1:4222")
	if err != nil {
		if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
			t.Fatalf("NATS must run: %v", err)
		}
		t.Skipf("NATS does not run: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func natsQueue(t *testing.T) *queue {
	js := openJetStream(t)
	name := fmt.Sprintf("K%d", time.Now().UnixNano())
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".in"}, Storage: jetstream.MemoryStorage}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = js.DeleteStream(context.Background(), name)
		_ = js.DeleteStream(context.Background(), name+"_dlq") // there may be none
	})
	return &queue{
		dead:   []string{name, name + "_dlq"},
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
		dead:   []string{dir, filepath.Join(dir, "dlq")},
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

// run starts "trigger run" or "publish run".
func run(t *testing.T, dir, config, verb string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], verb, "run", "--thread", dir, "--config", config), started: make(chan struct{}), ended: make(chan struct{})}
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

// place makes a thread and the file of a trigger or publisher.
func place(t *testing.T, text string) (th *engine.Thread, config string) {
	t.Helper()
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
	if err != nil {
		t.Fatal(err)
	}
	config = filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return th, config
}

// killOften starts the program n times and kills it within that many milliseconds after
// it has connected.
func killOften(t *testing.T, n, within int, dir, config, verb string) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range n {
		c := run(t, dir, config, verb)
		c.ready(t)
		time.Sleep(time.Duration(r.IntN(within)) * time.Millisecond) // when it is killed is left to chance
		c.end(syscall.SIGKILL)
	}
}

// Proof 1: killed at random, nothing is lost and nothing there twice.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	for name, open := range queues {
		t.Run(name, func(t *testing.T) {
			q := open(t)
			th, config := place(t, "name: torture\nmax_batch: 50\n"+q.config)
			var sent atomic.Int64
			stop, stopped := context.WithCancel(context.Background())
			produced := make(chan error, 1)
			go func() {
				for stop.Err() == nil {
					if err := q.send(sent.Load() + 1); err != nil {
						produced <- err
						return
					}
					if sent.Add(1)%20 != 0 {
						continue
					}
					time.Sleep(5 * time.Millisecond) // some 3,000 in a second: the program keeps up
					for stop.Err() == nil && sent.Load()-stored(th) > maxAhead {
						time.Sleep(50 * time.Millisecond) // not on a host that is busy
					}
				}
				produced <- nil
			}()
			n := kills(t)
			killOften(t, n, 200, th.Dir(), config, "trigger")
			stopped()
			if err := <-produced; err != nil {
				t.Fatal(err)
			}
			c := run(t, th.Dir(), config, "trigger")
			c.ready(t)
			for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				info, err := th.Info(context.Background())
				if err == nil && info.EventCount >= sent.Load() && q.over(th) {
					break
				}
				if time.Now().After(deadline) {
					t.Logf("%d of %d events, empty %t\n%s", info.EventCount, sent.Load(), q.over(th), &c.log)
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
	balance(t, th, seen, sent, kills)
}

// balance fails for the numbers from 1 to sent that were not seen once, and for
// what is wrong with the thread.
func balance(t *testing.T, th *engine.Thread, seen map[int64]int, sent int64, kills int) {
	t.Helper()
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
