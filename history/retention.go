package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"thread/engine"
)

// RunRetention says how long runs of handlers are kept once they have ended. Other
// runs have none, but their history events may have one.
type RunRetention struct {
	Off    bool          // none is recorded
	OK     time.Duration // those that went well
	Failed time.Duration // all others
	// Events is how long history events are kept, of whatever they tell, MaxBytes how large
	// the history's events.db and MaxEvents how many they may become: the oldest go. Rows
	// stay, as with [History.Prune]. 0: until they are pruned.
	Events              time.Duration
	MaxBytes, MaxEvents int64 // MaxBytes at least [engine.MinLimitBytes]
}

// DefaultRunRetention is a day, and a week for what failed.
var DefaultRunRetention = RunRetention{OK: 24 * time.Hour, Failed: 7 * 24 * time.Hour}

// The table of the thread itself that holds it. internal/dispatch asks for "off".
const (
	runsTable     = "runs"
	runsOffKey    = "off"
	runsOKKey     = "ok" // milliseconds
	runsFailedKey = "failed"
	runsEventsKey = "events"
	runsBytesKey  = "max_bytes"
	runsCountKey  = "max_events"
	runsTriedKey  = "tried" // when history events could not be dropped, as Unix milliseconds
)

// RunRetention returns what holds for the thread.
func (h *History) RunRetention(ctx context.Context) (r RunRetention, err error) {
	t, done, err := h.parentThread()
	if err != nil {
		return r, err
	}
	defer done()
	err = t.View(ctx, func(tx *engine.Tx) error {
		table, err := tx.Records(runsTable)
		if err != nil {
			return err
		}
		r = DefaultRunRetention
		r.Off = table.Get([]byte(runsOffKey)) != nil
		for key, d := range map[string]*time.Duration{runsOKKey: &r.OK, runsFailedKey: &r.Failed, runsEventsKey: &r.Events} {
			if ms, err := strconv.ParseInt(string(table.Get([]byte(key))), 10, 64); err == nil && ms > 0 {
				*d = time.Duration(ms) * time.Millisecond
			}
		}
		for key, most := range map[string]*int64{runsBytesKey: &r.MaxBytes, runsCountKey: &r.MaxEvents} {
			if n, err := strconv.ParseInt(string(table.Get([]byte(key))), 10, 64); err == nil && n > 0 {
				*most = n
			}
		}
		return nil
	})
	return r, err
}

// SetRunRetention changes it. It holds for what is recorded already from the next run
// on that is recorded.
func (h *History) SetRunRetention(ctx context.Context, r RunRetention) error {
	if r.OK < time.Millisecond || r.Failed < time.Millisecond {
		return invalidf("a retention of less than a millisecond")
	}
	if r.Events < 0 || r.MaxBytes < 0 || r.MaxEvents < 0 {
		return invalidf("a negative retention")
	}
	if r.MaxBytes != 0 && r.MaxBytes < engine.MinLimitBytes {
		return invalidf("%d bytes are fewer than %d", r.MaxBytes, engine.MinLimitBytes)
	}
	return h.updateRuns(ctx, func(table *engine.Records) error {
		for key, n := range map[string]int64{runsOKKey: r.OK.Milliseconds(), runsFailedKey: r.Failed.Milliseconds(),
			runsEventsKey: r.Events.Milliseconds(), runsBytesKey: r.MaxBytes, runsCountKey: r.MaxEvents} {
			if err := table.Put([]byte(key), strconv.AppendInt(nil, n, 10)); err != nil {
				return err
			}
		}
		if err := table.Delete([]byte(runsTriedKey)); err != nil {
			return err
		}
		if r.Off {
			return table.Put([]byte(runsOffKey), []byte("1"))
		}
		return table.Delete([]byte(runsOffKey))
	})
}

// updateRuns changes what the thread itself holds.
func (h *History) updateRuns(ctx context.Context, change func(table *engine.Records) error) error {
	t, done, err := h.parentThread()
	if err != nil {
		return err
	}
	defer done()
	return t.Update(ctx, func(tx *engine.Tx) error {
		table, err := tx.Records(runsTable)
		if err != nil {
			return err
		}
		return change(table)
	})
}

// hasMore reports whether more hangs on a run than the step with its output.
func (tx *Tx) hasMore(row *RunRow) bool {
	if row.SessionID != "" || len(tx.ids(prefix(byStepRun, row.ID))) > 1 {
		return true
	}
	for _, index := range []byte{byToolRun, byHookRun, byActionRun, byArtifactRun, byMessageRun, byRunParent} {
		if tx.any(prefix(index, row.ID)) {
			return true
		}
	}
	return false
}

// retryEvents is how long no process tries after an attempt to drop history events failed.
const retryEvents = 10 * time.Minute

// RowsHeldError says that history events exceed a limit of [RunRetention] and stay, as
// almost all of them are the newest of a row.
type RowsHeldError struct {
	Unit string // "events" or "bytes"
	Over int64  // that many more than the limit there are
	Old  int64  // that many could go
}

func (e *RowsHeldError) Error() string {
	return fmt.Sprintf("rows stay, and only %d %s of the older ones could be dropped; the limit is exceeded by %d", e.Old, e.Unit, e.Over)
}

// EventsDue reports whether history events are older than RunRetention.Events, by a
// 32nd of that, at most a day, or too many or too large: the database is rewritten to
// drop them.
func (h *History) EventsDue(ctx context.Context, r RunRetention) (due bool, err error) {
	old, events, bytes, err := h.over(ctx, r)
	return old || events > 0 || bytes > 0, err
}

// over reports whether the oldest history event is too old, and by how much they are
// over the limits, 0 for not.
func (h *History) over(ctx context.Context, r RunRetention) (old bool, events, bytes int64, err error) {
	if r.Events == 0 && r.MaxEvents == 0 && r.MaxBytes == 0 {
		return false, 0, 0, nil
	}
	before := h.now().Add(-r.Events - min(r.Events/32, 24*time.Hour, math.MaxInt64-r.Events))
	err = h.View(ctx, func(tx *Tx) error {
		if r.MaxEvents > 0 {
			events = max(0, tx.e.Stored()-r.MaxEvents)
		}
		if r.MaxBytes > 0 {
			bytes = max(0, tx.e.Size()-r.MaxBytes)
		}
		if r.Events == 0 {
			return nil
		}
		for e, err := range tx.e.Events(0) {
			if err != nil {
				return err
			}
			at, err := time.Parse(time.RFC3339, e.CreatedAt)
			old = err == nil && at.Before(before)
			break
		}
		return nil
	})
	return old, events, bytes, err
}

// RetainEvents drops history events as [RunRetention] says, when enough are due; an
// eighth more than its limits ask for. With dryRun it only tells what keeps it from that.
// It returns *[engine.HeldBackError], [*RowsHeldError] where the rows leave less than an eighth
// of a limit to drop, and the other errors of [History.Prune].
func (h *History) RetainEvents(ctx context.Context, dryRun bool) error {
	r, err := h.RunRetention(ctx)
	if err != nil {
		return err
	}
	old, events, bytes, err := h.over(ctx, r)
	if err == nil && old {
		if _, _, err = h.Prune(ctx, engine.Retention{OlderThan: h.now().Add(-r.Events), Lines: true, DryRun: dryRun}); err == nil && !dryRun {
			_, events, bytes, err = h.over(ctx, r)
		}
	}
	if err != nil || events == 0 && bytes == 0 {
		return err
	}
	through, err := h.beyond(ctx, r, events, bytes)
	if err != nil {
		return err
	}
	_, _, err = h.Prune(ctx, engine.Retention{Through: through, Lines: true, DryRun: dryRun})
	return err
}

// Prune drops history events as [engine.Thread.Prune] does, and keeps every row: one
// whose newest version is among what goes is first written again, unchanged, as
// OpReplace. It returns how many those were. The errors are the errors of
// [engine.Thread.Prune], and [ErrOwner], as pruning may put another file in the place of
// the database.
func (h *History) Prune(ctx context.Context, r engine.Retention) (c engine.Compaction, replaced int64, err error) {
	t, err := h.thread(false)
	if err != nil || t == nil {
		return c, 0, err
	}
	if err := h.mayReplace(); err != nil && !r.DryRun {
		return c, 0, err
	}
	dry := r
	dry.DryRun = true
	if c, err = t.Prune(ctx, dry); err != nil || c.Through == 0 {
		return c, 0, err
	}
	through := c.Through
	for from := int64(0); from < through; {
		n, next, err := h.replaceSome(ctx, from, through, r.DryRun)
		replaced += n
		if err != nil {
			return c, replaced, err
		}
		from = next
	}
	if !r.DryRun {
		c, err = t.Prune(ctx, engine.Retention{Through: through, Force: r.Force, Lines: r.Lines})
	}
	return c, replaced, err
}

// beyond returns the id up to which history events are to go, so that those that go for
// good are as many and as long as they exceed the limits, and an eighth of the limit.
func (h *History) beyond(ctx context.Context, r RunRetention, events, bytes int64) (through int64, err error) {
	moreEvents, moreBytes := events, bytes // to drop yet
	if events > 0 {
		moreEvents += r.MaxEvents / 8
	}
	if bytes > 0 {
		moreBytes += r.MaxBytes / 8
	}
	var head, goneEvents, goneBytes int64
	enough := func() bool { return goneEvents >= moreEvents && goneBytes >= moreBytes }
	for at, more := int64(0), true; more && err == nil && !enough(); {
		err = h.View(ctx, func(tx *Tx) error {
			if more = false; head == 0 {
				head = tx.e.Head() // what comes later is for the next time
			}
			seen := 0
			for e, err := range tx.e.Events(at) {
				if err != nil {
					return err
				}
				if seen++; enough() || e.ID > head {
					return nil
				} else if seen > 10*replaceRows {
					more = true
					return nil
				}
				_, newest, err := tx.newest(e)
				if err != nil {
					return err
				}
				if at = e.ID; !newest {
					through = e.ID
					goneEvents++
					goneBytes += int64(len(e.Content)) + 32
				}
			}
			return nil
		})
	}
	switch {
	case err != nil || enough(),
		events > 0 && goneEvents >= max(1, r.MaxEvents/8),
		bytes > 0 && goneBytes >= r.MaxBytes/8:
		return through, err
	case goneEvents < moreEvents:
		return 0, &RowsHeldError{Unit: "events", Over: events, Old: goneEvents}
	}
	return 0, &RowsHeldError{Unit: "bytes", Over: bytes, Old: goneBytes}
}

// retainLater is RetainEvents, except for a while after it could not.
func (h *History) retainLater(ctx context.Context) error {
	r, err := h.RunRetention(ctx)
	if err != nil {
		return err
	}
	if h.of != nil && r.Events == 0 && r.MaxEvents == 0 && r.MaxBytes == 0 {
		return nil // spares a server what a directory is asked for nothing
	}
	due, err := h.EventsDue(ctx, r)
	if err != nil {
		return err
	}
	tried, err := h.eventsTried(ctx)
	if err != nil {
		return err
	}
	if wait := h.now().Sub(tried); due && wait >= 0 && wait < retryEvents {
		return nil
	}
	if due {
		err = h.RetainEvents(ctx, false)
	}
	if err == nil && tried.IsZero() {
		return nil
	}
	return errors.Join(err, h.updateRuns(ctx, func(table *engine.Records) error {
		if err == nil {
			return table.Delete([]byte(runsTriedKey))
		}
		return table.Put([]byte(runsTriedKey), strconv.AppendInt(nil, h.now().UnixMilli(), 10))
	}))
}

// eventsTried returns when dropping history events failed last, the zero time when the latest
// attempt did not.
func (h *History) eventsTried(ctx context.Context) (at time.Time, err error) {
	t, done, err := h.parentThread()
	if err != nil {
		return at, err
	}
	defer done()
	return LimitsHeld(ctx, t)
}

// LimitsHeld returns when the history of the thread, over a limit of [RunRetention], last failed
// to drop history events. It is the zero time where the latest attempt did not fail.
func LimitsHeld(ctx context.Context, t *engine.Thread) (at time.Time, err error) {
	err = t.View(ctx, func(tx *engine.Tx) error {
		table, err := tx.Records(runsTable)
		if err != nil {
			return err
		}
		if ms, err := strconv.ParseInt(string(table.Get([]byte(runsTriedKey))), 10, 64); err == nil {
			at = time.UnixMilli(ms)
		}
		return nil
	})
	return at, err
}
