package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"thread/internal/jsonform"
)

// State is how a consumer, a run, a lane or a thread is doing. A smaller one is worse:
// this is the order of problems on the pages and in thread top.
type State int

// The states, the worst first.
const (
	Stalled State = iota // no further attempts until an operator acts
	Failing              // the last attempt failed, and there is a next one
	Failed               // a run that is not tried again
	Dead                 // events that were given up individually
	Behind               // the oldest unread event is older than behindAfter
	Full                 // a lane in which consumers wait
	Unknown              // it could not be counted in time
	Paused               // on purpose
	Running
	Queued
	OK
)

// behindAfter is the age of an unread event from which its consumer is behind.
const behindAfter = 5 * time.Minute

var stateWords = [...]string{"stalled", "failing", "failed", "dead", "behind", "full", "unknown", "paused", "running", "queued", "OK"}
var stateClasses = [...]string{"stall", "fail", "fail", "dead", "behind", "behind", "unknown", "paused", "run", "queued", "ok"}

// String is the state's word.
func (s State) String() string { return stateWords[s] }

// Class is the state's class in the stylesheet.
func (s State) Class() string { return stateClasses[s] }

// MarshalJSON is the word in lower case.
func (s State) MarshalJSON() ([]byte, error) { return json.Marshal(strings.ToLower(s.String())) }

// Problem reports whether the state needs attention.
func (s State) Problem() bool { return s <= Unknown }

// Standing is the state of a consumer, and why.
type Standing struct {
	State State     `json:"state"`
	Text  string    `json:"text"` // in words, without the times that follow
	Next  time.Time `json:"next_at,omitzero"`
	Since time.Time `json:"since,omitzero"`
	Error string    `json:"error"` // of the last failure, "" for none
}

// StandingOf returns the standing of a consumer. run is what the process does for it, nil
// for nothing.
func StandingOf(c *jsonform.ConsumerState, run *Run, now time.Time) Standing {
	h := &c.Handler
	s := Standing{State: OK, Text: unreadText(c), Error: failure(c)}
	oldest := parseTime(c.Oldest)
	switch {
	case c.FilterErr != nil:
		s.State, s.Text, s.Error = Stalled, "its filter is invalid, so it gets no events", c.FilterErr.Error()
	case c.Paused:
		s.State = Paused
	case h.Stalled:
		s.State, s.Since = Stalled, timeOf(h.LastExitAt)
		s.Text = "given up after " + many(int64(h.Failures), "attempt", "attempts") + "; " + s.Text
	case c.Failing != 0:
		s.State, s.Since, s.Next = Failing, c.FirstAt, c.NextAt
		s.Text = attemptText(c) + "; " + s.Text
	case h.Failures > 0:
		s.State, s.Since, s.Next = Failing, timeOf(h.LastExitAt), timeOf(h.RetryAt)
		s.Text = fmt.Sprintf("attempt %d has failed; %s", h.Failures, s.Text)
	case h.Unpopped:
		s.State, s.Since, s.Text = Failing, timeOf(h.LastExitAt), "its handler took no events; "+s.Text
	case h.Interrupted:
		s.State, s.Since, s.Text = Failing, timeOf(h.LastExitAt), "its supervisor was killed; "+s.Text
	case c.PendingErr != nil:
		s.State, s.Text, s.Since = Unknown, unknownText(c), c.CountedAt
	case c.Pending > 0 && !oldest.IsZero() && now.Sub(oldest) > behindAfter:
		s.State, s.Since = Behind, oldest
	case h.Running || c.Lease.Number != 0 || c.Out > 0 || run != nil && run.State == "running":
		s.State, s.Since = Running, timeOf(h.RunningSince)
	case run != nil && run.State == "queued":
		s.State, s.Since = Queued, run.Since
	}
	if s.Error == "" {
		s.Error = c.DeadError
	}
	return s
}

// failure is the last error of a consumer that does not get on, "" for none.
func failure(c *jsonform.ConsumerState) string {
	switch {
	case c.Failing != 0:
		return c.LastError
	case c.Handler.Failures > 0 && c.Handler.LastExit != "" && c.LastOutput != "":
		return c.Handler.LastExit + ": " + c.LastOutput
	case c.Handler.Failures > 0:
		return c.Handler.LastExit
	}
	return ""
}

// attemptText is about the event that has failed. A temporary failure is not an attempt that counts.
func attemptText(c *jsonform.ConsumerState) string {
	if c.Attempts == 0 {
		return fmt.Sprintf("event %d has failed for now", c.Failing)
	}
	return fmt.Sprintf("attempt %d at event %d has failed", c.Attempts, c.Failing)
}

func unreadText(c *jsonform.ConsumerState) string {
	if c.PendingErr != nil {
		return unknownText(c)
	}
	return count(c.Pending) + " unread"
}

func unknownText(c *jsonform.ConsumerState) string {
	if c.CountedAt.IsZero() {
		return "not counted yet"
	}
	return fmt.Sprintf("%s unread at %s; counting takes longer", count(c.Pending), clock(c.CountedAt))
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// Problem is a row of the list that the first page begins with.
type Problem struct {
	State  State     `json:"state"`
	Count  int64     `json:"count,omitempty"` // of dead letters
	Name   string    `json:"name"`
	Kind   string    `json:"kind"`             // consumer, run, lane or thread
	Thread string    `json:"thread,omitempty"` // as in addresses
	Text   string    `json:"text"`
	Next   time.Time `json:"next_at,omitzero"`
	Why    string    `json:"reason"`
	Since  time.Time `json:"since,omitzero"`
	Run    string    `json:"run_id,omitempty"`
	Newest time.Time `json:"-"` // dead letter
}

// worse orders problems: the worst first, then the older.
func worse(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.State, b.State), zeroLast(a.Since, b.Since), cmp.Compare(a.Thread, b.Thread), cmp.Compare(a.Name, b.Name))
}

func zeroLast(a, b time.Time) int {
	switch {
	case a.IsZero() != b.IsZero() && a.IsZero():
		return 1
	case a.IsZero() != b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// Headline is the first line of the first page and of thread top.
func Headline(problems int) string {
	if problems == 0 {
		return "no problems"
	}
	return many(int64(problems), "problem", "problems")
}

func many(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + more
}
