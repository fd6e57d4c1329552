package trigger

import (
	"errors"
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

// stuckEvery is how many ticks lie between two questions to Options.Stuck.
const stuckEvery = 5
