package torture

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"thread/event"
)

// target is a broker that is published to: what stands in the file, and the bodies
// that readers of committed data see.
type target struct {
	config string
	read   func(atLeast int) []string
}

func kafkaTarget(t *testing.T) *target {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &target{
		config: fmt.Sprintf("queue_name: out\nadapter: {type: kafka, connection: {brokers: %q}}\n", c.ListenAddrs()[0]),
		read: func(atLeast int) (bodies []string) {
			cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			for len(bodies) < atLeast && ctx.Err() == nil {
				cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { bodies = append(bodies, string(r.Value)) })
			}
			// One more look, for what is there twice.
			more, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			cl.PollFetches(more).EachRecord(func(r *kgo.Record) { bodies = append(bodies, string(r.Value)) })
			return bodies
		},
	}
}

func natsTarget(t *testing.T) *target {
	js := openJetStream(t)
	name := fmt.Sprintf("O%d", time.Now().UnixNano())
	// Its own window is 100 ms: what keeps messages from being there twice is ours.
	stream, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".out"}, Storage: jetstream.MemoryStorage, Duplicates: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = js.DeleteStream(context.Background(), name) })
	return &target{
		config: fmt.Sprintf("queue_name: %s.out\nadapter: {type: jetstream, connection: {servers: \"nats://127.0.0.1:4222\"}}\n", name),
		read: func(int) (bodies []string) {
			info, err := stream.Info(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for n := uint64(1); n <= info.State.LastSeq; n++ {
				m, err := stream.GetMsg(context.Background(), n)
				if err != nil {
					t.Fatal(err)
				}
				bodies = append(bodies, string(m.Data))
			}
			return bodies
		},
	}
}

// Proof 11: a publisher is killed at random while events come, 50 times with
// THREAD_KILLS=200; readers of committed data see each event once, in order.
func TestKillPublisher(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	for name, open := range map[string]func(*testing.T) *target{"kafka": kafkaTarget, "jetstream": natsTarget, "redis": redisTarget} {
		t.Run(name, func(t *testing.T) {
			to := open(t)
			th, config := place(t, "name: out\nmax_batch: 20\n"+to.config)
			var pushed atomic.Int64
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() {
				for ctx.Err() == nil {
					if _, err := th.Push(context.Background(), event.Draft{Source: "s", Type: "t", Content: fmt.Sprint(pushed.Load() + 1)}); err != nil {
						ended <- err
						return
					}
					pushed.Add(1)
					time.Sleep(2 * time.Millisecond) // the publisher keeps up
				}
				ended <- nil
			}()
			n := max(2, kills(t)/4)
			killOften(t, n, 150, th.Dir(), config, "publish")
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			c := run(t, th.Dir(), config, "publish")
			c.ready(t)
			for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				if left, _, err := th.Backlog(context.Background(), "out"); err == nil && left == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("it is not published:\n%s", &c.log)
				}
			}
			c.end(syscall.SIGTERM)
			bodies := to.read(int(pushed.Load()))
			seen, last := map[int64]int{}, int64(0)
			for _, body := range bodies {
				at, err := strconv.ParseInt(body, 10, 64)
				if err != nil || at < last {
					t.Fatalf("%q behind %d, %v", body, last, err)
				}
				last = at
				seen[at]++
			}
			balance(t, th, seen, pushed.Load(), n)
			if len(seen) != int(pushed.Load()) {
				t.Errorf("%d different ones of %d", len(seen), pushed.Load())
			}
		})
	}
}
