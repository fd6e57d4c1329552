package trigger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// trouble is one thing that can be wrong with a trigger that runs.
type trouble int

const (
	troubleStore    trouble = iota // messages cannot be stored or settled
	troubleConsume                 // the broker gives no messages
	troubleDLQ                     // the dead letter queue refuses messages
	troubleConsumer                // no process runs the consumer whose outcome counts
	troubles
)

var troubleNames = [troubles]string{"store", "consume", "dlq", "consumer"}

// patience is how long something may be wrong until the trigger is unhealthy.
const patience = 5 * time.Second

// wrong is something that is wrong, and since when.
type wrong struct {
	err   error
	since time.Time
}

// noteTrouble notes what is wrong, nil for nothing.
func (t *Trigger) noteTrouble(what trouble, err error) {
	defer t.signal()
	t.metrics.set(func(m *Metrics) {
		w := &m.wrong[what]
		if w.err == nil {
			w.since = time.Now()
		}
		w.err = err
	})
}

// worst returns what has been wrong for the longest time, and for how long; nil for
// nothing.
func (m *Metrics) worst() (lasting time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.wrong {
		if d := m.wrong[i].lasting(); m.wrong[i].err != nil && (err == nil || d > lasting) {
			err, lasting = m.wrong[i].err, d
		}
	}
	return lasting, err
}

func (w *wrong) lasting() time.Duration {
	if w.err == nil {
		return 0
	}
	return time.Since(w.since)
}

// errGivenUp is wrapped by the errors of work that failed while the trigger stopped. The
// broker was not told of its messages.
var errGivenUp = errors.New("given up, since the trigger stops")

// giveUpAfter is how long a trigger that stops continues trying what fails.
const giveUpAfter = 3 * time.Second

// sleepOrStop waits for d, or until a stop begins. It returns errGivenUp when one began
// before giveUpAfter.
func (t *Trigger) sleepOrStop(ctx context.Context, d time.Duration, stopped *time.Time) error {
	stopping := t.stopping
	if !stopped.IsZero() {
		if time.Since(*stopped) > t.giveUp {
			return errGivenUp
		}
		stopping, d = nil, min(d, t.giveUp/10)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-stopping:
		*stopped = time.Now()
	case <-timer.C:
	}
	return nil
}

// stuckEvery is how many ticks lie between two questions to Options.Stuck.
const stuckEvery = 5

// lookForConsumer is called once in a tick. It asks why the oldest event waits.
func (t *Trigger) lookForConsumer(ctx context.Context) {
	if t.stuck == nil || t.cfg.Settle != SettleHandled {
		return
	}
	if len(t.open) == 0 {
		t.noteTrouble(troubleConsumer, nil)
		return
	}
	if t.stuckWait--; t.stuckWait > 0 {
		return
	}
	t.stuckWait = stuckEvery
	oldest := int64(0)
	for id, w := range t.open {
		if !w.final && (oldest == 0 || id < oldest) {
			oldest = id
		}
	}
	if oldest == 0 {
		t.noteTrouble(troubleConsumer, nil)
		return
	}
	why, err := t.stuck(ctx, t.cfg.Consumer, oldest)
	switch {
	case err != nil:
		t.noteTrouble(troubleConsumer, fmt.Errorf("consumer '%s': %w", t.cfg.Consumer, err))
	case why != "":
		t.noteTrouble(troubleConsumer, fmt.Errorf("event %d waits for consumer '%s': %s", oldest, t.cfg.Consumer, why))
	default:
		t.noteTrouble(troubleConsumer, nil)
	}
}
