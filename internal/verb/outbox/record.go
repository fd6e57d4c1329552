package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"thread/history"
	"thread/outbox"
)

// recorder keeps the runs of handlers in the history of the thread.
type recorder struct {
	h    *history.History
	run  *history.Run // the one that is under way
	step history.StepRow
	stop func()
}

func newRecorder(ctx context.Context, dir string) (*recorder, error) {
	h, err := history.Open(ctx, dir)
	return &recorder{h: h}, err
}

// Begin implements outbox.Recorder. The context that it returns ends when somebody
// cancels the run.
func (r *recorder) Begin(ctx context.Context, o outbox.Run) (context.Context, string, error) {
	metadata, err := object(map[string]any{"trace_id": o.TraceID, "request_id": o.TraceID, "event_id": o.TriggerRef, "thread_id": o.ThreadID, "attempt": o.Attempt})
	if err != nil {
		return ctx, "", err
	}
	row := history.RunRow{TriggerType: o.TriggerType, TriggerRef: o.TriggerRef, AgentName: o.Agent, Metadata: metadata}
	r.run, err = r.h.StartRun(ctx, row, history.Supervised(), history.With(func(tx *history.Tx, row *history.RunRow) error {
		r.step = history.StepRow{RunID: row.ID, StepType: "command", Name: "outbox handler", AgentName: row.EffectiveAgentName, Status: history.Running, Input: o.Message}
		return tx.Put(&r.step)
	}))
	if err != nil {
		return ctx, "", err
	}
	ctx, r.stop = r.run.Beat(ctx, 0)
	return ctx, r.run.ID(), nil
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
	output, err := object(map[string]any{"exit_code": e.ExitCode, "receipt": map[string]any{"status": e.Receipt.Status, "reason": e.Receipt.Reason},
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

// keptBytes is how much of a handler's output is kept: the last so many bytes.
const keptBytes = 16 << 10

func kept(b []byte) string {
	return strings.ToValidUTF8(string(b[max(0, len(b)-keptBytes):]), "\uFFFD")
}

// object is json.Marshal that leaves < and & as they are.
func object(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
