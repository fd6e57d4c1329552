package page

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"thread/history"
)

const (
	shownSessions = 100
	shownMessages = 500
)

// SessionRow is a session.
type SessionRow struct{ history.SessionRow }

// MarshalJSON is the row in the form of docs/JSON.md.
func (r SessionRow) MarshalJSON() ([]byte, error) { return history.AppendJSON(nil, &r.SessionRow) }

// Called is its title, or its id.
func (r SessionRow) Called() string {
	if r.Title != "" {
		return r.Title
	}
	return r.ID
}

// MessageRow is a message of one.
type MessageRow struct{ history.MessageRow }

// MarshalJSON is the row in the form of docs/JSON.md.
func (r MessageRow) MarshalJSON() ([]byte, error) { return history.AppendJSON(nil, &r.MessageRow) }

// Sessions are the newest of a thread.
type Sessions struct {
	Sessions []SessionRow `json:"sessions"`
}

// OneSession is a session with its messages and runs.
type OneSession struct {
	Session  SessionRow   `json:"session"`
	Messages []MessageRow `json:"messages"`
	Runs     []RunRow     `json:"runs"`
	More     bool         `json:"truncated,omitempty"`

	Turns  []SessionTurn `json:"-"`
	Failed int           `json:"-"` // runs
	State  State         `json:"-"`
	Show   string        `json:"-"`
	Usage  Usage         `json:"-"`
}

// SessionTurn is the messages of one run.
type SessionTurn struct {
	Run   *RunRow // nil: before any run
	Usage Usage
	Parts []Said
}

// Said is a message, or why a run has failed.
type Said struct {
	MessageRow
	By    string // the person or the agent
	Text  string
	Tools []Bar
	Alert string
}

// sessionList is the list of a thread.
func (p *Page) sessionList(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	list := Sessions{Sessions: []SessionRow{}}
	h, err := p.open(q.Context(), t)
	if h == nil || err != nil {
		return list, err
	}
	defer h.Close()
	for s, err := range h.Sessions(q.Context(), history.Query{Limit: shownSessions}) {
		if err != nil {
			return nil, err
		}
		list.Sessions = append(list.Sessions, SessionRow{s})
	}
	return list, nil
}

// oneSession is one of them.
func (p *Page) oneSession(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	h, err := p.open(q.Context(), t)
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, &Error{http.StatusNotFound, "this thread has no recorded sessions"}
	}
	defer h.Close()
	ctx := q.Context()
	one := OneSession{Messages: []MessageRow{}, Runs: []RunRow{}, Show: q.FormValue("show")}
	if err := h.Get(ctx, &one.Session.SessionRow, q.FormValue("id")); err != nil {
		return nil, err
	}
	for m, err := range h.Messages(ctx, history.Query{Session: one.Session.ID}) {
		if err != nil {
			return nil, err
		}
		if len(one.Messages) == shownMessages {
			one.More = true
			break
		}
		one.Messages = append(one.Messages, MessageRow{m})
	}
	for r, err := range h.Runs(ctx, history.Query{Session: one.Session.ID, Oldest: true, Limit: shownParts}) {
		if err != nil {
			return nil, err
		}
		one.Runs = append(one.Runs, RunRow{r})
	}
	return one, one.tell(ctx, h)
}

// tell puts messages and runs in the order in which they came.
func (one *OneSession) tell(ctx context.Context, h *history.History) error {
	turns := map[string]*SessionTurn{}
	var order []string
	turn := func(run string) *SessionTurn {
		if turns[run] == nil {
			turns[run] = &SessionTurn{}
			order = append(order, run)
		}
		return turns[run]
	}
	one.State = OK
	for i := range one.Messages {
		m := one.Messages[i]
		in := turn(m.RunID)
		in.Parts = append(in.Parts, Said{MessageRow: m, By: one.by(&m), Text: said(m.Content)})
	}
	for i := range one.Runs {
		r := &one.Runs[i]
		in := turn(r.ID)
		in.Run = r
		if err := one.add(ctx, h, in); err != nil {
			return err
		}
	}
	for _, id := range order {
		if in := turns[id]; one.shows(in) {
			one.Turns = append(one.Turns, *in)
		}
	}
	return nil
}

// add adds what a run did next to its messages: its tools hang on its last message.
func (one *OneSession) add(ctx context.Context, h *history.History, in *SessionTurn) error {
	r := in.Run
	switch s := r.State(); s {
	case Failed:
		one.Failed++
	case Running, Queued:
		one.State = s
	}
	run := OneRun{Run: *r}
	for s, err := range h.Steps(ctx, r.ID) {
		if err != nil {
			return err
		}
		run.Usage.add(&s)
	}
	in.Usage = run.Usage
	one.Usage.In, one.Usage.Out = one.Usage.In+run.Usage.In, one.Usage.Out+run.Usage.Out
	for c, err := range h.ToolCalls(ctx, history.Query{Run: r.ID, Limit: shownParts}) {
		if err != nil {
			return err
		}
		run.addTool(&c)
	}
	if len(run.Bars) > 0 && one.Show != "text" {
		now := time.Now()
		for i := range run.Bars {
			run.Bars[i].place(r.StartedAt, time.Second, now)
		}
		in.hang(run.Bars)
	}
	if r.State() == Failed {
		in.Parts = append(in.Parts, Said{Alert: strings.TrimPrefix(r.ErrorCode+": "+r.ErrorMessage, ": ")})
	}
	return nil
}

// hang puts each call of a tool under the message that came before it.
func (in *SessionTurn) hang(bars []Bar) {
	for _, b := range bars {
		at := -1
		for i := range in.Parts {
			if p := &in.Parts[i]; p.Role != "user" && p.Alert == "" && !p.CreatedAt.After(b.begin) {
				at = i
			}
		}
		if at < 0 {
			for i := range in.Parts {
				if p := &in.Parts[i]; p.Role == "assistant" {
					at = i
					break
				}
			}
		}
		if at < 0 {
			in.Parts = append(in.Parts, Said{MessageRow: MessageRow{history.MessageRow{Role: "assistant", CreatedAt: b.begin}}})
			at = len(in.Parts) - 1
		}
		in.Parts[at].Tools = append(in.Parts[at].Tools, b)
	}
}

// by is whose message it is, "" where that is not known.
func (one *OneSession) by(m *MessageRow) string {
	if m.Role == "user" {
		return one.Session.SubjectRef
	}
	for i := range one.Runs {
		if r := &one.Runs[i]; m.Role == "assistant" && r.ID == m.RunID {
			return r.AgentName
		}
	}
	return ""
}

// shows reports whether the choice of the page has the turn.
func (one *OneSession) shows(in *SessionTurn) bool {
	return one.Show != "failed" || in.Run != nil && in.Run.State() == Failed
}

// said is the text of a message, whose content is a string or parts.
func said(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(content, &parts) != nil {
		return indented(string(content))
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Text != "" {
			b.WriteString(p.Text + "\n")
		}
	}
	if b.Len() == 0 {
		return indented(string(content))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
