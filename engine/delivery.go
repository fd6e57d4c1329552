package engine

import (
	"fmt"
	"time"

	"thread/index"
)

// delivery is how far a consumer's deliveries are, beside its progress. It is
// valid if and only if its crc fits and it consists of fields in the form of a
// subscription record, followed by a crc of 4 bytes; a field that is missing is
// 0 or empty.
type delivery struct {
	number  int64 // of the latest delivery, they are counted from 1
	first   int64 // ids of its first and last event
	last    int64
	count   int64 // its events while it is out; 0 when its result is stored
	retry   int64 // 1: it is a dead letter that was sent back
	suspect int64 // last id of a group that has failed and is being split, 0: none
	failing int64 // the unread event that has failed, 0: none
	letter  Failures
	retried int64 // how often something was handed back: a dead letter, or by Seek
}

const (
	fieldNumber  = 1
	fieldFirst   = 2
	fieldLast    = 3
	fieldCount   = 4
	fieldRetry   = 5
	fieldSuspect = 6
	fieldFailing = 7
	fieldLetter  = 8 // Failures
	fieldRetried = 9
)

func (d *delivery) numbers() []*int64 {
	return []*int64{fieldNumber: &d.number, fieldFirst: &d.first, fieldLast: &d.last, fieldCount: &d.count,
		fieldRetry: &d.retry, fieldSuspect: &d.suspect, fieldFailing: &d.failing, fieldRetried: &d.retried}
}

func (tx *Tx) delivery(consumer string) (d delivery, err error) {
	bucket, err := tx.later(bucketDeliveries)
	if bucket == nil || err != nil {
		return d, err
	}
	key := consumerKey(consumer)
	v, err := index.Get(bucket, key)
	if v == nil || err != nil {
		return d, err
	}
	b, ok := index.CheckSum(key, v)
	if !ok {
		return d, fmt.Errorf("%w: delivery %q", ErrCorrupt, key)
	}
	numbers := d.numbers()
	return d, eachField(b, func(tag uint64, v []byte) (err error) {
		switch {
		case tag == fieldLetter:
			d.letter, err = decodeFailures(v)
		case tag < uint64(len(numbers)) && numbers[tag] != nil:
			*numbers[tag], err = number(v)
		}
		return err
	})
}

func (tx *Tx) putDelivery(consumer string, d *delivery) error {
	bucket, err := tx.later(bucketDeliveries)
	if err != nil {
		return err
	}
	var b []byte
	for tag, n := range d.numbers() {
		if n != nil {
			b = appendNumber(b, uint64(tag), *n)
		} else if tag == fieldLetter && d.failing != 0 {
			b = appendField(b, fieldLetter, string(d.letter.append(nil)))
		}
	}
	key := consumerKey(consumer)
	return index.Put(bucket, key, index.AppendSum(b, key))
}

// forgetDelivery makes the result of a delivery that is out unwanted, and what
// was known of failing events void: the consumer's position was moved by hand.
func (tx *Tx) forgetDelivery(consumer string) error {
	if b, err := index.Bucket(tx.b, bucketDeliveries); b == nil {
		return err
	}
	d, err := tx.delivery(consumer)
	if err != nil || d.count == 0 && d.suspect == 0 && d.failing == 0 {
		return err
	}
	d.count, d.suspect, d.failing = 0, 0, 0
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
	d.count, d.suspect, d.failing = 0, 0, 0
	d.retried++
	return tx.putDelivery(consumer, &d)
}

// clear forgets the failures of an event that is settled.
func (d *delivery) clear() { d.failing, d.letter = 0, Failures{} }

// failuresOf returns what is known of an unread event.
func (d *delivery) failuresOf(id int64) Failures {
	if d.failing == id {
		return d.letter
	}
	return Failures{}
}

// Policy is what follows a failure. The zero Policy gives single events out, and
// makes a dead letter of one at its first failure.
type Policy struct {
	Limit       int64 // events in one delivery; less than 1 is 1
	MaxAttempts int64 // counted attempts until an event becomes a dead letter; less than 1 is 1
	// Backoff returns the wait after the n-th failure in a row, n from 1; nil is no
	// wait.
	Backoff func(n int64) time.Duration
	// Unordered gives out what is due first, and lets nothing wait for an event that
	// has failed. Limit is 1 then.
	Unordered bool
	// OnSettled is called in the transaction that stores a result, whoever's delivery
	// it was; its error calls that off. May be nil.
	OnSettled func(tx *Tx, s *Settled) error
}

// Result says how a delivery ended.
type Result struct {
	Verdict  Verdict
	ExitCode int64  // -1 when there is none
	Error    string // for people, kept with the event
	// NotBefore is when the event is tried again if it has not succeeded, in place of
	// Policy.Backoff; zero for that. Postponed needs it.
	NotBefore time.Time
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

// fate is what has become of the events of a delivery.
type fate int

const (
	open fate = iota // they will be given out again
	acked
	buried // the event is a dead letter
)

// settle stores the result of the delivery that is out.
func (tx *Tx) settle(consumer string, p *Policy, d *delivery, ids []int64, r Result) (fate, error) {
	if d.retry == 1 {
		return tx.settleRetry(consumer, p, d, r)
	}
	single := d.count == 1
	d.count = 0
	now := tx.t.now()
	switch r.Verdict {
	case Succeeded:
		d.clear()
		return acked, tx.passOver(consumer, d, d.last, ids)
	case Returned:
		return open, nil
	case Deferred:
		l := d.failuresOf(d.first)
		l.fail(r, now, false)
		l.NextAt = r.notBefore(now, p, l.deferrals)
		return open, tx.wait(consumer, p, d, l)
	case Postponed:
		l := d.failuresOf(d.first)
		l.postpone(&r, now)
		return open, tx.wait(consumer, p, d, l)
	}
	if !single {
		d.suspect = d.last
		d.clear()
		return open, nil
	}
	d.suspect = 0 // this is the one; what came after it in the group is whole again
	l := d.failuresOf(d.first)
	l.fail(r, now, true)
	if r.Verdict == Failed && l.round < p.MaxAttempts {
		l.NextAt = r.notBefore(now, p, l.round)
		return open, tx.wait(consumer, p, d, l)
	}
	d.clear()
	if err := tx.passOver(consumer, d, d.first, []int64{d.first}); err != nil {
		return open, err
	}
	return buried, tx.bury(consumer, d.first, l)
}

// passOver moves progress to id and forgets the letters of the events that were
// delivered: progress was moved back before, and these have come again.
func (tx *Tx) passOver(consumer string, d *delivery, id int64, ids []int64) error {
	if d.suspect <= id {
		d.suspect = 0
	}
	for _, name := range [][]byte{bucketDead, bucketRetries} {
		bucket, err := index.Bucket(tx.b, name)
		if err != nil {
			return err
		}
		if bucket == nil {
			continue
		}
		for _, id := range ids {
			if err := index.Delete(bucket, letterKey(consumer, id)); err != nil {
				return err
			}
		}
	}
	p, _, err := tx.Progress(consumer)
	if err != nil || id <= p.From() {
		return err
	}
	return tx.setProgress(consumer, id)
}

// bury makes an event a dead letter.
func (tx *Tx) bury(consumer string, id int64, l Failures) error {
	dead, err := tx.later(bucketDead)
	if err != nil {
		return err
	}
	l.DiedAt, l.NextAt = l.LastAt, time.Time{}
	return putLetter(dead, consumer, id, &l)
}

// settleRetry is settle for a dead letter that was sent back. While it waits,
// other events go on.
func (tx *Tx) settleRetry(consumer string, p *Policy, d *delivery, r Result) (fate, error) {
	d.count, d.retry = 0, 0
	retries, err := tx.later(bucketRetries)
	if err != nil {
		return open, err
	}
	key := letterKey(consumer, d.first)
	v, err := index.Get(retries, key)
	if v == nil || err != nil || r.Verdict == Returned {
		return open, err
	}
	l, err := decodeLetter(key, v)
	if err != nil {
		return open, err
	}
	now := tx.t.now()
	switch r.Verdict {
	case Succeeded:
		return acked, index.Delete(retries, key)
	case Deferred:
		l.fail(r, now, false)
		l.NextAt = r.notBefore(now, p, l.deferrals)
		return open, putLetter(retries, consumer, d.first, &l)
	case Postponed:
		l.postpone(&r, now)
		return open, putLetter(retries, consumer, d.first, &l)
	}
	l.fail(r, now, true)
	if r.Verdict == Failed && l.round < p.MaxAttempts {
		l.NextAt = r.notBefore(now, p, l.round)
		return open, putLetter(retries, consumer, d.first, &l)
	}
	if err := index.Delete(retries, key); err != nil {
		return open, err
	}
	return buried, tx.bury(consumer, d.first, l)
}
