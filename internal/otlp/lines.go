package otlp

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"thread/internal/spans"
)

const (
	// maxQueued is how many spans of lines wait for the endpoint at most. Further ones are
	// dropped and counted: the process that writes the lines never waits.
	maxQueued = 16 << 10
	maxBatch  = 512
	// endTime bounds how long spans are exported after the last line.
	endTime = 10 * time.Second
	// lookEvery is how often a history is looked at.
	lookEvery = time.Second
)

// Lines exports the spans that [spans.Sink] writes, until the end of in and some seconds longer.
func (c *Client) Lines(ctx context.Context, in io.Reader) {
	queue, dropped := make(chan spans.Span, maxQueued), 0
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		defer close(queue)
		d := json.NewDecoder(in)
		d.UseNumber()
		for {
			var s spans.Span
			if d.Decode(&s) != nil {
				break // the end, or the half line of a process that was killed
			}
			select {
			case queue <- s:
			default:
				dropped++
			}
		}
		time.AfterFunc(endTime, end)
	}()
	lost := 0
	for s := range queue {
		batch := []spans.Span{s}
		for more := true; more && len(batch) < maxBatch; {
			select {
			case s, ok := <-queue:
				if more = ok; ok {
					batch = append(batch, s)
				}
			default:
				more = false
			}
		}
		if c.Send(ctx, batch) != nil {
			lost += len(batch)
		}
	}
	if lost += dropped; lost > 0 { // written before the queue was closed
		c.warn("traces: %d spans are dropped, as %s did not take them in time", lost, c.url)
	}
}

// follow calls look every second until ctx ends, and then once more. For some seconds it waits
// there for another process that exports the same, which look reports.
func follow(ctx context.Context, look func(ctx context.Context) (others bool)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		look(ctx)
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
			defer cancel()
			for look(last) && last.Err() == nil {
				time.Sleep(lookEvery / 10)
			}
			return
		case <-tick.C:
		}
	}
}
