package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"thread/engine"
)

// Enqueue stores a new run that waits until [History.Claim] starts it: after the runs
// of its session that came before. Its job, if it has one, is set by [SetJob]. The errors
// are the errors of [History.StartRun], except for [ErrActive].
func (h *History) Enqueue(ctx context.Context, row RunRow) (RunRow, error) {
	row, _, err := h.EnqueueJob(ctx, row, nil)
	return row, err
}

// EnqueueJob is [History.Enqueue] of a job with an input, which is JSON or nil. It returns
// the run that has not ended yet, and true, where that has the unique key of the new one.
func (h *History) EnqueueJob(ctx context.Context, row RunRow, input json.RawMessage) (stored RunRow, known bool, err error) {
	list := []NewJob{{RunRow: row, Input: input}}
	err = h.EnqueueJobs(ctx, list)
	return list[0].RunRow, list[0].Known, err
}

// NewJob is a job to be enqueued.
type NewJob struct {
	RunRow
	Input json.RawMessage
	Known bool // set: the run has the unique key, and was there before
}

// EnqueueJobs is [History.EnqueueJob] of many jobs: all of them, or none. It changes the list to
// what is stored.
func (h *History) EnqueueJobs(ctx context.Context, list []NewJob) error {
	jobs, drafts := make([]Job, len(list)), slices.Clone(list)
	var rows, steps, unique [][]byte
	for i := range drafts {
		row := &drafts[i]
		row.Known = false
		if len(row.Input) > MaxInput {
			return invalidf("the input has %d bytes, the limit is %d", len(row.Input), MaxInput)
		}
		jobs[i], _ = JobOf(&row.RunRow)
		if row.ID == "" {
			row.ID = newID(RunEntity)
		}
		if err := jobs[i].valid(row.ID); err != nil {
			return err
		}
		rows = append(rows, rowKey(RunEntity, row.ID), rowKey(Session, row.SessionID), rowKey(RunStep, inputStep(row.ID)))
		steps = append(steps, indexKey(byStepRun, 1, row.ID))
		if u := jobs[i].Unique; u != "" {
			unique = append(unique, prefix(byUnique, u))
		}
	}
	ctx = h.wants(ctx, append(rows, rowKey(Limit, "workspace:"))...)
	ctx = h.wantsIndexes(ctx, steps, unique...)
	stored := make([]NewJob, len(list))
	err := h.share(ctx, func(tx *Tx) error {
		copy(stored, drafts)
		for i := range stored {
			if err := tx.enqueueOnce(&stored[i], &jobs[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		copy(list, stored)
	}
	return err
}

// enqueueOnce enqueues a job, unless there is one with its unique key.
func (tx *Tx) enqueueOnce(n *NewJob, job *Job) error {
	if job.Unique != "" {
		for _, id := range tx.ids(prefix(byUnique, job.Unique)) {
			n.Known = true
			return tx.must(&n.RunRow, id)
		}
	}
	return tx.enqueue(&n.RunRow, job, n.Input)
}

// Input is [History.Input] of the run.
func (r *Run) Input(ctx context.Context) (json.RawMessage, error) {
	if r.hasInput {
		return r.input, nil
	}
	return r.h.Input(ctx, r.id)
}

// AwaitEnd returns the run when it has ended. When ctx ends before, it returns the run as it
// is, and the cause.
func (h *History) AwaitEnd(ctx context.Context, id string) (row RunRow, err error) {
	t, err := h.thread(true)
	if err != nil {
		return row, err
	}
	w, err := t.Watch() // before the first look: nothing falls between
	if err != nil {
		return row, err
	}
	defer h.leaveWatch(w)
	for {
		row = RunRow{}
		if err := h.Get(context.WithoutCancel(ctx), &row, id); err != nil || row.Ended() {
			return row, err
		}
		if err := w.Wait(ctx, time.Time{}); err != nil {
			return row, err
		}
	}
}

// Result returns the result of a run: JSON, and whether that is a string of a text that was
// not JSON; nil where it has none.
func (h *History) Result(ctx context.Context, run string) (value json.RawMessage, isText bool, err error) {
	for s, err := range h.Steps(ctx, run) {
		if err != nil {
			return nil, false, err
		}
		var r result
		if s.Status == Completed && s.StepType != WaitType && bytes.Contains(s.Output, []byte(`"result":`)) && json.Unmarshal(s.Output, &r) == nil && r.Result != nil {
			value, isText = r.Result, r.Text
		}
	}
	return value, isText, nil
}

// ForAgents lets [History.Claim] start only runs of these agents.
func ForAgents(agents ...string) RunOption {
	return func(o *runOptions) { o.agents = agents }
}

// Claim starts the run in the queue that is to start next: it is due, its session has no
// active one, its workspace and subject may have one more, and no rate of starts is
// reached. The one with the highest priority is first, and of these the oldest. It returns
// [ErrNoneReady] when there is none. No two callers get the same run.
func (h *History) Claim(ctx context.Context, opts ...RunOption) (*Run, RunRow, error) {
	var o runOptions
	for _, opt := range opts {
		opt(&o)
	}
	if t, err := h.thread(false); err != nil || t == nil {
		return nil, RunRow{}, errors.Join(err, ErrNoneReady)
	}
	next, ready, err := h.release(ctx)
	if err != nil {
		return nil, RunRow{}, err
	}
	if !ready {
		return nil, RunRow{}, &noneReady{at: next}
	}
	c := claim{o: &o}
	err = h.afterLeft(ctx, func() error {
		return h.share(h.wantsNext(ctx, ""), func(tx *Tx) error { return c.in(ctx, tx) })
	})
	if c.none != nil {
		c.none.sooner(next)
		err = cmp.Or[error](err, c.none)
	}
	if err != nil {
		c.drop()
		return nil, RunRow{}, err
	}
	return c.r, c.row, nil
}

// claim is the run that a transaction takes out of the queue.
type claim struct {
	o    *runOptions
	r    *Run
	row  RunRow
	none *noneReady
}

// in takes the run, in a transaction that may follow one which was undone.
func (c *claim) in(ctx context.Context, tx *Tx) (err error) {
	c.drop()
	c.r, c.row, err = tx.take(ctx, c.o)
	if c.none = nil; errors.As(err, &c.none) && c.none.commit {
		return nil
	}
	return err
}

// drop gives up the run, which is not stored as started.
func (c *claim) drop() {
	if c.r != nil {
		c.r.release(true)
		c.r = nil
	}
}

// endThenClaim ends the run, and in the same commit takes the next one out of the queue: nil
// where none is ready.
func (r *Run) endThenClaim(ctx context.Context, e End, o *runOptions) (*Run, RunRow, error) {
	end := context.WithoutCancel(ctx)
	if ctx.Err() != nil {
		return nil, RunRow{}, r.End(end, e)
	}
	c, claimed := claim{o: o}, false
	err := r.h.share(r.h.wantsNext(end, r.id), func(tx *Tx) error {
		claimed = true
		if err := r.end(tx, &e); err != nil {
			return err
		}
		if c.drop(); tx.mayRelease() {
			return nil // Claim does it
		}
		err := c.in(end, tx)
		if claimed = err == nil || errors.Is(err, ErrNoneReady); claimed {
			return nil
		}
		return err
	})
	if !claimed {
		c.drop()
		return nil, RunRow{}, r.End(end, e)
	}
	r.ended(err)
	if err != nil {
		c.drop()
	}
	return c.r, c.row, err
}

// wantsNext returns ctx for a transaction that takes the next run, and ends one before, "" for
// none.
func (h *History) wantsNext(ctx context.Context, run string) context.Context {
	ctx = h.wants(ctx, rowKey(RunEntity, run), rowKey(Limit, "workspace:"))
	return h.wantsIndexes(ctx, nil, append(slices.Clip(queuePlaces), []byte{byLimit}, prefix(byAfter, run))...)
}

// Waiting returns how many runs are ready, of each session one at most and whatever the
// limits say, how many are active, and the id of the newest history event: while that
// stays the same, so do the numbers.
func (h *History) Waiting(ctx context.Context) (ready, active int, head int64, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		ready, active, head = tx.ready(), len(tx.ids([]byte{byActiveAll})), tx.e.Head()
		return nil
	})
	return ready, active, head, err
}

// ClaimWait is [History.Claim] that waits until a run is ready. It returns the cause
// of the end of ctx.
func (h *History) ClaimWait(ctx context.Context, opts ...RunOption) (*Run, RunRow, error) {
	t, err := h.thread(true)
	if err != nil {
		return nil, RunRow{}, err
	}
	w, err := t.Watch()
	if err != nil {
		return nil, RunRow{}, err
	}
	defer h.leaveWatch(w)
	events := eventWatch{h: h}
	defer events.close()
	for {
		r, row, err := h.claimOr(ctx, &events, w, opts)
		if !errors.Is(err, ErrNoneReady) {
			return r, row, err
		}
	}
}

// claimOr is Claim that waits for what may make a run ready, and then returns ErrNoneReady.
func (h *History) claimOr(ctx context.Context, events *eventWatch, w engine.Watcher, opts []RunOption) (*Run, RunRow, error) {
	r, row, err := h.Claim(ctx, opts...)
	if !errors.Is(err, ErrNoneReady) {
		return r, row, err
	}
	until := h.now().Add(DefaultBeat)
	var none *noneReady
	if errors.As(err, &none) && !none.at.IsZero() && none.at.Before(until) {
		until = none.at
	}
	waiting, stop, watched, werr := events.context(ctx)
	if werr != nil || !watched {
		return nil, RunRow{}, cmp.Or(werr, err)
	}
	defer stop()
	if werr := w.Wait(waiting, until); werr != nil && (ctx.Err() != nil || waiting.Err() == nil) {
		return nil, RunRow{}, werr
	}
	return nil, RunRow{}, err
}

// Work calls fn for each run of the queue that is ready, until ctx ends, and returns the cause.
// What fn returns is the result of the run, at most MaxResult bytes. An error of fn fails the
// attempt, except for [ErrWaiting] of [Run.Wait] and [Later].
//
// The context of fn ends with ctx, when the run is to be cancelled, or when the time of its job
// has passed. A run whose fn returns an error after the end of ctx is queued again. Any number of
// workers may work next to each other.
func (h *History) Work(ctx context.Context, o WorkOptions, fn func(ctx context.Context, r *Run) (json.RawMessage, error)) error {
	start := o.Recover
	start.Start = true
	if _, err := h.Recover(ctx, start); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var workers, recovery sync.WaitGroup
	for range max(o.Parallel, 1) {
		workers.Go(func() {
			if err := h.workOne(ctx, &o, fn); err != nil {
				stop(err)
			}
		})
	}
	recovery.Go(func() {
		for pause(ctx, 3*DefaultBeat) == nil {
			_, _ = h.Recover(ctx, o.Recover) // the next one tries again
		}
	})
	workers.Wait()
	cause := context.Cause(ctx)
	stop(nil)
	recovery.Wait()
	return cause
}

// workOne works on one run after the other.
func (h *History) workOne(ctx context.Context, o *WorkOptions, fn func(context.Context, *Run) (json.RawMessage, error)) error {
	claim := h.ClaimWait
	if o.Drain {
		claim = h.Claim
	}
	options := runOptions{supervised: true, alone: true, agents: o.Agents}
	for ctx.Err() == nil {
		r, row, err := claim(ctx, func(o *runOptions) { *o = options })
		switch {
		case errors.Is(err, engine.ErrBusy):
			continue
		case errors.Is(err, ErrNoneReady):
			return nil
		case err != nil:
			return err
		}
		for err == nil && r != nil {
			r, row, err = r.workOn(ctx, &row, &options, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// workOn calls fn for the run, ends it, and returns the next one that it has taken, nil for none.
func (r *Run) workOn(ctx context.Context, row *RunRow, o *runOptions, fn func(context.Context, *Run) (json.RawMessage, error)) (next *Run, nextRow RunRow, err error) {
	defer r.Leave() // for a panic
	of, stop := r.Beat(ctx, 0)
	defer stop()
	if job, _ := JobOf(row); job.TimeoutMS > 0 {
		var cancel context.CancelFunc
		of, cancel = context.WithTimeoutCause(of, job.Timeout(), errTimeout)
		defer cancel()
	}
	result, err := fn(of, r)
	if err == nil && len(result) > MaxResult {
		err = invalidf("the result has %d bytes, the limit is %d", len(result), MaxResult)
	}
	e := endOf(ctx, context.Cause(of), err)
	if output := ParseResult(result); err == nil && output != nil {
		b, err := json.Marshal(output)
		if err != nil {
			return nil, nextRow, err
		}
		e.Also = func(tx *Tx) error {
			return tx.Put(&StepRow{RunID: r.id, StepType: "result", Name: "result", AgentName: row.EffectiveAgentName, Status: Completed, Output: b})
		}
	}
	for {
		next, nextRow, err = r.endThenClaim(ctx, e, o)
		switch {
		case errors.Is(err, engine.ErrBusy) && ctx.Err() == nil:
		case errors.Is(err, ErrRecovered), errors.Is(err, ErrEnded):
			return nil, nextRow, nil // another worker has it
		default:
			return next, nextRow, err
		}
	}
}
