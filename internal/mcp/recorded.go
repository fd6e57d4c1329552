package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/dispatch"
)

type threadsIn struct{}

func (*threadsIn) allThreads() {}

// Threads is what threads answers.
type Threads struct {
	Threads []Thread `json:"threads"`
}

// Thread is a thread of it.
type Thread struct {
	Name      string     `json:"name"`
	Newest    int64      `json:"last_event_id"`
	Consumers []Consumer `json:"consumers"`
	Error     string     `json:"error,omitempty" jsonschema:"why nothing is known of it"`
}

// Consumer is a subscription of a thread.
type Consumer struct {
	Name      string `json:"consumer"`
	Filter    string `json:"filter,omitempty"`
	Pull      bool   `json:"pull" jsonschema:"its events are taken with consume; otherwise a handler gets them"`
	LastAcked int64  `json:"last_acked_id"`
	Dead      int64  `json:"dead_count"`
	Paused    bool   `json:"paused"`
	Running   bool   `json:"running"`
	Trouble   string `json:"trouble,omitempty" jsonschema:"the last error, while events fail"`
}

func (h *tools) threads(ctx context.Context, _ *engine.Thread, _ *threadsIn) (out Threads, err error) {
	out.Threads = []Thread{}
	for _, name := range h.host.Names() {
		one := Thread{Name: name, Consumers: []Consumer{}}
		t, err := h.host.Thread(name)
		var info engine.Info
		if err == nil {
			info, err = t.Info(ctx)
		}
		if err != nil {
			one.Error = h.host.Explain(nil, "", err)
		}
		one.Newest = info.Newest
		for i := range info.Subscriptions {
			s := &info.Subscriptions[i]
			state, _ := dispatch.Status(t, s.Consumer) // without it: as not running
			c := Consumer{Name: s.Consumer, Filter: s.Where(), Pull: s.Pull, LastAcked: s.LastAcked, Dead: s.Dead, Paused: s.Paused, Running: state.Running}
			if s.Failing != 0 {
				c.Trouble = s.LastError
			}
			one.Consumers = append(one.Consumers, c)
		}
		out.Threads = append(out.Threads, one)
	}
	return out, nil
}

// ofRun names a run.
type ofRun struct {
	ofThread
	Run string `json:"run" jsonschema:"the id that start_run answered"`
}

type messagesIn struct {
	ofThread
	Session string `json:"session"`
	newest
}

// Message is a message of a session.
type Message struct {
	ID        string `json:"id"`
	Role      string `json:"role"`
	Content   any    `json:"content" jsonschema:"a text, or an array of parts"`
	Run       string `json:"run,omitempty"`
	CreatedAt string `json:"created_at"`
}

// Messages is what messages answers.
type Messages struct {
	Messages []Message `json:"messages"`
}

func (h *tools) messages(ctx context.Context, t *engine.Thread, in *messagesIn) (out Messages, err error) {
	if err := in.check(); err != nil {
		return out, err
	}
	out.Messages = []Message{}
	err = h.recorded(ctx, t, func(r *history.History) error {
		if err := r.Get(ctx, new(history.SessionRow), in.Session); err != nil {
			return err
		}
		for m, err := range r.Messages(ctx, history.Query{Session: in.Session, Limit: in.Last, Oldest: true}) { // newest first
			if err != nil {
				return err
			}
			one := Message{ID: m.ID, Role: m.Role, Run: m.RunID, CreatedAt: event.FormatTime(m.CreatedAt)}
			if err := json.Unmarshal(m.Content, &one.Content); err != nil {
				return err
			}
			out.Messages = append([]Message{one}, out.Messages...)
		}
		return nil
	})
	return out, err
}

type addMessageIn struct {
	ofThread
	Session string `json:"session,omitempty" jsonschema:"the session; a new one without it"`
	Role    string `json:"role" jsonschema:"user, assistant, tool or system"`
	Content any    `json:"content" jsonschema:"a text, or an array of parts as the AI SDK has them"`
	Run     string `json:"run,omitempty" jsonschema:"the run that it belongs to"`
}

// Added is what add_message answers.
type Added struct {
	ID      string `json:"id"`
	Session string `json:"session"`
}

func (h *tools) addMessage(ctx context.Context, t *engine.Thread, in *addMessageIn) (out Added, err error) {
	content, err := json.Marshal(in.Content)
	if err != nil {
		return out, refuse("content: %v", err)
	}
	m := history.MessageRow{SessionID: in.Session, RunID: in.Run, Role: in.Role, Content: content}
	err = h.recorded(ctx, t, func(r *history.History) error {
		write := func(tx *history.Tx) error {
			if m.SessionID == "" {
				s := history.SessionRow{SubjectRef: h.source(ctx)}
				if err := tx.Put(&s); err != nil {
					return err
				}
				m.SessionID = s.ID
			}
			return tx.Put(&m)
		}
		if m.RunID == "" {
			return r.Update(ctx, write)
		}
		return r.Attach(m.RunID, 0).Update(ctx, func(tx *history.Tx, _ *history.RunRow) error { return write(tx) })
	})
	return Added{m.ID, m.SessionID}, err
}

type startRunIn struct {
	ofThread
	Session string `json:"session,omitempty" jsonschema:"the session that it belongs to"`
	Agent   string `json:"agent,omitempty" jsonschema:"the name of the agent; by default the session's"`
	Event   int64  `json:"event_id,omitempty" jsonschema:"the event that it is for"`
}

// Started is what start_run answers.
type Started struct {
	Run string `json:"run"`
}

func (h *tools) startRun(ctx context.Context, t *engine.Thread, in *startRunIn) (out Started, err error) {
	row := history.RunRow{SessionID: in.Session, AgentName: in.Agent, TriggerType: "api_action"}
	if in.Event != 0 {
		row.TriggerType, row.TriggerRef = "message", strconv.FormatInt(in.Event, 10)
	}
	r, err := history.Open(ctx, t.Address())
	if err != nil {
		return out, err
	}
	run, err := r.StartRun(ctx, row)
	if err != nil {
		return out, errors.Join(err, r.Close())
	}
	_, stop := run.Beat(h.ctx, 0)
	h.runs.keep(t.Address(), run.ID(), func() {
		stop()
		run.Leave()
		_ = r.Close() // what was recorded is stored
	})
	return Started{run.ID()}, nil
}

// runs are those that this client has started, each with what ends its beat.
type runs struct {
	mu   sync.Mutex
	ends map[[2]string]func()
}

func (r *runs) keep(dir, id string, end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends == nil {
		r.ends = map[[2]string]func(){}
	}
	r.ends[[2]string{dir, id}] = end
}

// end ends the beat of a run, if it is one of these.
func (r *runs) end(dir, id string) {
	r.mu.Lock()
	end := r.ends[[2]string{dir, id}]
	delete(r.ends, [2]string{dir, id})
	r.mu.Unlock()
	if end != nil {
		end()
	}
}

// leave ends all beats: recovery deals with what has not ended.
func (r *runs) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range r.ends {
		end()
	}
}

type recordStepIn struct {
	ofRun
	Type   string `json:"type,omitempty" jsonschema:"what kind of step (default step)"`
	Name   string `json:"name,omitempty"`
	Status string `json:"status,omitempty" jsonschema:"completed (the default), or failed"`
	Input  any    `json:"input,omitempty" jsonschema:"what went in"`
	Output any    `json:"output,omitempty" jsonschema:"what came out"`
}

// Recorded is what record_step answers.
type Recorded struct {
	ID  string `json:"id"`
	Seq int64  `json:"seq"`
}

func (h *tools) recordStep(ctx context.Context, t *engine.Thread, in *recordStepIn) (out Recorded, err error) {
	s := history.StepRow{StepType: in.Type, Name: in.Name, Status: in.Status}
	if s.StepType == "" {
		s.StepType = "step"
	}
	for _, v := range []struct {
		from any
		to   *json.RawMessage
	}{{in.Input, &s.Input}, {in.Output, &s.Output}} {
		if v.from != nil {
			if *v.to, err = json.Marshal(v.from); err != nil {
				return out, refusal(err.Error())
			}
		}
	}
	err = h.recorded(ctx, t, func(r *history.History) error {
		s, err = r.Attach(in.Run, 0).Step(ctx, s)
		return err
	})
	return Recorded{s.ID, s.Seq}, err
}

type endRunIn struct {
	ofRun
	Status string `json:"status" jsonschema:"completed, failed, cancelled or timed_out"`
	Error  string `json:"error,omitempty" jsonschema:"what went wrong"`
}

// Ended is what end_run answers.
type Ended struct {
	Run    string `json:"run"`
	Status string `json:"status"`
}

func (h *tools) endRun(ctx context.Context, t *engine.Thread, in *endRunIn) (out Ended, err error) {
	err = h.recorded(ctx, t, func(r *history.History) error {
		return r.Attach(in.Run, 0).End(ctx, history.End{Status: in.Status, ErrorMessage: in.Error})
	})
	if err == nil {
		h.runs.end(t.Address(), in.Run)
	}
	return Ended{in.Run, in.Status}, err
}

// recorded opens the history of a thread for fn.
func (h *tools) recorded(ctx context.Context, t *engine.Thread, fn func(r *history.History) error) error {
	r, err := history.Open(ctx, t.Address())
	if err != nil {
		return err
	}
	defer r.Close()
	return fn(r)
}

// resources are events and sessions, for clients that attach them to a conversation.
func (h *tools) resources(s *sdk.Server) {
	for kind, what := range map[string]string{"events": "An event of a thread, as JSON", "sessions": "The last messages of a session, as JSON"} {
		s.AddResourceTemplate(&sdk.ResourceTemplate{Name: kind, Description: what, MIMEType: "application/json", URITemplate: "thread://{thread}/" + kind + "/{id}"}, h.resource)
	}
}

// resource reads thread://THREAD/events/ID or thread://THREAD/sessions/ID.
func (h *tools) resource(ctx context.Context, q *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	parts := strings.Split(strings.TrimPrefix(q.Params.URI, "thread://"), "/")
	for i := range parts {
		text, err := url.PathUnescape(parts[i])
		if err != nil {
			return nil, sdk.ResourceNotFoundError(q.Params.URI)
		}
		parts[i] = text
	}
	if len(parts) != 3 {
		return nil, sdk.ResourceNotFoundError(q.Params.URI)
	}
	t, err := h.thread(parts[0])
	if err != nil {
		return nil, err
	}
	var data any
	switch id, _ := strconv.ParseInt(parts[2], 10, 64); {
	case parts[1] == "sessions":
		data, err = h.messages(ctx, t, &messagesIn{Session: parts[2], newest: newest{maxEvents}})
	case id > 0:
		var found Events
		found, err = h.peek(ctx, t, &peekIn{Filter: fmt.Sprintf("id = %d", id), limits: limits{Content: maxContent}})
		if len(found.Events) == 0 && err == nil {
			return nil, sdk.ResourceNotFoundError(q.Params.URI)
		}
		if err == nil {
			data = found.Events[0]
		}
	default:
		return nil, sdk.ResourceNotFoundError(q.Params.URI)
	}
	if err != nil {
		return nil, errors.New(h.host.Explain(t, "", err))
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: q.Params.URI, MIMEType: "application/json", Text: string(text)}}}, nil
}
