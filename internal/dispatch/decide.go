package dispatch

import "time"

const (
	// maxTries is how many runs in a row may fail before the consumer is left
	// alone until the next push.
	maxTries = 5
	// maxDelay bounds the back-off of a handler that succeeds without progress.
	maxDelay = 16 * time.Second
)

// firstDelay is the wait after the first failure; it doubles with each further
// one. A variable for the tests.
var firstDelay = time.Second

// backoff returns the wait after the n-th failure in a row, n from 1.
func backoff(n int) time.Duration {
	return min(firstDelay<<min(n-1, 10), maxDelay)
}

// ending is what is known when a handler has ended.
type ending struct {
	ok      bool // exit code 0
	stopped bool // the server that ran it was told to end
	moved   bool // progress is further than at the start
	pending bool // there are unread matching events
	fresh   bool // some of them were pushed after the start
}

// streak is what a consumer's endings in a row add up to.
type streak struct {
	Failures int `json:"failures"` // failed runs in a row without progress
	Idle     int `json:"idle"`     // successful runs in a row without progress, each with new events
}

type verdict int

const (
	done    verdict = iota // nothing is pending
	again                  // run again now
	retry                  // run again after the delay
	stopped                // leave it to the next push
	stalled                // the same, after maxTries failures
	left                   // leave it to the next push or server
)

// decide is the table of DESIGN section 6. It brings s up to date and returns
// what follows, and after which delay.
//
// A failed run that nevertheless made progress counts as the first failure: the
// tries are those at the same events. Successful runs without progress that go
// on seeing new events are slowed down but not stopped, because each time there
// is an event no handler has been started for.
func decide(e ending, s *streak) (verdict, time.Duration) {
	if e.moved {
		*s = streak{}
	}
	if e.stopped && e.pending {
		return left, 0 // the streak neither grows nor ends
	}
	if e.ok {
		s.Failures = 0
	} else {
		s.Failures++
		s.Idle = 0
	}
	switch {
	case !e.pending:
		*s = streak{}
		return done, 0
	case s.Failures >= maxTries:
		return stalled, 0
	case !e.ok:
		return retry, backoff(s.Failures)
	case e.moved:
		return again, 0
	case !e.fresh:
		s.Idle = 0
		return stopped, 0
	}
	s.Idle++
	if s.Idle == 1 {
		return again, 0
	}
	return retry, backoff(s.Idle - 1)
}
