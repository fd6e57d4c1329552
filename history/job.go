package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"thread/event"
)

// Wait is what a run waits for.
type Wait struct {
	For    string    `json:"for"`              // ForApproval, ForEvent, ForRun or ForTime
	Ask    string    `json:"ask,omitempty"`    // the question to the person who approves
	Run    string    `json:"run,omitempty"`    // of ForRun
	Filter string    `json:"filter,omitempty"` // of ForEvent
	After  int64     `json:"after,omitempty"`  // of ForEvent: only events with an id above
	Until  time.Time `json:"until,omitzero"`   // of ForTime, and the timeout of the others; zero for none

	Key  string `json:"key,omitempty"`  // of the step
	Step string `json:"step,omitempty"` // the id of the step
}

// Job is what a queued run has as a job: the member "job" of its metadata. A run without it
// is due at once, starts once, and waits for no other run.
type Job struct {
	Version int `json:"v"` // 1, which tells a job from a member of that name in other metadata

	Unique   string    `json:"unique,omitempty"`   // no second run with this key is queued before this one has ended
	Priority int64     `json:"priority,omitempty"` // higher starts first, never across the order of one session
	Due      time.Time `json:"due,omitzero"`       // the run does not start before

	Retries    int64 `json:"retries,omitempty"`      // how many failed attempts are followed by another one
	BackoffMS  int64 `json:"backoff_ms,omitempty"`   // the pause after the first failed attempt; it doubles
	MaxPauseMS int64 `json:"max_pause_ms,omitempty"` // the longest pause
	TimeoutMS  int64 `json:"timeout_ms,omitempty"`   // how long one attempt may take; 0 for any time
	Failures   int64 `json:"failures,omitempty"`     // how many attempts have failed

	Group          string   `json:"group,omitempty"`       // the group that the run belongs to
	After          []string `json:"after,omitempty"`       // the runs that have to end first
	AfterGroup     string   `json:"after_group,omitempty"` // the group whose runs have to end first
	CancelIfFailed bool     `json:"cancel_if_failed,omitempty"`
	Joined         bool     `json:"joined,omitempty"` // all of these have ended

	Wait     *Wait  `json:"wait,omitempty"`     // what the run waits for
	Answered string `json:"answered,omitempty"` // the step with the answer with which the run was queued last

	LastError string `json:"last_error,omitempty"` // of the last failed attempt
}

func readyKey(r *RunRow, number int64) []byte {
	job, _ := JobOf(r)
	b := prefix(byReady, r.EffectiveAgentName)
	b = binary.BigEndian.AppendUint64(b, ^uint64(job.Priority))
	return binary.BigEndian.AppendUint64(b, uint64(number))
}

// The bounds of a job.
const (
	MaxAfter    = 1000            // runs in Job.After
	MaxRetries  = 1000            // Job.Retries
	MaxPriority = 1_000_000       // Job.Priority
	MaxInput    = 1 << 20         // bytes of a job's input
	MaxResult   = 1 << 20         // bytes of a job's result
	minBackoff  = time.Second     // where Job.BackoffMS is 0
	maxBackoff  = 5 * time.Minute // where Job.MaxPauseMS is 0
)

// JobOf returns the job of a run, and whether it has one.
func JobOf(r *RunRow) (j Job, ok bool) {
	if !bytes.Contains(r.Metadata, []byte(`"job":`)) {
		return j, false
	}
	var in struct {
		Job *Job `json:"job"`
	}
	if json.Unmarshal(r.Metadata, &in) != nil || in.Job == nil || in.Job.Version != 1 {
		return Job{}, false
	}
	return *in.Job, true
}

// SetJob makes the run a job, or changes the one that it is.
func SetJob(r *RunRow, j Job) (err error) {
	j.Version = 1
	r.Metadata, err = SetMember(r.Metadata, "job", j)
	return err
}

// Timeout returns how long one attempt may take, 0 for any time.
func (j *Job) Timeout() time.Duration { return time.Duration(j.TimeoutMS) * time.Millisecond }

// Pause returns the pause after as many failed attempts as the job has.
func (j *Job) Pause() time.Duration {
	first, most := time.Duration(j.BackoffMS)*time.Millisecond, time.Duration(j.MaxPauseMS)*time.Millisecond
	if first <= 0 {
		first = minBackoff
	}
	if most <= 0 {
		most = max(first, maxBackoff)
	}
	shift := max(0, j.Failures-1)
	if shift >= int64(bits.LeadingZeros64(uint64(first))-1) {
		return most
	}
	return min(most, first<<shift)
}

// joins reports whether the run waits for other runs to end.
func (j *Job) joins() bool { return !j.Joined && (len(j.After) > 0 || j.AfterGroup != "") }

func (j *Job) valid(id string) error {
	for _, n := range []struct {
		name    string
		is, max int64
	}{
		{"priority", j.Priority, MaxPriority}, {"retries", j.Retries, MaxRetries},
		{"backoff", j.BackoffMS, 1 << 40}, {"the longest pause", j.MaxPauseMS, 1 << 40}, {"timeout", j.TimeoutMS, 1 << 40},
	} {
		if n.is < 0 || n.is > n.max {
			return invalidf("%s %d is not a number from 0 to %d", n.name, n.is, n.max)
		}
	}
	if j.MaxPauseMS > 0 && j.BackoffMS > j.MaxPauseMS {
		return invalidf("the first pause of %d ms is longer than the longest of %d ms", j.BackoffMS, j.MaxPauseMS)
	}
	if len(j.After) > MaxAfter {
		return invalidf("the run comes after %d runs, the limit is %d; put them into a group", len(j.After), MaxAfter)
	}
	if j.Group != "" && j.Group == j.AfterGroup {
		return invalidf("the run would wait for the group %q, which it belongs to", j.Group)
	}
	for _, dep := range j.After {
		if dep == id {
			return invalidf("the run %q would wait for itself", id)
		}
	}
	return indexed("unique", j.Unique, "group", j.Group, "after_group", j.AfterGroup)
}

// The kinds of a [Hold], next to what a run can wait for.
const (
	HoldJoin  = "join"  // other runs
	HoldRetry = "retry" // the pause after a failed attempt
	HoldDue   = "due"   // its time
)

// Hold is why a run that is queued or waits has not been started.
type Hold struct {
	For      string    `json:"for"`                // HoldJoin, HoldRetry, HoldDue, or as Wait.For
	Until    time.Time `json:"until,omitzero"`     // when it ends, or is given up
	Ask      string    `json:"ask,omitempty"`      // of ForApproval: the question
	Filter   string    `json:"filter,omitempty"`   // of ForEvent
	Runs     []string  `json:"runs,omitempty"`     // of ForRun and HoldJoin: the runs that have to end
	Group    string    `json:"group,omitempty"`    // of HoldJoin: the group whose runs have to end
	Attempt  int64     `json:"attempt,omitempty"`  // of HoldRetry: the next one, from 2
	Attempts int64     `json:"attempts,omitempty"` // of HoldRetry: how many there are at most
}

// HoldOf returns what holds a run, nil for nothing. A time that has passed holds none.
func HoldOf(r *RunRow) *Hold {
	job, is := JobOf(r)
	switch w := job.Wait; {
	case !is:
		return nil
	case r.Status == Waiting && w != nil:
		h := &Hold{For: w.For, Until: w.Until, Ask: w.Ask, Filter: w.Filter}
		if w.Run != "" {
			h.Runs = []string{w.Run}
		}
		return h
	case r.Status != Queued:
		return nil
	case job.joins():
		return &Hold{For: HoldJoin, Runs: job.After, Group: job.AfterGroup}
	case job.Failures > 0:
		return &Hold{For: HoldRetry, Until: job.Due, Attempt: job.Failures + 1, Attempts: job.Retries + 1}
	case !job.Due.IsZero():
		return &Hold{For: HoldDue, Until: job.Due}
	}
	return nil
}

// AppendJSON appends the row as a JSON object with all of its columns, those that are
// empty as null. A run that is queued or waits also has the member hold: see [HoldOf]. It returns
// [ErrInvalid] for invalid JSON in a column of JSON.
func AppendJSON(b []byte, r Row) ([]byte, error) {
	b, err := appendRow(b, r, true)
	run, ok := r.(*RunRow)
	if err != nil || !ok {
		return b, err
	}
	hold := HoldOf(run)
	if hold == nil {
		return b, nil
	}
	text, err := json.Marshal(hold)
	return append(append(append(b[:len(b)-1], `,"hold":`...), text...), '}'), err
}

// String returns the hold in words, such as "for approval Refund? until 2026-03-18T10:30:00.000Z".
func (h *Hold) String() string {
	until, runs := "", strings.Join(h.Runs, ",")
	if !h.Until.IsZero() {
		until = event.FormatTime(h.Until)
	}
	var words []string
	switch h.For {
	case HoldDue:
		words = []string{"due", until}
	case HoldRetry:
		words = []string{fmt.Sprintf("attempt %d of %d", h.Attempt, h.Attempts), "due", until}
	case HoldJoin:
		if words = []string{"after", runs}; h.Group != "" {
			words = append(words, "group", h.Group)
		}
	default:
		if words = []string{"for", h.For, h.Ask, h.Filter, runs}; until != "" {
			words = append(words, "until", until)
		}
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// inputStep is the id of the step that holds the input of a run.
func inputStep(run string) string { return "input_" + run }

// result is the member of a step's output that has the result of a run.
type result struct {
	Result json.RawMessage `json:"result"`
	Text   bool            `json:"result_is_text,omitempty"` // the result was not JSON, and Result is a string
}

// ParseResult returns the members of a step's output that hold the result of a run, whose
// command printed this line last: JSON as it is, else the text, which is marked.
func ParseResult(last []byte) map[string]any {
	switch last = bytes.TrimSpace(last); {
	case len(last) == 0:
		return nil
	case json.Valid(last):
		return map[string]any{"result": json.RawMessage(last)}
	}
	return map[string]any{"result": string(bytes.ToValidUTF8(last, []byte("\uFFFD"))), "result_is_text": true}
}

// Later is an error with which a run of [History.Work] is queued again, due after that time. It
// counts as no failed attempt.
type Later time.Duration

func (l Later) Error() string { return "later, in " + time.Duration(l).String() }

var errTimeout = errors.New("the time of the attempt has passed")
