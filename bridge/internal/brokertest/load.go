package brokertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"thread/engine"
)

// Rounds is how often something is done: of 10 or 20 times with THREAD_KILLS=200, as
// make torture-bridge has it, a tenth of them without.
func Rounds(of int) int {
	n, err := strconv.Atoi(os.Getenv("THREAD_KILLS"))
	if err != nil {
		n = 20
	}
	return max(1, of*n/200)
}

// load sends numbered messages with ids until it is ended; then it returns how many.
// One that fails is sent again, for as long as a server may be away, the last one too.
func load(t *testing.T, send func(body, id string) error) (sent *atomic.Int64, end func() int) {
	t.Helper()
	sent = new(atomic.Int64)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		var err error
		for away := time.Now(); (ctx.Err() == nil || err != nil) && (err == nil || time.Since(away) < 5*time.Minute); {
			n := sent.Load()
			if err = send(fmt.Sprintf(`{"n":%d}`, n), fmt.Sprint("m-", n)); err == nil {
				sent.Add(1)
				away = time.Now()
			}
			time.Sleep(2 * time.Millisecond) // some hundred in a second
		}
		ended <- err
	}()
	t.Cleanup(stop)
	return sent, func() int {
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		return int(sent.Load())
	}
}

// count is how many events the thread has.
func (r *Run) count() int64 {
	r.T.Helper()
	info, err := r.Thread.Info(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}
	return info.EventCount
}

// tally counts the messages of the thread by their numbers, and fails for one that is
// there twice.
func (r *Run) tally(into map[int]int) {
	r.T.Helper()
	own := map[int]bool{}
	for e, err := range r.Thread.Events(context.Background(), engine.Query{}) {
		var content struct{ Message struct{ N int } }
		if err == nil {
			err = json.Unmarshal([]byte(e.Content), &content)
		}
		if err != nil {
			r.T.Fatal(err)
		}
		n := content.Message.N
		if own[n] {
			r.T.Fatalf("message %d is in a thread twice", n)
		}
		own[n] = true
		into[n]++
	}
}

// JoinAndLeave lets a second trigger, with a separate thread, join the first one's
// group under load and leave it again, that many times: nothing is lost. Send is told of
// errors.
func JoinAndLeave(t *testing.T, b *Broker, rounds int, send func(body, id string) error) {
	first := New(t, b, nil)
	other, s := *b, *b.Settings
	s.Name, other.Settings = "second", &s
	second := New(t, &other, nil)
	second.Stop()
	_, end := load(t, send)
	for range rounds {
		second.Start()
		hadFirst, hadSecond := first.count(), second.count()
		first.Until("both to store", func() bool { return first.count() > hadFirst && second.count() > hadSecond+5 })
		second.Stop()
		hadFirst = first.count()
		first.Until("the first to continue", func() bool { return first.count() > hadFirst+20 })
	}
	n := end()
	seen := map[int]int{}
	first.Until("the rest", func() bool {
		clear(seen)
		first.tally(seen)
		second.tally(seen)
		return len(seen) >= n
	})
	first.Drained()
	both := 0
	for _, times := range seen {
		both += times - 1
	}
	t.Logf("%d messages, %d times joined and left: lost 0, %d in both threads, %d and %d events", n, rounds, both, first.count(), second.count())
}

// Restarts kills the server under load and starts it again, that many times: each
// message is stored once.
func Restarts(t *testing.T, b *Broker, server *Server, rounds int, send func(body, id string) error) {
	r := New(t, b, nil)
	sent, end := load(t, send)
	for range rounds {
		had := sent.Load()
		r.Until("messages", func() bool { return sent.Load() > had+50 })
		server.Kill()
		server.Start(t)
	}
	n := end()
	seen := map[int]int{}
	r.Until("the rest", func() bool {
		clear(seen)
		r.tally(seen)
		return len(seen) >= n
	})
	r.Drained()
	t.Logf("%d messages, %d restarts: lost 0, doubled 0", n, rounds)
}
