package history

import (
	"bytes"
	"context"
	"iter"
	"slices"
)

// Query selects rows. At most one of the fields that name something chooses the
// index; the others are compared row by row.
type Query struct {
	Session   string // whose session
	Run       string // of which run; of a run itself, its parent
	Subject   string // subject_ref of a session, initiator_ref of a run
	Workspace string // the id of a workspace
	Status    string
	Source    string // source_type of a tool call
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

// storedAs returns what rows of a workspace hold: nothing for the directory's own, which
// may be copied.
func (h *History) storedAs(ctx context.Context, workspace string) (string, error) {
	if workspace == "" {
		return "", nil
	}
	own, err := h.Workspace(ctx)
	if err == nil && own.ID == workspace {
		return "", nil
	}
	return workspace, err
}

// ActiveByHeartbeat gives the active runs, the one that has been silent for the longest
// time first.
func (h *History) ActiveByHeartbeat(ctx context.Context, q Query) iter.Seq2[RunRow, error] {
	limit := q.Limit
	q.Active, q.Limit = true, 0
	var active []RunRow
	for r, err := range h.Runs(ctx, q) {
		if err != nil {
			return failing[RunRow](err)
		}
		active = append(active, r)
	}
	slices.SortStableFunc(active, func(a, b RunRow) int { return a.HeartbeatAt.Compare(b.HeartbeatAt) })
	return func(yield func(RunRow, error) bool) {
		for i, r := range active {
			if limit > 0 && int64(i) == limit || !yield(r, nil) {
				return
			}
		}
	}
}

// OfWorkspace gives the changes whose rows belong to a workspace. Of a deleted row
// the workspace is not known: it is left out.
func (h *History) OfWorkspace(ctx context.Context, workspace string, seq iter.Seq2[Change, error]) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		known := map[string]string{}
		for c, err := range seq {
			is := err != nil
			if !is {
				is, err = h.belongs(ctx, &c, workspace, known)
			}
			if (is || err != nil) && (!yield(c, err) || err != nil) {
				return
			}
		}
	}
}

func (h *History) belongs(ctx context.Context, c *Change, workspace string, known map[string]string) (is bool, err error) {
	if c.Entity == Workspace {
		return c.EntityID == workspace, nil
	}
	key, err := c.owner()
	if err != nil {
		return false, err
	}
	err = h.View(h.wants(ctx, key), func(tx *Tx) error {
		var own WorkspaceRow
		if _, _, err := tx.read(&own, rowKey(Workspace, "")); err != nil {
			return err
		}
		of, err := tx.ownerOf(key, own.ID, known)
		is = of == workspace
		return err
	})
	return is, err
}

// Sessions gives sessions, newest first: of a subject, of a status by their last
// change, of a workspace.
func (h *History) Sessions(ctx context.Context, q Query) iter.Seq2[SessionRow, error] {
	p := prefix(bySessionAll)
	workspace, err := h.storedAs(ctx, q.Workspace)
	if err != nil {
		return failing[SessionRow](err)
	}
	switch {
	case q.Subject != "":
		p = prefix(bySessionSubject, q.Subject)
	case q.Status != "":
		p = prefix(bySessionStatus, q.Status)
	case q.Workspace != "":
		p = prefix(bySessionWorkspace, workspace)
	}
	return list(ctx, h, p, !q.Oldest, q.Limit, func(s *SessionRow) bool {
		return (q.Status == "" || s.Status == q.Status) && (q.Workspace == "" || s.WorkspaceID == workspace)
	})
}

// Runs gives runs, newest first: of a session, of a parent run, of a subject, the
// active ones, of a status, of a workspace.
func (h *History) Runs(ctx context.Context, q Query) iter.Seq2[RunRow, error] {
	p := prefix(byRunAll)
	workspace, err := h.storedAs(ctx, q.Workspace)
	if err != nil {
		return failing[RunRow](err)
	}
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
		p = prefix(byRunWorkspace, workspace)
	}
	return list(ctx, h, p, !q.Oldest, q.Limit, func(r *RunRow) bool {
		return (q.Status == "" || r.Status == q.Status) && (q.Subject == "" || r.InitiatorRef == q.Subject) &&
			(q.Run == "" || r.ParentRunID == q.Run) && (q.Workspace == "" || r.WorkspaceID == workspace) && (!q.Active || r.Active())
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
	}
	return list(ctx, h, p, newest, q.Limit, func(c *ToolCallRow) bool {
		return (q.Tool == "" || c.ToolName == q.Tool) && (q.Source == "" || c.SourceType == q.Source) && (q.Status == "" || c.Status == q.Status)
	})
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
