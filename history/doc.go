// Package history remembers what agents did: sessions, messages, runs and their
// steps, calls of tools, hooks, actions and artifacts (docs/spec/history.md).
//
// The history of the thread directory DIR is a separate thread, DIR/history, made
// when first needed. Every write of a row is a history event there: its source is
// "session:S" or "workspace", its type the entity, its subtype the status, the role
// or "deleted", its content {"op":…,"id":…,"first":…,"row":{…}} with all columns that
// are not null. The tables that answer queries change in the transaction of the
// event, and [History.Rebuild] makes them again from the log.
//
//	h, err := history.Open("inbox")
//	s, err := h.StartSession(ctx, history.SessionRow{SubjectRef: "u1", AgentName: "coder"})
//	run, err := h.StartRun(ctx, history.RunRow{SessionID: s.ID, TriggerType: "message", AgentName: "coder"})
//	ctx, stop := run.Beat(ctx, 0)
//	_, err = run.Step(ctx, history.ModelCall{Request: request, Response: response}.Row())
//	err = run.End(ctx, history.End{Status: history.Completed})
//
// Like the engine, a [History] keeps no file open between calls, except for the lock of
// a supervised run.
package history
