package api

import (
	"encoding/json"
	"errors"
	"iter"
	"net/http"

	"thread/history"
)

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
