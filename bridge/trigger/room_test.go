package trigger

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"thread/engine"
)

// TestMaxBacklog: no more events wait than max_backlog says, however large the
// batches are; it is said, and continues when the consumer does.
func TestMaxBacklog(t *testing.T) {
	for _, batch := range []int{1, 3, 100} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) { c.MaxBacklog, c.MaxBatch, c.Consumer = 5, batch, "out" })
			ctx := context.Background()
			if err := r.th.Subscribe(ctx, engine.Subscription{Consumer: "out", Handler: "true", Paused: true}); err != nil {
				t.Fatal(err)
			}
			for n := range 12 {
				r.send(fmt.Sprintf("m-%d", n), `{}`)
			}
			r.start()
			for _, through := range []int64{0, 2, 7} {
				if through > 0 {
					if err := r.th.Ack(ctx, "out", through); err != nil {
						t.Fatal(err)
					}
				}
				// Both: what is full is said before the next message would be taken.
				r.until("a full backlog", func() bool {
					d := r.tr.Health(ctx).Detail
					return len(r.mock.Acked()) == int(through)+5 && (through == 7 || d != nil && strings.Contains(*d, "max_backlog of 5 events is reached"))
				})
				if n, _, err := r.th.Backlog(ctx, "out"); err != nil || n != 5 {
					t.Fatalf("%d events wait, %v", n, err)
				}
			}
			if said := r.log.count("max_backlog is reached"); said < 2 || said > 3 {
				t.Errorf("it is said %d times:\n%s", said, r.log)
			}
			r.stop()
			if n := len(r.events()); n != 12 {
				t.Errorf("%d events", n)
			}
		})
	}
}
