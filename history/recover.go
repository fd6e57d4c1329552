package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"thread/lock"
)

// Strategy says what becomes of a run whose worker is gone.
type Strategy string

const (
	Fail           Strategy = "fail"            // it has failed
	RequeueRunning Strategy = "requeue_running" // one that was running is queued again, one that waited for a tool has failed
	RequeueAll     Strategy = "requeue_all"     // it is queued again
)

// RecoverOptions say which runs are recovered, and how.
type RecoverOptions struct {
	Strategy Strategy      // "" for Fail
	Every    time.Duration // how often workers beat; 0 for DefaultBeat
	// Start says that a worker has just started: it waits 30 s at least, or twice
	// Every, and not three times, as others that started with it may come back.
	Start bool
	// MaxAttempts is how often a run is queued again by itself; 0 for 1. After that
	// it has failed and stays so until someone requeues it: it is quarantined.
	MaxAttempts int
	// NeverQueued leaves out the runs that came from the queue.
	NeverQueued bool
	// Only, if it is not nil, reports whether a run is to be looked at.
	Only func(row *RunRow) bool
}

// WorkOptions say which runs [History.Work] takes.
type WorkOptions struct {
	Agents   []string       // only runs of these; empty for any
	Parallel int            // how many at once; 0 for 1
	Drain    bool           // end when no run is ready, in place of waiting
	Recover  RecoverOptions // of the runs of workers that are gone
}

// Recovery stands in the metadata of a run, as "recovery".
type Recovery struct {
	Attempts    int    `json:"attempts"` // how often it was queued again by itself
	Reason      string `json:"reason"`
	Strategy    string `json:"strategy,omitempty"`
	From        string `json:"from,omitempty"` // its status before
	At          string `json:"at,omitempty"`
	Attempt     int64  `json:"attempt,omitempty"` // the attempt that was taken away
	Quarantined bool   `json:"quarantined,omitempty"`
}

func recoveryOf(row *RunRow) (r Recovery) {
	var in struct {
		Recovery Recovery `json:"recovery"`
	}
	if json.Unmarshal(row.Metadata, &in) == nil {
		r = in.Recovery
	}
	return r
}

func stateError(row *RunRow, what string) error {
	return fmt.Errorf("%w: %q is %s and cannot be %s", ErrState, row.ID, row.Status, what)
}

// staleAfter returns how long a run may be silent.
func (o *RecoverOptions) staleAfter(row *RunRow) time.Duration {
	every := o.Every
	if every <= 0 {
		every = DefaultBeat
	}
	every = max(every, MinBeat, time.Duration(row.BeatEvery)*time.Millisecond)
	if o.Start {
		return max(30*time.Second, 2*every)
	}
	return 3 * every
}

// Recover deals with the active runs whose workers are gone, and returns them as they
// are now. A supervised run is gone when no process has its lock, on this host and at
// once; another one when it has not beaten for three times as long as it should. A run
// of which no beat is known counts from now on. What is left of the command of a run whose
// worker is gone is ended first: SIGTERM, and SIGKILL 10 s later. The transition is made only while the
// run is still in the attempt and state that was read.
func (h *History) Recover(ctx context.Context, o RecoverOptions) (recovered []RunRow, err error) {
	switch o.Strategy {
	case "":
		o.Strategy = Fail
	case Fail, RequeueRunning, RequeueAll:
	default:
		return nil, invalidf("strategy %q is none of fail, requeue_running, requeue_all", string(o.Strategy))
	}
	if h.of != nil {
		h.endLocal(ctx)
	}
	active, judged, err := h.judgeActive(ctx, &o)
	if err != nil {
		return nil, err
	}
	if slices.Contains(judged, left) {
		h.endAllLeft(ctx, active, judged)
		if active, judged, err = h.judgeActive(ctx, &o); err != nil {
			return nil, err
		}
	}
	for i := range active {
		row := &active[i]
		switch judged[i] {
		case alive, left:
			continue
		case unknown:
			_ = h.touch(ctx, row.ID) // counts from now; a directory that cannot be written recovers nothing
			continue
		}
		switch done, err := h.recoverOne(ctx, row, &o); {
		case err != nil:
			return recovered, err
		case done:
			recovered = append(recovered, *row)
		}
	}
	return recovered, nil
}

// judgeActive returns the active runs that are to be looked at, and what is known of each.
func (h *History) judgeActive(ctx context.Context, o *RecoverOptions) (active []RunRow, judged []vitality, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		for _, id := range tx.ids([]byte{byActiveAll}) {
			var row RunRow
			if err := tx.must(&row, id); err != nil {
				return err
			}
			switch is, err := o.wants(tx, &row); {
			case err != nil:
				return err
			case !is:
				continue
			}
			v, _ := tx.judge(&row, o.staleAfter(&row))
			active, judged = append(active, row), append(judged, v)
		}
		return nil
	})
	return active, judged, err
}

// wants reports whether the run is to be looked at.
func (o *RecoverOptions) wants(tx *Tx, row *RunRow) (bool, error) {
	if o.Only != nil && !o.Only(row) {
		return false, nil
	}
	if !o.NeverQueued {
		return true, nil
	}
	queued, err := tx.wasQueued(row.ID)
	return !queued, err
}

// errAlive says that a run has shown that it lives.
var errAlive = errors.New("the run lives")

// recoverOne makes the transition, unless the run has changed.
func (h *History) recoverOne(ctx context.Context, row *RunRow, o *RecoverOptions) (bool, error) {
	err := h.Update(ctx, func(tx *Tx) error {
		var now RunRow
		if ok, err := tx.Get(&now, row.ID); err != nil || !ok || now.Attempt != row.Attempt || now.Status != row.Status {
			return cmp.Or(err, errAlive)
		}
		v, silent := tx.judge(&now, o.staleAfter(&now))
		if v != dead {
			return errAlive
		}
		*row = now
		return tx.recover(row, o, silent)
	})
	if errors.Is(err, errAlive) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h.forget(row.ID)
	return true, nil
}

// recover stores what becomes of a run whose worker is gone: the end that it has kept, or
// what the strategy says.
func (tx *Tx) recover(row *RunRow, o *RecoverOptions, silent time.Duration) error {
	if k := tx.h.keptEnd(row); k != nil {
		return tx.putKept(row, k)
	}
	if err := tx.endSteps(row.ID); err != nil {
		return err
	}
	tx.leftSteps(row.ID)
	rec := recoveryOf(row)
	rec.Reason = fmt.Sprintf("no heartbeat for %s", silent.Round(time.Millisecond))
	if row.Supervised {
		rec.Reason = "its process has ended"
	}
	rec.Strategy, rec.From, rec.At, rec.Attempt = string(o.Strategy), row.Status, tx.now.Format(time.RFC3339), row.Attempt
	again := o.Strategy == RequeueAll || o.Strategy == RequeueRunning && row.Status == Running
	code := CodeRecovery
	if most := max(o.MaxAttempts, 1); again && rec.Attempts >= most {
		again, rec.Quarantined, code = false, true, CodeQuarantined
	}
	switch {
	case !row.CancelRequestedAt.IsZero(): // no caller wants it any more
		row.Status = Cancelled
	case again:
		rec.Attempts++
		return tx.requeue(row, rec)
	default:
		if again, err := tx.again(row, &End{Status: Failed, ErrorMessage: rec.Reason}); again || err != nil {
			return err
		}
		row.Status = Failed
	}
	row.EndedAt, row.ErrorCode, row.ErrorMessage = tx.now, code, rec.Reason
	var err error
	if row.Metadata, err = SetMember(row.Metadata, "recovery", rec); err != nil {
		return err
	}
	return tx.Put(row)
}

// leftSteps notes the steps of a run whose attempt ends: a process that died has left their
// locks. Most runs have none, and then the steps are not read.
func (tx *Tx) leftSteps(run string) {
	dir, err := os.Open(tx.h.beatDir())
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what cannot be read stays
	ofStep := func(name string) bool { return strings.HasPrefix(name, DoType+"_") }
	if !slices.ContainsFunc(names, ofStep) {
		return
	}
	for _, id := range tx.ids(prefix(byStepRun, run)) {
		if ofStep(id) && slices.Contains(names, id) {
			tx.steps = append(tx.steps, id)
		}
	}
}

// endSteps marks the steps as failed that a worker which is gone has left running.
func (tx *Tx) endSteps(run string) error {
	for _, id := range tx.ids(prefix(byStepRun, run)) {
		var s StepRow
		if err := tx.must(&s, id); err != nil {
			return err
		}
		if s.Status != Running {
			continue
		}
		if s.inDoubt() {
			if err := tx.doubt(&s); err != nil {
				return err
			}
			continue
		}
		s.Status, s.EndedAt = Failed, tx.now
		if err := tx.Put(&s); err != nil {
			return err
		}
	}
	return nil
}

// keptEnd is the end of a run that could not be stored, as run/.beat/<run>~end has it.
type keptEnd struct {
	Attempt int64         `json:"attempt"`
	EndedAt time.Time     `json:"ended_at"`
	Status  string        `json:"status"`
	Code    string        `json:"error_code"`
	Message string        `json:"error_message"`
	StepID  string        `json:"step_id"`
	Output  []byte        `json:"output"`
	Later   time.Duration `json:"later,omitempty"`
}

// Keep keeps the end of a run that could not be stored, with the output of its step, for
// recovery to store. The run is left then.
func (r *Run) Keep(e End, step *StepRow) error {
	text, err := json.Marshal(keptEnd{Attempt: r.attempt, EndedAt: r.h.now(), Status: e.Status, Code: e.ErrorCode, Message: e.ErrorMessage,
		StepID: step.ID, Output: step.Output, Later: e.Later})
	if err != nil {
		return err
	}
	f, err := lock.Create(r.h.keptPath(r.id), os.O_WRONLY|os.O_TRUNC|lock.NoFollow)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		r.Leave()
	}
	return err
}

// keptEnd returns the end that the run has kept in its attempt, nil for none.
func (h *History) keptEnd(row *RunRow) *keptEnd {
	text, err := lock.ReadFile(h.keptPath(row.ID))
	var k keptEnd
	if err != nil || json.Unmarshal(text, &k) != nil || k.Attempt != row.Attempt || k.Status != Waiting && !(&RunRow{Status: k.Status}).Ended() {
		return nil
	}
	return &k
}

// Requeue gives a run that has failed or timed out back to the queue, where its old
// place is the first of its session. It returns [ErrState] for any other one.
func (h *History) Requeue(ctx context.Context, id string) (row RunRow, err error) {
	err = h.Update(ctx, func(tx *Tx) error {
		row = RunRow{}
		if err := tx.must(&row, id); err != nil {
			return err
		}
		if row.Status != Failed && row.Status != TimedOut {
			return stateError(&row, "requeued")
		}
		rec := recoveryOf(&row)
		rec.Attempts, rec.Quarantined, rec.Reason = 0, false, "requeued by hand"
		if job, is := JobOf(&row); is {
			job.Failures, job.Due = 0, time.Time{}
			if err := SetJob(&row, job); err != nil {
				return err
			}
		}
		return tx.requeue(&row, rec)
	})
	return row, err
}

// requeue stores the run as queued.
func (tx *Tx) requeue(row *RunRow, rec Recovery) error {
	var err error
	if row.Metadata, err = SetMember(row.Metadata, "recovery", rec); err != nil {
		return err
	}
	return tx.queueAs(row, Queued)
}

// putKept stores it.
func (tx *Tx) putKept(row *RunRow, k *keptEnd) error {
	var s StepRow
	if ok, err := tx.Get(&s, k.StepID); err != nil {
		return err
	} else if ok && s.RunID == row.ID && s.Status == Running {
		s.Status, s.EndedAt, s.Output = k.Status, k.EndedAt, k.Output
		if err := tx.Put(&s); err != nil {
			return err
		}
	}
	if err := tx.endSteps(row.ID); err != nil {
		return err
	}
	return tx.finish(row, &End{Status: k.Status, ErrorCode: k.Code, ErrorMessage: k.Message, Later: k.Later}, k.EndedAt)
}

// finish stores the end of an attempt, which is the end of the run, unless a job is to be tried again.
func (tx *Tx) finish(row *RunRow, end *End, at time.Time) error {
	tx.leftSteps(row.ID)
	e := *end
	if e.Status == Waiting {
		if parked, err := tx.park(row); parked || err != nil {
			return err
		}
		if e.Status = Failed; !row.CancelRequestedAt.IsZero() {
			e = End{Status: Cancelled}
		}
	}
	if again, err := tx.again(row, &e); again || err != nil {
		return err
	}
	row.Status, row.EndedAt = e.Status, at
	row.ErrorCode, row.ErrorMessage = e.ErrorCode, e.ErrorMessage
	return tx.Put(row)
}
