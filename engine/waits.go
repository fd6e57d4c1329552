package engine

import (
	"time"

	"thread/event"
	"thread/internal/store"
)

// waits are the ends of the waits of events that this process has seen, with the
// reading of the monotonic clock: they end when they would have, however the clock
// is set meanwhile. A wait that would be longer than it was to be when it began was
// noted by a clock that was ahead, and has ended.
type waits map[int64]struct{ nextAt, end time.Time }

// end returns when the wait of an event ends that has failed.
func (w waits) end(id int64, l *store.Failures, now time.Time) time.Time {
	seen, ok := w[id]
	if !ok || !seen.nextAt.Equal(l.NextAt) {
		seen.nextAt, seen.end = l.NextAt, now.Add(l.NextAt.Sub(now))
		w[id] = seen
	}
	if seen.end.Sub(now) > l.NextAt.Sub(l.LastAt) {
		seen.end = now
	}
	if !seen.end.After(now) {
		delete(w, id)
	}
	return seen.end
}

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// nextRetry returns the first dead letter of consumer that was sent back and may
// be tried now, and when the earliest of the others may. One above from is left
// out: progress was moved back, and it comes by itself.
func (tx *Tx) nextRetry(consumer string, from int64, now time.Time, w waits) (e event.Event, l store.Failures, at time.Time, err error) {
	set, err := tx.settledOf(consumer, from)
	if err != nil {
		return e, l, at, err
	}
	err = tx.eachLetter(store.Retries, consumer, func(k, v []byte) (more bool, err error) {
		_, id, err := store.SplitLetterKey(k)
		if err != nil {
			return false, err
		}
		if id > from {
			if _, settled := set.find(id); !settled {
				return true, nil
			}
		}
		if l, err = store.DecodeLetter(k, v); err != nil {
			return false, err
		}
		if end := w.end(id, &l, now); end.After(now) {
			at = earlier(at, end)
			return true, nil
		}
		found, ok, err := tx.s.Event(id)
		if ok {
			e = found
		}
		return !ok, err
	})
	return e, l, at, err
}
