package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"thread/engine"
	"thread/event"
)

// A pool of three workers, each with a consumer and a share of the events. One job fails at
// every attempt and becomes a dead letter.
func ExampleThread_Feed() {
	t, done := inbox()
	defer done()
	const workers = 3
	ctx := context.Background()
	for i := range workers {
		// "thread dispatch" would run the handler; here the pool does the work.
		err := t.Subscribe(ctx, engine.Subscription{Consumer: fmt.Sprint("worker-", i), Handler: "true",
			Filter: event.Text(fmt.Sprintf("type = 'job' AND id %% %d = %d", workers, i))})
		if err != nil && !errors.Is(err, engine.ErrSubscriptionExists) { // from an earlier start
			panic(err)
		}
	}
	for i := range 9 {
		if _, err := t.Push(ctx, event.Draft{Source: "shop", Type: "job", Content: fmt.Sprint("order ", i+1)}); err != nil {
			panic(err)
		}
	}

	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			if err := work(ctx, t, fmt.Sprint("worker-", i)); err != nil {
				panic(err)
			}
		})
	}
	all.Wait()

	info, err := t.Info(ctx)
	if err != nil {
		panic(err)
	}
	for _, s := range info.Subscriptions {
		fmt.Printf("%s: progress %d, dead letters: %d\n", s.Consumer, s.LastAcked, s.Dead)
	}
	// Output:
	// worker-0: progress 9, dead letters: 0
	// worker-1: progress 7, dead letters: 0
	// worker-2: progress 8, dead letters: 1
}

// work returns when no event can be tried now.
func work(ctx context.Context, t *engine.Thread, consumer string) error {
	backoff := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	feed := t.Feed(consumer, engine.Policy{MaxAttempts: 3, Backoff: backoff})
	defer feed.Close() // another feed of the consumer gets ErrConsumerBusy until then
	var result *engine.Result
	for {
		d, err := feed.Next(ctx, result) // stores the previous result in the same step
		if err != nil {
			return err
		}
		if len(d.Events) == 0 && d.NotBefore.IsZero() {
			return nil // a resident worker would range over t.Follow instead
		}
		if len(d.Events) == 0 {
			time.Sleep(time.Until(d.NotBefore))
			result = nil
			continue
		}
		result = &engine.Result{Verdict: engine.Succeeded}
		if d.Events[0].Content == "order 5" {
			result = &engine.Result{Verdict: engine.Failed, ExitCode: -1, Error: "out of stock"}
		}
	}
}
