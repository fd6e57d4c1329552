package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"thread/engine"
	"thread/history"
)

// newThread makes a thread directory for an example.
func newThread(ctx context.Context) string {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	t, err := engine.OpenOrCreate(dir)
	if err != nil {
		log.Fatal(err)
	}
	if err := t.Close(); err != nil {
		log.Fatal(err)
	}
	return dir
}

// A run that is started again does not charge again.
func ExampleRun_Do() {
	ctx := context.Background()
	dir := newThread(ctx)
	defer os.RemoveAll(dir)
	h, err := history.Open(ctx, dir)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	run, err := h.StartRun(ctx, history.RunRow{AgentName: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		receipt, err := run.Do(ctx, "charge", func(context.Context) ([]byte, error) {
			fmt.Println("charging")
			return []byte("receipt 7"), nil
		}, history.Once())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", receipt)
	}
	if err := run.End(ctx, history.End{Status: history.Completed}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// charging
	// receipt 7
	// receipt 7
}

// Jobs are queued runs, and a worker works on them. One of them needs an approval, for which it
// waits without a process.
func ExampleHistory_Work() {
	ctx := context.Background()
	dir := newThread(ctx)
	defer os.RemoveAll(dir)
	h, err := history.Open(ctx, dir)
	if err != nil {
		log.Fatal(err)
	}
	defer h.Close()
	refund := history.RunRow{ID: "refund-7", AgentName: "refund"}
	if err := history.SetJob(&refund, history.Job{Unique: "refund-7", Retries: 5}); err != nil {
		log.Fatal(err)
	}
	if _, _, err := h.EnqueueJob(ctx, refund, json.RawMessage(`{"euros":80}`)); err != nil {
		log.Fatal(err)
	}
	work := func() {
		err := h.Work(ctx, history.WorkOptions{Agents: []string{"refund"}, Parallel: 4, Drain: true}, func(ctx context.Context, r *history.Run) (json.RawMessage, error) {
			answer, err := r.Wait(ctx, "approval", history.Wait{For: history.ForApproval, Ask: "Refund 80 EUR?"})
			if err != nil {
				return nil, err
			}
			if answer.Result != history.Approved {
				return nil, errors.New(answer.Reason)
			}
			return r.Do(ctx, "pay", func(context.Context) ([]byte, error) { return r.Input(ctx) })
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	work()
	if err := h.Answer(ctx, "refund-7", "", history.Answer{Result: history.Approved, By: "ann"}); err != nil {
		log.Fatal(err)
	}
	work()
	result, _, err := h.Result(ctx, "refund-7")
	fmt.Printf("%s %v\n", result, err)
	// Output: {"euros":80} <nil>
}
