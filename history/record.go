package history

import (
	"context"
	"encoding/json"
	"time"
)

// Message stores a message of the run's session.
func (r *Run) Message(ctx context.Context, m MessageRow) (MessageRow, error) {
	err := r.Update(ctx, func(tx *Tx, row *RunRow) error {
		m.RunID = r.id
		orElse(&m.SessionID, row.SessionID)
		return tx.Put(&m)
	})
	return m, err
}

// Step stores a step of the run, or a new version of the one with its id. Its seq is
// the next one when it is 0.
func (r *Run) Step(ctx context.Context, s StepRow) (StepRow, error) {
	err := r.Update(ctx, func(tx *Tx, row *RunRow) error {
		s.RunID = r.id
		orElse(&s.AgentName, row.EffectiveAgentName)
		return tx.Put(&s)
	})
	return s, err
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

// ModelCallType is the type of a step that is a call of a model.
const ModelCallType = "model_call"

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
