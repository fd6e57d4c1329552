package history

import (
	"context"
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

// expireRuns lets go of runs of handlers whose time has ended, some at once, except for
// those to which a handler has added more than its output.
func (tx *Tx) expireRuns(keep RunRetention) error {
	for class, d := range map[string]time.Duration{"ok": keep.OK, "failed": keep.Failed} {
		p := prefix(byHandlerEnded, class)
		var over []string
		for rec := range tx.by.Ascend(p, after(p)) {
			var row RunRow
			id := string(rec.Value)
			if err := tx.must(&row, id); err != nil {
				return err
			}
			if tx.now.Sub(row.EndedAt) <= d || len(over) >= takeRows {
				break
			}
			if !tx.hasMore(&row) {
				over = append(over, id)
			}
		}
		for _, id := range over {
			if err := tx.deleteAll(RunStep, tx.ids(prefix(byStepRun, id))); err != nil {
				return err
			}
			if err := tx.Delete(RunEntity, id); err != nil {
				return err
			}
		}
	}
	return nil
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
