package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"thread/engine"
	"thread/event"
	"thread/worker"
)

// A worker sends mails, two at once, each customer's in order. One address does not exist: its
// event becomes a dead letter.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(dir)
	t, err := engine.OpenOrCreate(filepath.Join(dir, "inbox"))
	check(err)
	defer t.Close()
	ctx := context.Background()
	check(t.Subscribe(ctx, engine.Subscription{Consumer: "mail", Handler: "true", Filter: event.Text("type = 'mail'")}))
	for _, to := range []string{"ann@example.org", "nobody", "bob@example.org"} {
		_, err := t.Push(ctx, event.Draft{Source: to, Type: "mail", Content: "hello"})
		check(err)
	}

	p := worker.Policy{Parallel: 2, Key: "source", MaxAttempts: 5, Backoff: func(int64) time.Duration { return time.Second }, Drain: true}
	err = worker.Run(ctx, t, "mail", p, func(ctx context.Context, e event.Event) error {
		if e.Source == "nobody" {
			return worker.Reject(errors.New("there is no such address"))
		}
		return nil // sent
	})
	check(err)
	for l, err := range t.DeadLetters(ctx, engine.DeadLetterQuery{Consumer: "mail"}) {
		check(err)
		fmt.Println(l.Event.ID, l.LastError)
	}
	// Output: 2 there is no such address
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
