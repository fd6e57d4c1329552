package engine

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"thread/event"
	"thread/internal/redact"
	"thread/internal/store"
)

// forgetDelivery makes the result of a delivery that is in flight unwanted, and what
// was known of failing events void: the consumer's position was moved by hand.
func (tx *Tx) forgetDelivery(consumer string) error {
	d, err := tx.delivery(consumer)
	if err != nil || d.Count == 0 && d.Suspect == 0 && d.Failing == 0 {
		return err
	}
	d.Count, d.Suspect, d.Failing = 0, 0, 0
	return tx.putDelivery(consumer, &d)
}

// handBack is forgetDelivery for events that are to be given out (again): who runs
// the consumer's handler, and does not see that from its progress, sees it from
// Due.Retried.
func (tx *Tx) handBack(consumer string) error {
	d, err := tx.delivery(consumer)
	if err != nil {
		return err
	}
	d.Count, d.Suspect, d.Failing = 0, 0, 0
	d.Retried++
	if err := tx.forgetAttempts(consumer); err != nil {
		return err
	}
	return tx.putDelivery(consumer, &d)
}

// clearFailures forgets the failures of an event that is settled.
func clearFailures(d *store.Delivery) { d.Failing, d.Letter = 0, store.Failures{} }

// failuresOf returns what is known of an unread event.
func failuresOf(d *store.Delivery, id int64) store.Failures {
	if d.Failing == id {
		return d.Letter
	}
	return store.Failures{}
}

// Delivery is what is given out.
type Delivery struct {
	Events []event.Event // none: there is nothing to do now
	// Attempt counts from 1 the attempts at a single event, those before a retry
	// included; 0 for a group.
	Attempt int64
	Retry   bool // it is a dead letter that was sent back
	// NotBefore is when the next event may be tried, zero when none waits. Set
	// only when Events is empty.
	NotBefore time.Time

	// Of a ParallelFeed: the key of its events, the first event's where several count as
	// one; and that a delivery in reserve may be begun only when a Step that was told so
	// has stored it.
	Key     string
	Careful bool

	number int64
}

// Settled is what has become of the events of a delivery.
type Settled struct {
	First, Last int64 // the ids of its events
	Result      Result
	// Interrupted: the delivery was another process's, who left no result.
	Interrupted bool
	Acked, Dead bool     // neither: they will be given out again
	Failures    Failures // as far as Failures are kept: of a single event that is not acked
}

// Policy is what follows a failure. The zero Policy gives single events out, and
// makes a dead letter of one at its first failure.
type Policy struct {
	Limit       int64 // events in one delivery; less than 1 is 1
	MaxAttempts int64 // counted attempts until an event becomes a dead letter; less than 1 is 1
	// Backoff returns the wait after the n-th failure in a row, n from 1; nil is not a
	// wait.
	Backoff func(n int64) time.Duration
	// Unordered gives out what is due first, and lets nothing wait for an event that
	// has failed. Limit is 1 then.
	Unordered bool
	// AtOnce is asked about a delivery of a single event in the transaction that has begun
	// it. With true the event succeeds there and then, as if it had been given out and its
	// result were Succeeded, and the search continues: up to a hundred events share a commit. Its
	// error rolls that back. May be nil.
	AtOnce func(tx *Tx, d *Delivery) (bool, error)
	// OnSettled is called in the transaction that stores a result, also one of another
	// process's delivery; its error rolls that back. May be nil.
	OnSettled func(tx *Tx, s *Settled) error
}

// ParallelPolicy is what a [ParallelFeed] goes by.
type ParallelPolicy struct {
	Policy
	// Key is "" for none, "source", "type", "subtype", or a JSON path into the content
	// such as $.chat.id. An event without one, NULL, or one whose content is not JSON,
	// has the empty key.
	Key string
	// Fold makes the same of keys that are to count as one; nil for none.
	Fold   func(key string) string
	Window int64 // less than 1 is DefaultWindow
}

// Result says how a delivery ended.
type Result struct {
	Verdict  Verdict
	ExitCode int64  // -1 when there is none
	Error    string // for people, kept with the event
	// NotBefore is when the event is tried again if it has not succeeded, in place of
	// Policy.Backoff; zero for that. Postponed needs it.
	NotBefore time.Time
	// Delay is of a ParallelFeed's Deferred: how long to wait, 0 for the Policy's.
	Delay time.Duration
}

// Verdict is what a result means for the events of a delivery.
type Verdict int

const (
	Succeeded Verdict = iota // they are acked
	Failed                   // counts an attempt of a single event; a group is split
	Rejected                 // makes a single event a dead letter; a group is split
	Deferred                 // tried again later, nothing is counted
	Returned                 // as if it had never been out: the delivery was called off
	Postponed                // a single event is not to be tried before NotBefore; nothing is noted
)

// interrupted is the result of a delivery whose user was killed.
var interrupted = Result{Verdict: Failed, ExitCode: -1, Error: "interrupted: the program ended without a result"}

// outcome is what has become of the events of a delivery.
type outcome int

const (
	undecided outcome = iota // they will be given out again
	acked
	diedOut // the event is a dead letter
)

// settle stores the result of the delivery that is in flight.
func (tx *Tx) settle(consumer string, p *Policy, d *store.Delivery, ids []int64, r Result) (outcome, error) {
	if d.Retry == 1 {
		return tx.settleRetry(consumer, p, d, r)
	}
	single := d.Count == 1
	d.Count = 0
	now := tx.now()
	switch r.Verdict {
	case Succeeded:
		clearFailures(d)
		return acked, tx.passOver(consumer, d, d.Last, ids)
	case Returned:
		return undecided, nil
	case Deferred:
		l := failuresOf(d, d.First)
		fail(&l, r, now, false)
		l.NextAt = r.notBefore(now, p, l.Deferrals)
		return undecided, tx.wait(consumer, p, d, l)
	case Postponed:
		l := failuresOf(d, d.First)
		postpone(&l, &r, now)
		return undecided, tx.wait(consumer, p, d, l)
	}
	if !single {
		d.Suspect = d.Last
		clearFailures(d)
		return undecided, nil
	}
	d.Suspect = 0 // this is the one; what came after it in the group is whole again
	l := failuresOf(d, d.First)
	fail(&l, r, now, true)
	if r.Verdict == Failed && l.Round < p.MaxAttempts {
		l.NextAt = r.notBefore(now, p, l.Round)
		return undecided, tx.wait(consumer, p, d, l)
	}
	clearFailures(d)
	if err := tx.passOver(consumer, d, d.First, []int64{d.First}); err != nil {
		return undecided, err
	}
	return diedOut, tx.putDead(consumer, d.First, l)
}

// putDead makes an event a dead letter.
func (tx *Tx) putDead(consumer string, id int64, l store.Failures) error {
	l.DiedAt, l.NextAt = l.LastAt, time.Time{}
	return tx.putLetter(store.Dead, consumer, id, &l)
}

// settleRetry is settle for a dead letter that was sent back. While it waits,
// other events continue.
func (tx *Tx) settleRetry(consumer string, p *Policy, d *store.Delivery, r Result) (outcome, error) {
	d.Count, d.Retry = 0, 0
	key := store.LetterKey(consumer, d.First)
	v, err := tx.s.Get(store.Retries, key)
	if v == nil || err != nil || r.Verdict == Returned {
		return undecided, err
	}
	l, err := store.DecodeLetter(key, v)
	if err != nil {
		return undecided, err
	}
	now := tx.now()
	switch r.Verdict {
	case Succeeded:
		return acked, tx.s.Delete(store.Retries, key)
	case Deferred:
		fail(&l, r, now, false)
		l.NextAt = r.notBefore(now, p, l.Deferrals)
		return undecided, tx.putLetter(store.Retries, consumer, d.First, &l)
	case Postponed:
		postpone(&l, &r, now)
		return undecided, tx.putLetter(store.Retries, consumer, d.First, &l)
	}
	fail(&l, r, now, true)
	if r.Verdict == Failed && l.Round < p.MaxAttempts {
		l.NextAt = r.notBefore(now, p, l.Round)
		return undecided, tx.putLetter(store.Retries, consumer, d.First, &l)
	}
	if err := tx.s.Delete(store.Retries, key); err != nil {
		return undecided, err
	}
	return diedOut, tx.putDead(consumer, d.First, l)
}

// postpone notes that an event is to come later, which is not a failure.
func postpone(l *store.Failures, r *Result, now time.Time) {
	l.LastAt, l.NextAt = now, r.NotBefore
}

// notBefore returns when an event is tried again that has just failed.
func (r *Result) notBefore(now time.Time, p *Policy, n int64) time.Time {
	if !r.NotBefore.IsZero() {
		return r.NotBefore
	}
	return now.Add(p.Backoff(n))
}

// Failures is what is known of a consumer's failed attempts at one event.
type Failures struct {
	// Attempts is how many attempts were counted, those before a retry of the dead
	// letter included. EX_TEMPFAIL does not count.
	Attempts   int64
	ExitCode   int64  // of the latest failure, -1 when there was no exit code
	FirstError string // at most MaxErrorBytes bytes of text
	LastError  string
	FirstAt    time.Time // zero: never failed
	LastAt     time.Time
	NextAt     time.Time // not to be tried before, zero: now
	DiedAt     time.Time // when it became a dead letter, zero: it is none
	// History has the newest MaxHistory of the counted attempts, in their order. Attempts
	// of before a program with this field are not in it.
	History []Failure
}

// Failure is one counted attempt that failed.
type Failure struct {
	At       time.Time
	ExitCode int64  // -1 when there was no exit code
	Error    string // at most MaxHistoryBytes bytes of text
}

// Bounds of Failures.History.
const (
	MaxHistory      = store.MaxHistory
	MaxHistoryBytes = 256
)

// MaxErrorBytes bounds the text of an error that is kept with an event.
const MaxErrorBytes = 1024

// failures is f without what is the engine's own business.
func failures(f *store.Failures) Failures {
	out := Failures{
		Attempts: f.Attempts, ExitCode: f.ExitCode, FirstError: f.FirstError, LastError: f.LastError,
		FirstAt: f.FirstAt, LastAt: f.LastAt, NextAt: f.NextAt, DiedAt: f.DiedAt,
	}
	for _, h := range f.History {
		out.History = append(out.History, Failure(h))
	}
	return out
}

// fail notes one more failure at now.
func fail(l *store.Failures, r Result, now time.Time, counted bool) {
	// A replacement is longer than what it replaces: the bound comes last, and
	// before it only to spare the work.
	text := cutText(strings.ToValidUTF8(redact.Text(cutText(r.Error, 2*MaxErrorBytes)), "\uFFFD"), MaxErrorBytes)
	if l.FirstAt.IsZero() {
		l.FirstAt, l.FirstError = now, text
	}
	l.LastAt, l.LastError, l.ExitCode, l.NextAt = now, text, r.ExitCode, time.Time{}
	if counted {
		l.Attempts++
		l.Round++
		l.Deferrals = 0
		// A new slice: the caller's copy of l may share the old one.
		l.History = append(slices.Clone(l.History), store.Failure{At: now, ExitCode: r.ExitCode, Error: cutText(text, MaxHistoryBytes)})
		l.History = l.History[max(0, len(l.History)-MaxHistory):]
	} else {
		l.Deferrals++
	}
}

// cutText returns the start of s, at most that many bytes, without the half of a
// character at its end.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for n := most; n > most-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:most] // it is not UTF-8
}

// putLetter stores a dead letter in one of its tables.
func (tx *Tx) putLetter(t store.Table, consumer string, id int64, l *store.Failures) error {
	key := store.LetterKey(consumer, id)
	return tx.s.Put(t, key, l.EncodeLetter(key))
}

// attempt returns what is known of an event, and whether anything is.
func (tx *Tx) attempt(consumer string, id int64) (a store.Attempt, ok bool, err error) {
	key := store.LetterKey(consumer, id)
	v, err := tx.s.Get(store.Attempts, key)
	if v == nil || err != nil {
		return a, false, err
	}
	a, err = store.DecodeAttempt(key, v)
	return a, err == nil, err
}

// putAttempt stores what is known of an event, or deletes it where nothing is.
func (tx *Tx) putAttempt(consumer string, id int64, a *store.Attempt) error {
	key := store.LetterKey(consumer, id)
	if a.Void() {
		return tx.s.Delete(store.Attempts, key)
	}
	return tx.s.Put(store.Attempts, key, a.Encode(key))
}

// DeliveryState is what has become of an event for a consumer.
type DeliveryState int

// letterTables are where letters lie, and what it means for them.
var letterTables = []struct {
	table store.Table
	state DeliveryState
}{{store.Retries, Waiting}, {store.Dead, Dead}}

const (
	Unread    DeliveryState = iota // or not yet settled
	Waiting                        // to be tried again: it has failed, was postponed, or sent back
	Dead                           // a dead letter
	Acked                          // or passed over, because the filter did not match
	Unmatched                      // will never be delivered; only Outcome tells
)
