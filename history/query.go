package history

import (
	"bytes"
	"context"
	"iter"
)

// Query selects rows. At most one of the fields that name something chooses the
// index; the others are compared row by row.
type Query struct {
	Session   string // whose session
	Run       string // of which run; of a run itself, its parent
	Subject   string // subject_ref of a session, initiator_ref of a run
	Workspace string // another one than the directory's own
	Status    string
	Source    string // source_type of a tool call, with Tool
	Tool      string
	Active    bool  // runs that have been started and have not ended
	Limit     int64 // 0 for all
	Oldest    bool  // oldest first, where newest first is the rule, and the other way round
}

// sliceRows is how many rows are read in one transaction.
const sliceRows = 64

// list gives the rows of an index that keep says yes to.
func list[T any, P interface {
	*T
	Row
}](ctx context.Context, h *History, p []byte, newest bool, limit int64, keep func(*T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		from, to := p, after(p)
		space := int64(8)
		if limit > 0 {
			space = min(limit, sliceRows)
		}
		rows := make([]T, 0, space)
		var key []byte
		for {
			rows = rows[:0]
			more := false
			err := h.View(ctx, func(tx *Tx) error {
				seq := tx.by.Ascend(from, to)
				if newest {
					seq = tx.by.Descend(from, to)
				}
				n := 0
				var last []byte
				for rec := range seq {
					if n++; n > sliceRows {
						more = true
						break
					}
					last = rec.Key
					var none T
					rows = append(rows, none)
					row := &rows[len(rows)-1]
					var err error
					if key, err = tx.listed(P(row), rec.Value, key); err != nil {
						return err
					}
					if keep != nil && !keep(row) {
						rows = rows[:len(rows)-1]
						continue
					}
					if limit > 0 && int64(len(rows)) >= limit {
						break
					}
				}
				if newest {
					to = bytes.Clone(last)
				} else {
					from = append(bytes.Clone(last), 0)
				}
				return nil
			})
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			if limit > 0 {
				if limit -= int64(len(rows)); limit <= 0 {
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// listed fills r with the row that an index names, and returns key, in which it has made
// the row's.
func (tx *Tx) listed(r Row, id, key []byte) ([]byte, error) {
	entity := r.Entity()
	if entity == Workspace {
		return key, tx.must(r, string(id))
	}
	key = append(append(key[:0], entityTags[entity]), id...)
	ok, err := tx.fill(r, key)
	if err == nil && !ok {
		err = notFound(entity, string(id))
	}
	return key, err
}

// Sessions gives sessions, newest first: of a subject, of a status by their last
// change, of a workspace.
func (h *History) Sessions(ctx context.Context, q Query) iter.Seq2[SessionRow, error] {
	p := prefix(bySessionAll)
	switch {
	case q.Subject != "":
		p = prefix(bySessionSubject, q.Subject)
	case q.Status != "":
		p = prefix(bySessionStatus, q.Status)
	case q.Workspace != "":
		p = prefix(bySessionWorkspace, q.Workspace)
	}
	return list(ctx, h, p, !q.Oldest, q.Limit, func(s *SessionRow) bool {
		return (q.Status == "" || s.Status == q.Status) && (q.Workspace == "" || s.WorkspaceID == q.Workspace)
	})
}

// Runs gives runs, newest first: of a session, of a parent run, of a subject, the
// active ones, of a status, of a workspace.
func (h *History) Runs(ctx context.Context, q Query) iter.Seq2[RunRow, error] {
	p := prefix(byRunAll)
	switch {
	case q.Session != "" && q.Active:
		p = prefix(byRunActive, q.Session)
	case q.Session != "":
		p = prefix(byRunSession, q.Session)
	case q.Run != "":
		p = prefix(byRunParent, q.Run)
	case q.Active:
		p = prefix(byActiveAll)
	case q.Subject != "":
		p = prefix(byRunInitiator, q.Subject)
	case q.Status != "":
		p = prefix(byRunStatus, q.Status)
	case q.Workspace != "":
		p = prefix(byRunWorkspace, q.Workspace)
	}
	return list(ctx, h, p, !q.Oldest, q.Limit, func(r *RunRow) bool {
		return (q.Status == "" || r.Status == q.Status) && (q.Subject == "" || r.InitiatorRef == q.Subject) &&
			(q.Run == "" || r.ParentRunID == q.Run) && (q.Workspace == "" || r.WorkspaceID == q.Workspace) && (!q.Active || r.Active())
	})
}

// Messages gives the messages of a session, or of a run, in order. It returns
// [ErrInvalid] for a query that names neither.
func (h *History) Messages(ctx context.Context, q Query) iter.Seq2[MessageRow, error] {
	p := prefix(byMessageSession, q.Session)
	if q.Run != "" {
		p = prefix(byMessageRun, q.Run)
	} else if q.Session == "" {
		return failing[MessageRow](invalidf("messages of neither a session nor a run"))
	}
	return list[MessageRow](ctx, h, p, q.Oldest, q.Limit, nil)
}

// Steps gives the steps of a run in order.
func (h *History) Steps(ctx context.Context, run string) iter.Seq2[StepRow, error] {
	return list[StepRow](ctx, h, prefix(byStepRun, run), false, 0, nil)
}

// ToolCalls gives the calls of tools: of a run in order, else newest first, of a tool
// or of all.
func (h *History) ToolCalls(ctx context.Context, q Query) iter.Seq2[ToolCallRow, error] {
	p, newest := prefix(byToolAll), !q.Oldest
	switch {
	case q.Run != "":
		p, newest = prefix(byToolRun, q.Run), q.Oldest
	case q.Source != "" && q.Tool != "":
		p = prefix(byToolName, q.Source, q.Tool)
	case q.Source != "":
		return failing[ToolCallRow](invalidf("a source type without a tool"))
	}
	return list(ctx, h, p, newest, q.Limit, func(c *ToolCallRow) bool {
		return (q.Tool == "" || c.ToolName == q.Tool) && (q.Status == "" || c.Status == q.Status)
	})
}

// HookRuns gives the runs of hooks in a run, in order.
func (h *History) HookRuns(ctx context.Context, run string) iter.Seq2[HookRunRow, error] {
	return list[HookRunRow](ctx, h, prefix(byHookRun, run), false, 0, nil)
}

// ActionRuns gives the runs of actions in a run, in order.
func (h *History) ActionRuns(ctx context.Context, run string) iter.Seq2[ActionRunRow, error] {
	return list[ActionRunRow](ctx, h, prefix(byActionRun, run), false, 0, nil)
}

// Artifacts gives what a run has made, in order.
func (h *History) Artifacts(ctx context.Context, run string) iter.Seq2[ArtifactRow, error] {
	return list[ArtifactRow](ctx, h, prefix(byArtifactRun, run), false, 0, nil)
}

// Workspaces gives the workspaces: the one with that root path, reference or status,
// newest first, or all.
func (h *History) Workspaces(ctx context.Context, q WorkspaceQuery) iter.Seq2[WorkspaceRow, error] {
	p := prefix(byWorkspaceAll)
	switch {
	case q.RootPath != "":
		p = prefix(byWorkspacePath, q.RootPath)
	case q.ExternalRef != "":
		p = prefix(byWorkspaceRef, q.ExternalRef)
	case q.Status != "":
		p = prefix(byWorkspaceStatus, q.Status)
	}
	return list[WorkspaceRow](ctx, h, p, true, 0, nil)
}

// WorkspaceQuery selects workspaces by one of its fields.
type WorkspaceQuery struct{ RootPath, ExternalRef, Status string }

// Limits gives the limits of active runs and of rate.
func (h *History) Limits(ctx context.Context) iter.Seq2[LimitRow, error] {
	return list[LimitRow](ctx, h, prefix(byLimit), false, 0, nil)
}

func failing[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}
