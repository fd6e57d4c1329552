package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"thread/engine"
	"thread/lock"
)

// ID returns the id of the run.
func (r *Run) ID() string { return r.id }

// Attempt returns which attempt of the run this is, from 1; 0 for a handle of
// [History.Attach] that does not know.
func (r *Run) Attempt() int64 { return r.attempt }

// Row returns the run as it is stored.
func (r *Run) Row(ctx context.Context) (row RunRow, err error) {
	return row, r.h.Get(ctx, &row, r.id)
}

// Attach returns a handle on a run that was started elsewhere, for its attempt of
// that number, or for any with 0. The first write says whether there is that run.
func (h *History) Attach(id string, attempt int64) *Run { return &Run{h: h, id: id, attempt: attempt} }

// Tree returns the locked file that the command of a supervised run is to inherit: when this
// process is killed, recovery ends the processes that have it. It returns nil for another run,
// and where the file cannot be locked.
func (r *Run) Tree() *os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	if r.tree == nil { // of Work, where most runs have no command
		tree, err := lock.Try(r.h.treePath(r.id), lock.Exclusive)
		if err != nil {
			return nil
		}
		r.tree = tree
	}
	return r.tree.File()
}

// write is Update by History.Update, or share.
func (r *Run) write(ctx context.Context, update func(context.Context, func(*Tx) error) error, fn func(tx *Tx, row *RunRow) error) error {
	err := update(r.h.wants(ctx, rowKey(RunEntity, r.id)), func(tx *Tx) error {
		if r.handler != "" {
			if err := tx.beginHandler(r.id, r.handler); err != nil {
				return err
			}
		}
		row, err := tx.fenced(r.id, r.attempt)
		if err != nil {
			return err
		}
		return fn(tx, &row)
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.silent = false
	r.mu.Unlock()
	_ = r.h.touch(ctx, r.id) // the write itself has shown that it lives
	return nil
}

// beginHandler stores the row of a handler's run that is under way.
func (tx *Tx) beginHandler(id, consumer string) error {
	if _, ok := tx.versionOf(rowKey(RunEntity, id)); ok {
		return nil
	}
	row := RunRow{ID: id, TriggerType: "message", AgentName: clip(consumer), Metadata: json.RawMessage(`{"handler":{}}`)}
	return tx.begin(&row, &runOptions{})
}

// Switch changes the agent of the run and of its session, in one commit.
func (r *Run) Switch(ctx context.Context, agent string) error {
	if agent == "" {
		return invalidf("agent is empty")
	}
	return r.Update(ctx, func(tx *Tx, row *RunRow) error {
		row.EffectiveAgentName = agent
		row.SwitchCount++
		if err := tx.Put(row); err != nil || row.SessionID == "" {
			return err
		}
		var s SessionRow
		if err := tx.must(&s, row.SessionID); err != nil {
			return err
		}
		s.ActiveAgentName, s.UpdatedAt = agent, tx.now
		return tx.Put(&s)
	})
}

// Waits says whether the run waits for a tool.
func (r *Run) Waits(ctx context.Context, waits bool) error {
	return r.Update(ctx, func(tx *Tx, row *RunRow) error {
		row.Status = Running
		if waits {
			row.Status = WaitingTool
		}
		return tx.Put(row)
	})
}

// End ends the run. The time of its last beat goes into the row. A job that has failed and
// has retries left is queued again.
func (r *Run) End(ctx context.Context, e End) error {
	end := RunRow{Status: e.Status}
	if !end.Ended() && e.Status != Waiting {
		return invalidf("a run does not end as %q", e.Status)
	}
	err := r.h.share(r.h.wants(ctx, rowKey(RunEntity, r.id)), func(tx *Tx) error { return r.end(tx, &e) })
	r.ended(err)
	return err
}

func (r *Run) end(tx *Tx, e *End) error {
	row, err := tx.fenced(r.id, r.attempt)
	if err != nil {
		return err
	}
	if e.Also != nil {
		if err := e.Also(tx); err != nil {
			return err
		}
	}
	return tx.finish(&row, e, tx.now)
}

// ended gives up the run after a write of its end.
func (r *Run) ended(err error) {
	if err == nil || errors.Is(err, ErrRecovered) || errors.Is(err, ErrEnded) {
		r.release(err == nil)
	}
}

// Cancel asks a run to end: one that is queued or waits is cancelled at once, one that is
// active learns of it by its next beat. It returns [ErrEnded] for one that has ended.
func (h *History) Cancel(ctx context.Context, id string) (row RunRow, err error) {
	err = h.Update(ctx, func(tx *Tx) error {
		row = RunRow{}
		if err := tx.must(&row, id); err != nil {
			return err
		}
		switch {
		case row.Status == Queued, row.Status == Waiting:
			row.Status, row.EndedAt = Cancelled, tx.now
		case row.Active() && row.CancelRequestedAt.IsZero():
		case row.Active():
			return nil
		default:
			return fmt.Errorf("%w: %q is %s", ErrEnded, id, row.Status)
		}
		row.CancelRequestedAt = tx.now
		return tx.Put(&row)
	})
	return row, err
}

// Message stores a message of the run's session.
func (r *Run) Message(ctx context.Context, m MessageRow) (stored MessageRow, err error) {
	err = r.write(ctx, r.h.share, func(tx *Tx, row *RunRow) error {
		stored = m
		stored.RunID = r.id
		orElse(&stored.SessionID, row.SessionID)
		return tx.Put(&stored)
	})
	return stored, err
}

// Step stores a step of the run, or a new version of the one with its id. Its seq is
// the next one when it is 0.
func (r *Run) Step(ctx context.Context, s StepRow) (stored StepRow, err error) {
	err = r.write(ctx, r.h.share, func(tx *Tx, row *RunRow) error {
		stored = s
		stored.RunID = r.id
		orElse(&stored.AgentName, row.EffectiveAgentName)
		return tx.Put(&stored)
	})
	return stored, err
}

// share is Update of what may share its transaction with others: fn may be called more often
// than once, each time from the beginning.
func (h *History) share(ctx context.Context, fn func(tx *Tx) error) error {
	if _, err := h.thread(true); err != nil {
		return err
	}
	c := &shared{h: h, ctx: ctx, fn: fn, lead: make(chan struct{}), turn: make(chan *engine.Tx), ran: make(chan bool), over: make(chan error, 1)}
	h.group.add(c)
	ended := ctx.Done()
	for {
		select {
		case <-c.lead:
			return c.after(h.lead(c))
		case e := <-c.turn:
			c.take(e)
		case err := <-c.over:
			return c.after(err)
		case <-ended:
			if h.group.withdraw(c) {
				return context.Cause(ctx)
			}
			ended = nil // it is in a transaction, or leads
		}
	}
}

// take calls the function in the transaction of another, and says whether it succeeded. A
// function that panics is called again when it leads, where a panic is expected.
func (c *shared) take(e *engine.Tx) {
	succeeded, returned := false, false
	defer func() {
		c.gone = !returned && recover() == nil // by runtime.Goexit
		c.ran <- succeeded
	}()
	err := c.run(e)
	var none *noneReady
	if errors.As(err, &none) { // it has written nothing
		c.none, err = err, nil
	}
	succeeded, returned = err == nil, true
}

// ToolCall stores a call of a tool, or a new version of the one with its id.
func (r *Run) ToolCall(ctx context.Context, c ToolCallRow) (ToolCallRow, error) {
	c.RunID = r.id
	return c, r.put(ctx, &c)
}

// HookRun stores a run of a hook, or a new version of the one with its id.
func (r *Run) HookRun(ctx context.Context, c HookRunRow) (HookRunRow, error) {
	c.RunID = r.id
	return c, r.put(ctx, &c)
}

// ActionRun stores a run of an action, or a new version of the one with its id.
func (r *Run) ActionRun(ctx context.Context, c ActionRunRow) (ActionRunRow, error) {
	c.RunID = r.id
	return c, r.put(ctx, &c)
}

// Artifact stores something that the run has made.
func (r *Run) Artifact(ctx context.Context, c ArtifactRow) (ArtifactRow, error) {
	c.RunID = r.id
	return c, r.put(ctx, &c)
}

func (r *Run) put(ctx context.Context, row Row) error {
	return r.Update(ctx, func(tx *Tx, _ *RunRow) error { return tx.Put(row) })
}

// ModelCall is what was sent to a model and what came back, each as JSON; nil for
// what is not known.
type ModelCall struct {
	ID, Name        string
	Status          string          // completed without one
	Request         json.RawMessage // required: model, canonicalModelRef, provider, temperature, maxTokens, messages
	RequestRuntime  json.RawMessage // messageCount, activeToolNames, runtimeTools, toolServers
	Response        json.RawMessage // required once completed: text, content, reasoning, toolCalls, toolResults, usage, finishReason, providerMetadata
	ResponseRuntime json.RawMessage // toolCallsCount, toolResultsCount
	StartedAt       time.Time
	EndedAt         time.Time
}

// Row returns the step that holds the call.
func (m ModelCall) Row() StepRow {
	return StepRow{ID: m.ID, Name: m.Name, Status: m.Status, StepType: ModelCallType, StartedAt: m.StartedAt, EndedAt: m.EndedAt,
		Input: pair("request", m.Request, m.RequestRuntime), Output: pair("response", m.Response, m.ResponseRuntime)}
}

// pair returns {first:…,"runtime":…}, of what there is.
func pair(first string, value, runtime json.RawMessage) json.RawMessage {
	if value == nil && runtime == nil {
		return nil
	}
	c := columns{b: []byte("{")}
	c.value(first, &value)
	c.value("runtime", &runtime)
	return append(c.b, '}')
}
