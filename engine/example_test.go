package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"thread/engine"
	"thread/event"
)

func inbox() (*engine.Thread, func()) {
	dir, err := os.MkdirTemp("", "thread")
	if err != nil {
		panic(err)
	}
	t, err := engine.OpenOrCreate(filepath.Join(dir, "inbox"))
	if err != nil {
		panic(err)
	}
	return t, func() { os.RemoveAll(dir) }
}

func ExampleThread_Push() {
	t, done := inbox()
	defer done()
	e, err := t.Push(context.Background(), event.Draft{Source: "self", Type: "record", Subtype: event.Text("toolcall"), Content: "ls"})
	fmt.Println(e.ID, e.Source, *e.Subtype, err)
	// Output: 1 self toolcall <nil>
}

func ExampleThread_PushBatch() {
	t, done := inbox()
	defer done()
	es, err := t.PushBatch(context.Background(), []event.Draft{
		{Source: "self", Type: "message", Content: "a"},
		{Source: "self", Type: "message", Content: "b"},
	})
	fmt.Println(len(es), es[1].ID, es[0].CreatedAt == es[1].CreatedAt, err)
	// Output: 2 2 true <nil>
}

func ExampleThread_Events() {
	t, done := inbox()
	defer done()
	ctx := context.Background()
	for _, s := range []string{"external:telegram:tg-main:dm:alice:alice", "self", "internal:dm:default:warden"} {
		if _, err := t.Push(ctx, event.Draft{Source: s, Type: "message", Content: "hello"}); err != nil {
			panic(err)
		}
	}
	for e, err := range t.Events(ctx, engine.Query{Filter: "source LIKE '%:alice' OR source = 'self'"}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(e.ID, e.Source)
	}
	// Output:
	// 1 external:telegram:tg-main:dm:alice:alice
	// 2 self
}

// The loop of a consumer: pop, work, pop with the id of the last event that is
// done, until nothing comes.
func ExampleThread_Pop() {
	t, done := inbox()
	defer done()
	ctx := context.Background()
	for i := range 5 {
		if _, err := t.Push(ctx, event.Draft{Source: "self", Type: "message", Content: fmt.Sprint("job ", i)}); err != nil {
			panic(err)
		}
	}
	if err := t.Subscribe(ctx, engine.Subscription{Consumer: "worker", Handler: "true"}); err != nil {
		panic(err)
	}
	for last, more := int64(0), true; more; {
		page, err := t.Pop(ctx, "worker", engine.PopQuery{LastAcked: last, Limit: 2})
		if err != nil {
			panic(err)
		}
		more = false
		for e, err := range page.Events {
			if err != nil {
				panic(err)
			}
			fmt.Println(e.Content)
			last, more = e.ID, true
		}
	}
	// Output:
	// job 0
	// job 1
	// job 2
	// job 3
	// job 4
}

func ExampleThread_Subscribe() {
	t, done := inbox()
	defer done()
	ctx := context.Background()
	err := t.Subscribe(ctx, engine.Subscription{Consumer: "worker", Handler: "./worker", Filter: event.Text("type = 'message'")})
	fmt.Println(err)
	info, err := t.Info(ctx)
	fmt.Println(info.EventCount, info.Subscriptions[0].Consumer, info.Subscriptions[0].LastAcked, err)
	// Output:
	// <nil>
	// 0 worker 0 <nil>
}

// An event and a note of our own become durable in one step, or neither does.
func ExampleThread_Update() {
	t, done := inbox()
	defer done()
	ctx := context.Background()
	err := t.Update(ctx, func(tx *engine.Tx) error {
		e, err := tx.Push(event.Draft{Source: "self", Type: "message", Content: "paid"})
		if err != nil {
			return err
		}
		ledger, err := tx.Records("ledger")
		if err != nil {
			return err
		}
		return ledger.Put([]byte("order 7"), fmt.Append(nil, e.ID))
	})
	fmt.Println(err)
	// Output: <nil>
}
