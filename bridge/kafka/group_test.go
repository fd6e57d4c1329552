package kafka

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"thread/engine"
)

// rounds is how often something is done: of twenty with THREAD_KILLS=200, as make
// torture-bridge has it, two without.
func rounds(of20 int) int {
	n, err := strconv.Atoi(os.Getenv("THREAD_KILLS"))
	if err != nil {
		n = 20
	}
	return max(1, of20*n/200)
}

// load produces messages of 17 keys until it is ended; then it returns how many.
func load(t *testing.T, cl *kgo.Client) func() int64 {
	t.Helper()
	var sent atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			n := sent.Load()
			if err := cl.ProduceSync(context.Background(), record(fmt.Sprintf("k%d", n%17), fmt.Sprintf(`{"n":%d}`, n))).FirstErr(); err != nil {
				ended <- err
				return
			}
			sent.Add(1)
			time.Sleep(time.Millisecond) // some hundred in a second
		}
		ended <- nil
	}()
	return func() int64 {
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		return sent.Load()
	}
}

var numbered = regexp.MustCompile(`"n":(\d+)`)

// tally counts the messages of a thread by their numbers, and fails when the
// positions of a partition are not in order or one is there twice.
func tally(t *testing.T, th *engine.Thread, into map[string]int) {
	t.Helper()
	last := map[string]int64{}
	for e, err := range th.Events(context.Background(), engine.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(e.Content, `"message_id":"orders:`)
		partition, rest, _ := strings.Cut(rest, ":")
		offset, _, _ := strings.Cut(rest, `"`)
		n, err := strconv.ParseInt(offset, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", e.Content, err)
		}
		if before, ok := last[partition]; ok && n <= before {
			t.Errorf("partition %s: offset %d comes after %d", partition, n, before)
		}
		last[partition] = n
		into[numbered.FindString(e.Content)]++
	}
}

func stop(t *testing.T, r *run) {
	t.Helper()
	if err := r.Tr.Stop(); err != nil {
		t.Fatal(err)
	}
}

// count is how many events a thread has.
func count(t *testing.T, th *engine.Thread) int64 {
	t.Helper()
	info, err := th.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return info.EventCount
}

// await waits until ok says so.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Proof 3: a second bridge with a separate thread joins the group under load, and
// leaves it. Nothing is lost, and the order of a partition is kept.
func TestJoinAndLeave(t *testing.T) {
	c := broker(t, kfake.SeedTopics(4, "orders"))
	s := settings(c)
	a := start(t, s, nil)
	second := *s
	second.Name = "second"
	b := start(t, &second, nil)
	stop(t, b)
	end := load(t, client(t, c))
	n := rounds(20)
	for range n {
		b.again(&second, nil)
		hadA, hadB := count(t, a.Thread), count(t, b.Thread)
		await(t, "both to store", func() bool { return count(t, a.Thread) > hadA && count(t, b.Thread) > hadB })
		stop(t, b)
		hadA = count(t, a.Thread)
		await(t, "the first to continue", func() bool { return count(t, a.Thread) > hadA+20 })
	}
	sent := end()
	seen := map[string]int{}
	await(t, "the rest", func() bool {
		clear(seen)
		tally(t, a.Thread, seen)
		tally(t, b.Thread, seen)
		return int64(len(seen)) >= sent
	})
	stop(t, a)
	both := 0
	for _, n := range seen {
		both += n - 1
	}
	t.Logf("%d messages, %d times joined and left: lost 0, %d in both threads, %d and %d events", sent, n, both, count(t, a.Thread), count(t, b.Thread))
}

// Proof 3: the broker is restarted under load, with all that it has on the disk.
func TestBrokerRestarts(t *testing.T) {
	dir := t.TempDir()
	open := func(o ...kfake.Opt) *kfake.Cluster {
		c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"), kfake.AllowAutoTopicCreation(), kfake.DataDir(dir), kfake.SyncWrites()}, o...)...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open()
	port, err := strconv.Atoi(c.ListenAddrs()[0][strings.LastIndex(c.ListenAddrs()[0], ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, settings(c), nil)
	end := load(t, client(t, c))
	n := rounds(10)
	for range n {
		had := count(t, r.Thread)
		await(t, "messages", func() bool { return count(t, r.Thread) > had+50 })
		c.Close()
		c = open(kfake.Ports(port))
	}
	defer func() { c.Close() }()
	sent := end()
	seen := map[string]int{}
	await(t, "the rest", func() bool {
		clear(seen)
		tally(t, r.Thread, seen)
		return int64(len(seen)) >= sent
	})
	stop(t, r)
	t.Logf("%d messages %d restarts: lost 0, no position doubled, %d events", sent, n, count(t, r.Thread))
}
