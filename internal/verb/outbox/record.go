package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"thread/engine"
	"thread/history"
	"thread/internal/cli"
	"thread/outbox"
)

// recorder keeps the runs of handlers in the history of the thread. While the history is damaged,
// handlers run unrecorded.
type recorder struct {
	a    *cli.App
	h    *history.History // nil before it could be opened
	told bool             // a warning about the damage was printed
	left []history.RunRow // of a relay that was killed, ended by recover
	run  *history.Run     // the one that is under way
	step history.StepRow
	stop func()
}

// open opens the history. It returns false while the history is damaged.
func (r *recorder) open(ctx context.Context) (bool, error) {
	if r.h != nil {
		return true, nil
	}
	h, err := history.Open(ctx, r.a.Dir, history.WithLogLines(r.a.LogInfo))
	if err != nil {
		return false, r.unlessDamaged(err)
	}
	r.h, r.told = h, false
	return true, nil
}

// unlessDamaged returns err unless the history is damaged, of which it warns once.
func (r *recorder) unlessDamaged(err error) error {
	if r.h != nil && errors.Is(err, engine.ErrCorrupt) && !cli.IsURL(r.h.Dir()) {
		err = &history.DirError{Dir: r.h.Dir(), Err: err}
	}
	if cli.HistoryDamaged(err) && r.told || r.a.Unrecorded(err) {
		r.h, r.told = nil, true // the next run opens it again: it may be repaired
		return nil
	}
	return err
}

// Begin implements outbox.Recorder. The context that it returns ends when another process
// cancels the run.
func (r *recorder) Begin(ctx context.Context, o outbox.Run) (context.Context, string, error) {
	metadata, err := marshal(map[string]any{"trace_id": o.TraceID, "request_id": o.RequestID, "traceparent": o.Traceparent, "event_id": o.TriggerRef, "thread_id": o.ThreadID, "attempt": o.Attempt})
	if err != nil {
		return ctx, "", err
	}
	row := history.RunRow{TriggerType: o.TriggerType, TriggerRef: o.TriggerRef, InitiatorRef: o.Initiator, AgentName: o.Agent, Metadata: metadata}
	if ok, err := r.open(ctx); !ok {
		return ctx, "", err
	}
	r.run, err = r.h.StartRun(ctx, row, history.Supervised(), history.With(func(tx *history.Tx, row *history.RunRow) error {
		r.step = history.StepRow{RunID: row.ID, StepType: "command", Name: "outbox handler", AgentName: row.EffectiveAgentName, Status: history.Running, Input: o.Message}
		return tx.Put(&r.step)
	}))
	if err != nil {
		return ctx, "", r.unlessDamaged(err)
	}
	ctx, r.stop = r.run.Beat(ctx, 0)
	return ctx, r.run.ID(), nil
}

// recover ends the runs that a relay which was killed has left: this one has the lock of the
// relay, and nothing is left of the handler.
func (r *recorder) recover(ctx context.Context) error {
	if r.h == nil {
		return nil
	}
	left, err := r.h.Recover(ctx, history.RecoverOptions{Only: func(row *history.RunRow) bool {
		m, ok := ofOutbox(row)
		return ok && row.Supervised && m.Event == row.TriggerRef
	}})
	r.left = append(r.left, left...)
	return err
}

// recoverLeft is recover with a warning in place of an error.
func (r *recorder) recoverLeft(ctx context.Context) {
	if err := r.recover(ctx); err != nil {
		r.a.LogWarning("outbox relay: the runs of a relay that was killed are not ended: %v", err)
	}
}

// metadata is what the run of a message says of it.
type metadata struct {
	Event   string  `json:"event_id"`
	Thread  *string `json:"thread_id"`
	Attempt int64   `json:"attempt"`
}

func ofOutbox(row *history.RunRow) (m metadata, ok bool) {
	ok = row.TriggerType == "message" && json.Unmarshal(row.Metadata, &m) == nil && m.Thread != nil
	return m, ok
}

// lookBack is how many of an initiator's newest runs are looked at for one that was ended by
// something else than this relay.
const lookBack = 100

// Left implements outbox.Recorder.
func (r *recorder) Left(ctx context.Context, o outbox.Run) string {
	is := func(row *history.RunRow) bool {
		m, ok := ofOutbox(row)
		return ok && row.TriggerRef == o.TriggerRef && m.Attempt == o.Attempt && row.Ended()
	}
	for i := range r.left {
		if is(&r.left[i]) {
			return r.left[i].ID
		}
	}
	if r.h == nil {
		return ""
	}
	for row, err := range r.h.Runs(ctx, history.Query{Subject: o.Initiator, Limit: lookBack}) {
		if err != nil {
			return ""
		}
		if is(&row) {
			return row.ID
		}
	}
	return ""
}

// End implements outbox.Recorder.
func (r *recorder) End(ctx context.Context, id string, e outbox.RunEnd) error {
	r.stop()
	if r.run.ID() != id {
		return fmt.Errorf("run %s is not under way", id)
	}
	end := history.End{Status: history.Completed}
	switch {
	case e.Cancelled:
		end = history.End{Status: history.Cancelled, ErrorCode: "cancelled", ErrorMessage: e.Receipt.Reason}
	case e.TimedOut:
		end = history.End{Status: history.TimedOut, ErrorCode: "timeout", ErrorMessage: e.Receipt.Reason}
	case e.Receipt.Status == outbox.Refused:
		end = history.End{Status: history.Failed, ErrorCode: "exit", ErrorMessage: e.Receipt.Reason}
	}
	output, err := marshal(map[string]any{"exit_code": e.ExitCode, "receipt": map[string]any{"status": e.Receipt.Status, "reason": e.Receipt.Reason, "external_run_id": e.ExternalRunID},
		"output": kept(e.Output), "stderr": kept(e.Errors)})
	if err != nil {
		return err
	}
	end.Also = func(tx *history.Tx) error {
		s := r.step
		s.Status, s.Output = end.Status, output
		return tx.Put(&s)
	}
	return r.run.End(ctx, end)
}

// keptBytes is how much of a handler's output is kept: the last that many bytes.
const keptBytes = 16 << 10

func kept(b []byte) string {
	return strings.ToValidUTF8(string(b[max(0, len(b)-keptBytes):]), "\uFFFD")
}

// marshal is json.Marshal that leaves < and & as they are.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
