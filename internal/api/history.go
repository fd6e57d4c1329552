package api

import (
	"bufio"
	"context"
	"encoding/json"
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
