package history

import (
	"context"
	"fmt"
	"iter"

	"thread/engine"
	"thread/event"
)

func (x *indexes) Ascend(from, to []byte) iter.Seq2[engine.Record, error] {
	return x.whole(x.Records.Ascend(from, to))
}

func (x *indexes) Descend(from, to []byte) iter.Seq2[engine.Record, error] {
	return x.whole(x.Records.Descend(from, to))
}

// whole passes on records, and keeps an error.
func (x *indexes) whole(seq iter.Seq2[engine.Record, error]) iter.Seq2[engine.Record, error] {
	return func(yield func(engine.Record, error) bool) {
		for rec, err := range seq {
			if err != nil {
				x.failed = err
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// Get fills r with the row of that id, and reports whether there is one.
func (tx *Tx) Get(r Row, id string) (bool, error) {
	key := rowKey(r.Entity(), id)
	if r.Entity() == Workspace && id != "" {
		var own WorkspaceRow
		if _, ok, err := tx.read(&own, rowKey(Workspace, "")); err != nil {
			return false, err
		} else if ok && own.ID == id {
			key = rowKey(Workspace, "")
		}
	}
	return tx.fill(r, key)
}

// must is Get that returns ErrNotFound.
func (tx *Tx) must(r Row, id string) error {
	ok, err := tx.Get(r, id)
	if err == nil && !ok {
		err = notFound(r.Entity(), id)
	}
	return err
}

// complete sets what is not in the row as it is stored.
func (tx *Tx) complete(r Row) {
	if run, ok := r.(*RunRow); ok && run.Active() {
		if at := tx.beatOf(run.ID); at.After(run.HeartbeatAt) {
			run.HeartbeatAt = at
		}
	}
}

// Put stores the row in place of an earlier one with its id, with its history event.
// An id, a status and times that are missing are set in r.
//
// Put returns [ErrInvalid], [ErrNotFound] where the row names another one that is not
// there, and [ErrExists] for a step whose seq another one of its run has, and for a row
// that would move to another session, run or workspace.
func (tx *Tx) Put(r Row) error {
	fill(r, tx.now)
	if err := tx.ownWorkspace(r); err != nil {
		return err
	}
	if step, ok := r.(*StepRow); ok && step.Seq == 0 {
		step.Seq = tx.nextSeq(step.RunID)
	}
	if w, ok := r.(*WorkspaceRow); ok && w.Kind == "chat" {
		if err := tx.h.outside(w); err != nil {
			return err
		}
	}
	if err := r.valid(); err != nil {
		return err
	}
	session, err := tx.sessionOf(r)
	if err != nil {
		return err
	}
	return tx.store(r, keyOf(r), OpUpsert, session)
}

// ownWorkspace takes the id of the directory's own workspace out of a row: no row holds
// it, as the directory may be copied.
func (tx *Tx) ownWorkspace(r Row) error {
	id := workspaceOf(r)
	if id == "" {
		return nil
	}
	var own WorkspaceRow
	if _, _, err := tx.read(&own, rowKey(Workspace, "")); err != nil || own.ID != id {
		return err
	}
	switch r := r.(type) {
	case *SessionRow:
		r.WorkspaceID = ""
	case *RunRow:
		r.WorkspaceID = ""
	}
	return nil
}

// nextSeq returns the number of the next step of a run.
func (tx *Tx) nextSeq(run string) int64 {
	p := prefix(byStepRun, run)
	for rec := range tx.by.Descend(p, after(p)) {
		return numberOf(rec.Key) + 1
	}
	return 1
}

// sessionOf returns whose session the row belongs to, and checks that the rows are
// there that it names.
func (tx *Tx) sessionOf(r Row) (session string, err error) {
	there := func(e Entity, id string) (v version) {
		if id == "" || err != nil {
			return v
		}
		v, ok := tx.versionOf(rowKey(e, id))
		if !ok {
			err = notFound(e, id)
		}
		return v
	}
	switch r := r.(type) {
	case *SessionRow:
		return r.ID, nil
	case *MessageRow:
		there(Session, r.SessionID)
		there(RunEntity, r.RunID)
		return r.SessionID, err
	case *RunRow:
		there(Session, r.SessionID)
		there(RunEntity, r.ParentRunID)
		return r.SessionID, err
	case *StepRow:
		if id := tx.by.Get(indexKey(byStepRun, r.Seq, r.RunID)); id != nil && string(id) != r.ID {
			return "", fmt.Errorf("%w: run %q has a step %d", ErrExists, r.RunID, r.Seq)
		}
		return there(RunEntity, r.RunID).session, err
	case *ToolCallRow:
		there(RunStep, r.StepID)
		return there(RunEntity, r.RunID).session, err
	case *HookRunRow:
		return there(RunEntity, r.RunID).session, err
	case *ActionRunRow:
		return there(RunEntity, r.RunID).session, err
	case *ArtifactRow:
		return there(RunEntity, r.RunID).session, err
	}
	return "", nil
}

// source returns the source of the history events of a session's rows.
func source(session string) string {
	if session == "" {
		return "workspace"
	}
	return "session:" + session
}

// store writes the row and its history event.
func (tx *Tx) store(r Row, key []byte, op, session string) error {
	old := NewRow(r.Entity())
	was, had, err := tx.read(old, key)
	if err != nil {
		return err
	}
	switch {
	case !had:
		old = nil
	case was.session != session || workspaceOf(old) != workspaceOf(r) || runOf(old) != runOf(r):
		return fmt.Errorf("%w: %s %q of another session, run or workspace", ErrExists, r.Entity(), *idOf(r))
	}
	b := event.AppendString(append(append([]byte(`{"op":"`), op...), `","id":`...), *idOf(r))
	if had {
		b = fmt.Appendf(b, `,"first":%d`, was.first)
	}
	start := len(b) + len(`,"row":`)
	if b, err = appendRow(append(b, `,"row":`...), r, false); err != nil {
		return err
	}
	row, err := inline(r.Entity(), b[start:])
	if err != nil {
		return err
	}
	e, err := tx.push(r.Entity(), r.subtype(), session, string(append(b, '}')))
	if err != nil {
		return err
	}
	if row == nil {
		if tx.pushed == nil {
			tx.pushed = map[int64]event.Event{}
		}
		tx.pushed[e.ID] = e
	}
	is := version{latest: e.ID, first: e.ID, session: session, row: row}
	if had {
		is.first = was.first
	}
	if err := tx.apply(key, old, was, r, is); err != nil || op != OpUpsert {
		return err
	}
	if err := tx.note(r, e.ID); err != nil {
		return err
	}
	run, ok := r.(*RunRow)
	if !ok || !run.Ended() || old != nil && old.(*RunRow).Ended() {
		return nil
	}
	if err := tx.endWait(run); err != nil {
		return err
	}
	return tx.ended(run)
}

// workspaceOf returns the workspace that a session or run names.
func workspaceOf(r Row) string {
	switch r := r.(type) {
	case *SessionRow:
		return r.WorkspaceID
	case *RunRow:
		return r.WorkspaceID
	}
	return ""
}

func (tx *Tx) push(entity Entity, subtype, session, content string) (event.Event, error) {
	d := event.Draft{Source: source(session), Type: string(entity), Content: content}
	if subtype != "" {
		d.Subtype = &subtype
	}
	return tx.e.Push(d)
}

// Delete deletes the row, with its history event, and not what hangs on it. It
// returns [ErrNotFound].
func (tx *Tx) Delete(entity Entity, id string) error {
	key := rowKey(entity, id)
	old := NewRow(entity)
	was, ok, err := tx.read(old, key)
	if err != nil {
		return err
	}
	if !ok {
		return notFound(entity, id)
	}
	b := append(event.AppendString([]byte(`{"op":"delete","id":`), id), '}')
	if _, err := tx.push(entity, "deleted", was.session, string(b)); err != nil {
		return err
	}
	if err := tx.apply(key, old, was, nil, version{}); err != nil {
		return err
	}
	run, ok := old.(*RunRow)
	if !ok || run.Ended() {
		return nil
	}
	return tx.ended(run)
}

// ready returns how many runs may start, of each session one.
func (tx *Tx) ready() (n int) {
	for _, index := range []byte{byReady, byReadyOld} {
		for range tx.by.Ascend([]byte{index}, after([]byte{index})) {
			n++
		}
	}
	return n
}

// Update runs fn in one durable write transaction: all rows that it writes, and their
// history events, are stored together or not at all. The errors are fn's, the errors of
// [engine.Thread.Update], and [ErrOwner] where the first write would make a history that
// the thread's owner could not use.
func (h *History) Update(ctx context.Context, fn func(tx *Tx) error) error {
	t, err := h.thread(true)
	if err != nil {
		return err
	}
	c := &shared{h: h, ctx: ctx, fn: fn}
	return c.after(t.Update(ctx, c.run))
}

// Put stores one row; see [Tx.Put].
func (h *History) Put(ctx context.Context, r Row) error {
	if m, ok := r.(*MessageRow); ok && h.of != nil {
		orElse(&m.ID, newID(Message))
		ctx = h.wants(ctx, rowKey(Message, m.ID), rowKey(Session, m.SessionID), rowKey(RunEntity, m.RunID))
	}
	return h.Update(ctx, func(tx *Tx) error { return tx.Put(r) })
}

// Get fills r with the row of that id. It returns [ErrNotFound].
func (h *History) Get(ctx context.Context, r Row, id string) error {
	found := false
	err := h.View(h.wants(ctx, rowKey(r.Entity(), id)), func(tx *Tx) (err error) {
		found, err = tx.Get(r, id)
		return err
	})
	if err == nil && !found {
		err = notFound(r.Entity(), id)
	}
	return err
}

// Rebuild makes the tables again from the log, in one commit, and returns how many
// history events it read. Events that are none are passed over.
func (h *History) Rebuild(ctx context.Context) (n int64, err error) {
	t, err := h.thread(false)
	if err != nil || t == nil {
		return 0, err
	}
	err = t.Update(ctx, func(e *engine.Tx) error {
		tx, err := newTx(ctx, h, e)
		if err != nil {
			return err
		}
		for _, table := range []*engine.Records{tx.rows, tx.by.Records} {
			if err := empty(table); err != nil {
				return err
			}
		}
		n = 0
		for e, err := range e.Events(0) {
			if err != nil {
				return err
			}
			c, err := ParseChange(e)
			if err != nil {
				continue // another process pushed it
			}
			if err := tx.replay(&c); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}

// PutNew stores the rows whose ids are not there yet, in their order and in one
// transaction, and returns how many they are. The errors are the errors of [History.Update] and
// [Tx.Put].
func (h *History) PutNew(ctx context.Context, rows []Row) (stored int64, err error) {
	var named [][]byte
	for _, r := range rows {
		named = append(named, keyOf(r), rowKey(RunEntity, runOf(r)))
		switch r := r.(type) {
		case *MessageRow:
			named = append(named, rowKey(Session, r.SessionID), rowKey(RunEntity, r.RunID))
		case *RunRow:
			named = append(named, rowKey(Session, r.SessionID), rowKey(RunEntity, r.ParentRunID))
		case *ToolCallRow:
			named = append(named, rowKey(RunStep, r.StepID))
		}
	}
	err = h.Update(h.wants(ctx, named...), func(tx *Tx) error {
		stored = 0
		for _, r := range rows {
			if _, there := tx.versionOf(keyOf(r)); there {
				continue
			}
			if err := tx.Put(r); err != nil {
				return fmt.Errorf("%s %q: %w", r.Entity(), IDOf(r), err)
			}
			stored++
		}
		return nil
	})
	return stored, err
}

func notFound(e Entity, id string) error { return fmt.Errorf("%w: %s %q", ErrNotFound, e, id) }
