package history

import (
	"context"
	"fmt"
	"iter"
	"time"

	"thread/engine"
	"thread/event"
)

// The tables, which Rebuild makes again from the log.
const (
	tableRows = "rows" // entity and id -> the history event with the newest version of the row
	tableBy   = "by"   // the indexes
)

// Tx is one transaction on a history. It is valid only during the function it was
// given to, and only on that goroutine.
type Tx struct {
	ctx    context.Context
	h      *History
	e      *engine.Tx
	rows   *engine.Records
	by     *indexes
	pushed map[int64]event.Event // what this transaction has written and has no inline row
	now    time.Time
	notes  []Record                 // for the log
	steps  []string                 // steps whose locks are removed after the commit, if they are free
	beats  map[string]time.Duration // of a thread on a server, nil before they are read
}

func newTx(ctx context.Context, h *History, e *engine.Tx) (*Tx, error) {
	tx := &Tx{ctx: ctx, h: h, e: e, now: h.now().UTC().Truncate(time.Millisecond)}
	if h.of != nil {
		tx.now = e.Now().UTC().Truncate(time.Millisecond) // the clocks of hosts differ
	}
	var err error
	if tx.rows, err = e.Records(tableRows); err == nil {
		tx.by = new(indexes)
		tx.by.Records, err = e.Records(tableBy)
	}
	return tx, err
}

// run runs fn in the transaction. An error of an index is the error of all.
func (tx *Tx) run(fn func(tx *Tx) error) error {
	err := fn(tx)
	if tx.by.failed != nil {
		return tx.by.failed
	}
	return err
}

// indexes are the records of the indexes. An error of a server ends a loop over them, and then
// the transaction.
type indexes struct {
	*engine.Records
	failed error
}

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

// fill is read for those who need the row alone, and as it is now.
func (tx *Tx) fill(r Row, key []byte) (ok bool, err error) {
	if row := inlineRow(tx.rows.Get(key)); row != nil {
		ok, err = true, parseCompact(r, string(row))
	} else {
		_, ok, err = tx.read(r, key)
	}
	if err == nil && ok {
		tx.complete(r)
	}
	return ok, err
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
