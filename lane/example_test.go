package lane_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thread/lane"
)

// The messages of one conversation are answered in order, whatever else runs.
func ExampleDo() {
	q := lane.New(nil)
	answer := func(text string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return "re: " + text, nil }
	}
	for _, text := range []string{"one", "two"} {
		reply, err := lane.Do(context.Background(), q, lane.Session("user-abc", lane.Main), answer(text))
		fmt.Println(reply, err)
	}
	// Output:
	// re: one <nil>
	// re: two <nil>
}

// A report of a long wait comes while the task still waits.
func ExampleOnWait() {
	q := lane.New(nil)
	reported := make(chan lane.Wait)
	release := make(chan struct{})
	hold := func(context.Context) error { <-release; return nil }
	q.Submit(context.Background(), lane.Lane(lane.Cron), hold)
	task, _ := q.Submit(context.Background(), lane.Lane(lane.Cron), hold,
		lane.WarnAfter(time.Millisecond), lane.OnWait(func(w lane.Wait) { reported <- w }))
	w := <-reported
	fmt.Println(w.Lane, w.Ahead, w.Queued)
	close(release)
	fmt.Println(task.Err())
	// Output:
	// cron 0 1
	// <nil>
}

// A run takes part in its session for as long as it is registered.
func ExampleRegistry() {
	r := lane.NewRegistry(nil)
	run := &lane.Run{
		Deliver:   func(message string) error { fmt.Println("got", message); return nil },
		Streaming: func() bool { return true },
	}
	r.Register("user-abc", run)
	fmt.Println(r.Send("user-abc", "one more thing"))
	r.Clear("user-abc", run)

	err := r.Send("user-abc", "hello?")
	fmt.Println(err, errors.Is(err, lane.NoActiveRun))
	fmt.Println(r.WaitEnd(context.Background(), "user-abc", lane.DefaultEndTimeout))
	// Output:
	// got one more thing
	// <nil>
	// no_active_run true
	// true
}
