package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"net/http"
	"slices"

	"thread/history"
	"thread/internal/similar"
)

const (
	listedRows = 100
	maxListed  = 1000
)

// recorded makes an answer out of what do does with the history of the request's thread.
func (a *API) recorded(do func(c *call, h *history.History) error) func(http.ResponseWriter, *http.Request) error {
	return func(rw http.ResponseWriter, q *http.Request) error {
		if err := a.refuseHistory(q); err != nil {
			return err
		}
		t, err := a.host.Thread(q.PathValue("name"))
		if err != nil {
			return err
		}
		h, err := history.Open(q.Context(), t.Dir())
		if err != nil {
			return err
		}
		defer h.Close()
		return do(&call{rw: rw, q: q, t: t}, h)
	}
}

// call is a request about the history of a thread.
type call struct {
	rw http.ResponseWriter
	q  *http.Request
	t  Thread
}

func (c *call) ctx() context.Context { return c.q.Context() }

// put answers with a row.
func (c *call) put(row history.Row) error {
	text, err := history.AppendJSON(nil, row)
	if err != nil {
		return err
	}
	c.rw.Header().Set("Content-Type", "application/json")
	_, _ = c.rw.Write(append(text, '\n')) // who asked may be gone
	return nil
}

// list answers with {"NAME":[…],"complete":…}: the first rows, as many as the parameter
// limit says.
func (c *call) list(name string, rows iter.Seq2[history.Row, error]) error {
	limit, err := limitOf(c.q)
	if err != nil {
		return err
	}
	var out []byte
	n, complete := int64(0), true
	for row, err := range rows {
		if err != nil {
			return err
		}
		if n++; n > limit {
			complete = false
			break
		}
		if n > 1 {
			out = append(out, ',')
		}
		if out, err = history.AppendJSON(out, row); err != nil {
			return err
		}
	}
	c.rw.Header().Set("Content-Type", "application/json")
	answering(c.rw)
	w := bufio.NewWriter(c.rw)
	_, _ = w.WriteString(`{"` + name + `":[`)
	_, _ = w.Write(out)
	if complete {
		_, _ = w.WriteString("],\"complete\":true}\n")
	} else {
		_, _ = w.WriteString("],\"complete\":false}\n")
	}
	_ = w.Flush()
	return nil
}

func limitOf(q *http.Request) (int64, error) {
	limit, err := number(q, "limit", listedRows)
	if err == nil && (limit < 1 || limit > maxListed) {
		err = badRequest("limit is not from 1 to %d", maxListed)
	}
	return limit, err
}

// rows hides the type of the rows of seq.
func rows[T any, P interface {
	*T
	history.Row
}](seq iter.Seq2[T, error]) iter.Seq2[history.Row, error] {
	return func(yield func(history.Row, error) bool) {
		for row, err := range seq {
			if !yield(P(&row), err) {
				return
			}
		}
	}
}

// query is the selection of a list.
func (c *call) query() history.Query {
	p := c.q.URL.Query()
	return history.Query{Session: p.Get("session"), Run: p.Get("run"), Subject: p.Get("subject"), Workspace: p.Get("workspace"),
		Status: p.Get("status"), Active: p.Get("active") == "true", Oldest: p.Get("oldest") == "true"}
}

// members reads the body, an object of a few members.
func (c *call) members(known ...string) (map[string]json.RawMessage, error) {
	m := map[string]json.RawMessage{}
	text, err := object(c.q)
	if err != nil || c.q.ContentLength == 0 {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, badRequest("the body is not a JSON object: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, name) {
			return nil, badRequest("%s", similar.Unknown("member", name, known))
		}
	}
	return m, nil
}

// fill sets the columns of row that m has.
func fill(row history.Row, m map[string]json.RawMessage) error {
	text, err := history.AppendJSON(nil, row)
	if err != nil {
		return err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	maps.Copy(all, m)
	if text, err = json.Marshal(all); err != nil {
		return err
	}
	return history.ParseJSON(row, text)
}

func (c *call) sessions(h *history.History) error {
	return c.list("sessions", rows(h.Sessions(c.ctx(), c.query())))
}

func (c *call) session(h *history.History) error {
	var s history.SessionRow
	if err := h.Get(c.ctx(), &s, c.q.PathValue("session")); err != nil {
		return err
	}
	return c.put(&s)
}

func (c *call) startSession(h *history.History) error {
	m, err := c.members("id", "workspace_id", "subject_ref", "agent_name", "title", "auth_context")
	if err != nil {
		return err
	}
	var s history.SessionRow
	if err := fill(&s, m); err != nil {
		return err
	}
	if s, err = h.StartSession(c.ctx(), s); err != nil {
		return err
	}
	return c.put(&s)
}

func (c *call) deleteSession(h *history.History) error {
	if err := h.DeleteSession(c.ctx(), c.q.PathValue("session")); err != nil {
		return err
	}
	c.rw.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) messages(h *history.History) error {
	q := c.query()
	q.Session = c.q.PathValue("session")
	if err := h.Get(c.ctx(), new(history.SessionRow), q.Session); err != nil {
		return err
	}
	return c.list("messages", rows(h.Messages(c.ctx(), q)))
}

func (c *call) addMessage(h *history.History) error {
	m, err := c.members("id", "run_id", "role", "content", "metadata")
	if err != nil {
		return err
	}
	var row history.MessageRow
	if err := fill(&row, m); err != nil {
		return err
	}
	row.SessionID = c.q.PathValue("session")
	write := func(tx *history.Tx) error {
		if row.ID != "" {
			taken, err := tx.Get(new(history.MessageRow), row.ID)
			if err != nil {
				return err
			}
			if taken {
				return history.ErrExists
			}
		}
		return tx.Put(&row)
	}
	if row.RunID == "" {
		err = h.Update(c.ctx(), write)
	} else {
		var r *history.Run
		if r, err = c.attach(h, row.RunID); err == nil {
			err = r.Update(c.ctx(), func(tx *history.Tx, _ *history.RunRow) error { return write(tx) })
		}
	}
	if err != nil {
		return err
	}
	return c.put(&row)
}

func (c *call) runs(h *history.History) error {
	return c.list("runs", rows(h.Runs(c.ctx(), c.query())))
}

// run answers with a run and its parts.
func (c *call) run(h *history.History) error {
	id := c.q.PathValue("run")
	var r history.RunRow
	if err := h.Get(c.ctx(), &r, id); err != nil {
		return err
	}
	out, err := history.AppendJSON([]byte(`{"run":`), &r)
	for _, part := range []struct {
		name string
		rows iter.Seq2[history.Row, error]
	}{
		{"steps", rows(h.Steps(c.ctx(), id))},
		{"tools", rows(h.ToolCalls(c.ctx(), history.Query{Run: id}))},
		{"hooks", rows(h.HookRuns(c.ctx(), id))},
		{"actions", rows(h.ActionRuns(c.ctx(), id))},
		{"artifacts", rows(h.Artifacts(c.ctx(), id))},
	} {
		out = append(out, `,"`+part.name+`":[`...)
		first := true
		for row, rerr := range part.rows {
			if err = errors.Join(err, rerr); err != nil {
				return err
			}
			if !first {
				out = append(out, ',')
			}
			first = false
			out, err = history.AppendJSON(out, row)
		}
		out = append(out, ']')
	}
	if err != nil {
		return err
	}
	answering(c.rw)
	c.rw.Header().Set("Content-Type", "application/json")
	_, _ = c.rw.Write(append(out, "}\n"...)) // who asked may be gone
	return nil
}

// attach returns a handle on a run, for the attempt that the request names.
func (c *call) attach(h *history.History, id string) (*history.Run, error) {
	n, err := number(c.q, "attempt", 0)
	return h.Attach(id, n), err
}

// newRun reads the columns of a run that begins.
func (c *call) newRun() (row history.RunRow, err error) {
	m, err := c.members("id", "workspace_id", "session_id", "parent_run_id", "trigger_type", "trigger_ref", "initiator_ref", "agent_name", "metadata", "beat_every_ms")
	if err != nil {
		return row, err
	}
	row.TriggerType = "api_action"
	return row, fill(&row, m)
}

func (c *call) enqueue(h *history.History) error {
	row, err := c.newRun()
	if err != nil {
		return err
	}
	if row, err = h.Enqueue(c.ctx(), row); err != nil {
		return err
	}
	return c.put(&row)
}

func (c *call) startRun(h *history.History) error {
	row, err := c.newRun()
	if err != nil {
		return err
	}
	r, err := h.StartRun(c.ctx(), row)
	if err != nil {
		return err
	}
	if row, err = r.Row(c.ctx()); err != nil {
		return err
	}
	return c.put(&row)
}

// claim takes the oldest run that is ready. It answers 204 when there is none.
func (c *call) claim(h *history.History) error {
	_, row, err := h.Claim(c.ctx())
	if errors.Is(err, history.ErrNoneReady) {
		c.rw.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	return c.put(&row)
}

// part records one of what a run does; one with a known id is changed, member by member.
func (c *call) part(entity history.Entity, known ...string) func(h *history.History) error {
	return func(h *history.History) error {
		m, err := c.members(append(known, "id", "status")...)
		if err != nil {
			return err
		}
		r, err := c.attach(h, c.q.PathValue("run"))
		if err != nil {
			return err
		}
		row, id := history.NewRow(entity), ""
		if err := json.Unmarshal(m["id"], &id); err != nil && m["id"] != nil {
			return badRequest("id is not a string")
		}
		err = r.Update(c.ctx(), func(tx *history.Tx, run *history.RunRow) error {
			if id != "" {
				if _, err := tx.Get(row, id); err != nil {
					return err
				}
			}
			if s, ok := row.(*history.StepRow); ok && s.ID == "" {
				s.StepType, s.AgentName = "step", run.EffectiveAgentName
			}
			if err := fill(row, m); err != nil {
				return err
			}
			if err := history.Belongs(row, r.ID(), id); err != nil {
				return err
			}
			return tx.Put(row)
		})
		if err != nil {
			return err
		}
		return c.put(row)
	}
}

// steered answers with the run as it is after a change.
func (c *call) steered(h *history.History, err error) error {
	if err != nil {
		return err
	}
	var row history.RunRow
	if err := h.Get(c.ctx(), &row, c.q.PathValue("run")); err != nil {
		return err
	}
	return c.put(&row)
}

// beat says that a run lives. The answer tells whether it is to be cancelled.
func (c *call) beat(h *history.History) error {
	r, err := c.attach(h, c.q.PathValue("run"))
	if err != nil {
		return err
	}
	if err = r.BeatOnce(c.ctx()); errors.Is(err, history.ErrCancelled) {
		err = nil // cancel_requested_at says so
	}
	return c.steered(h, err)
}

func (c *call) end(h *history.History) error {
	var e struct {
		Status  string `json:"status"`
		Code    string `json:"error_code"`
		Message string `json:"error_message"`
	}
	if err := decode(c.q, &e); err != nil {
		return err
	}
	r, err := c.attach(h, c.q.PathValue("run"))
	if err != nil {
		return err
	}
	return c.steered(h, r.End(c.ctx(), history.End{Status: e.Status, ErrorCode: e.Code, ErrorMessage: e.Message}))
}

func (c *call) cancel(h *history.History) error {
	_, err := h.Cancel(c.ctx(), c.q.PathValue("run"))
	return c.steered(h, err)
}

// answer approves or denies what a run waits for.
func (c *call) answer(h *history.History, result string) error {
	a := struct {
		Key    string          `json:"key"`
		Data   json.RawMessage `json:"data"`
		Reason string          `json:"reason"`
		By     string          `json:"by"`
	}{}
	if err := decode(c.q, &a); err != nil {
		return err
	}
	run := c.q.PathValue("run")
	return c.steered(h, h.Answer(c.ctx(), run, a.Key, history.Answer{Result: result, Data: a.Data, Reason: a.Reason, By: a.By}))
}

func (c *call) requeue(h *history.History) error {
	_, err := h.Requeue(c.ctx(), c.q.PathValue("run"))
	return c.steered(h, err)
}

// historyRoutes are the paths of recorded runs, sessions and messages.
func (a *API) historyRoutes() (list []route) {
	const runs, sessions = "/threads/{name}/runs", "/threads/{name}/sessions"
	add := func(method, path string, need Rights, do func(c *call, h *history.History) error, query ...string) {
		list = append(list, route{method, path, need, a.recorded(do), query, 0})
	}
	addRow := func(path string, do func(c *call, h *history.History) error, query ...string) {
		add("POST", path, Write, do, query...)
		list[len(list)-1].most = maxLineBytes
	}
	add("GET", sessions, Read, (*call).sessions, "subject", "status", "workspace", "limit")
	addRow(sessions, (*call).startSession)
	add("GET", sessions+"/{session}", Read, (*call).session)
	add("DELETE", sessions+"/{session}", Admin, (*call).deleteSession)
	add("GET", sessions+"/{session}/messages", Read, (*call).messages, "run", "limit", "oldest")
	addRow(sessions+"/{session}/messages", (*call).addMessage, "attempt")
	add("GET", runs, Read, (*call).runs, "session", "subject", "workspace", "status", "active", "oldest", "limit")
	addRow(runs, (*call).enqueue)
	addRow(runs+"/start", (*call).startRun)
	add("POST", runs+"/next", Write, (*call).claim)
	add("GET", runs+"/{run}", Read, (*call).run)
	add("POST", runs+"/{run}/beat", Write, (*call).beat, "attempt")
	add("POST", runs+"/{run}/end", Write, (*call).end, "attempt")
	add("POST", runs+"/{run}/cancel", Write, (*call).cancel)
	add("POST", runs+"/{run}/requeue", Write, (*call).requeue)
	add("POST", runs+"/{run}/approve", Write, func(c *call, h *history.History) error { return c.answer(h, history.Approved) })
	add("POST", runs+"/{run}/deny", Write, func(c *call, h *history.History) error { return c.answer(h, history.Denied) })
	for name, p := range map[string]struct {
		entity history.Entity
		known  []string
	}{
		"steps":     {history.RunStep, []string{"seq", "step_type", "name", "agent_name", "input", "output"}},
		"tools":     {history.ToolCall, []string{"step_id", "source_type", "tool_name", "request", "response", "duration_ms"}},
		"hooks":     {history.HookRun, []string{"hook_name", "event_name", "capabilities", "patch", "error_message"}},
		"actions":   {history.ActionRun, []string{"action_name", "caller_type", "input", "output"}},
		"artifacts": {history.Artifact, []string{"type", "path", "content_ref", "metadata"}},
	} {
		addRow(runs+"/{run}/"+name, func(c *call, h *history.History) error { return c.part(p.entity, p.known...)(h) }, "attempt")
	}
	return list
}
