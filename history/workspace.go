package history

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"thread/engine"
	"thread/event"
	"thread/internal/address"
	"thread/internal/store"
)

// A history belongs to a workspace, its directory's, whose id no other row
// holds. A directory that was copied is another workspace: it then differs from what
// was noted in path and in inode, where one that was moved has its inode and one that
// was restored from a backup its path. Where the other of the two, at the path or with the
// inode that was noted, still lives with the same id, the directory is a copy, too.

// place returns where the directory is. Where that cannot be told now, a directory
// whose place is noted is taken to be still there.
func (h *History) place() (path, inode string, err error) {
	if h.of != nil {
		return "", "", nil // the workspace is the thread's, wherever its server is
	}
	if path, err = filepath.EvalSymlinks(h.parent); err == nil {
		inode, err = inodeOf(path)
	}
	return path, inode, err
}

// ensureWorkspace sees to it that the row of the own workspace is there, and is that
// of this directory.
func (tx *Tx) ensureWorkspace() error {
	var w WorkspaceRow
	key := rowKey(Workspace, "")
	path, inode, unknown := tx.h.place()
	_, ok, err := tx.read(&w, key)
	switch {
	case err != nil:
		return err
	case tx.h.of != nil && ok:
		return nil // also one that came from a directory
	case tx.h.of != nil:
		w = WorkspaceRow{Own: true, Name: address.Name(tx.h.parent)}
	case !ok && unknown != nil:
		return unknown
	case !ok:
		w = WorkspaceRow{Own: true, RootPath: path, Name: filepath.Base(path), Path: path, Inode: inode}
	case unknown != nil || w.Path == path && w.Inode == inode:
		return nil
	default:
		if tx.h.copied || w.Path != "" && w.Path != path && (w.Inode != inode || inode == "") {
			w.ID = ""
		}
		if w.RootPath == w.Path {
			w.RootPath = path
		}
		w.Path, w.Inode, w.UpdatedAt = path, inode, tx.now
	}
	return tx.Put(&w)
}

// outside sees to it that the store of a chat workspace, which is this history, is not below
// the root of the workspace. A root that was never chosen, and is the directory itself, goes.
func (h *History) outside(w *WorkspaceRow) error {
	if w.RootPath == "" {
		return nil
	}
	path, _, err := h.place()
	if err != nil || h.of != nil {
		return err
	}
	if w.Own && w.RootPath == path {
		w.RootPath = ""
		return nil
	}
	root, err := filepath.EvalSymlinks(w.RootPath)
	if err != nil {
		root = filepath.Clean(w.RootPath)
	}
	if rel, err := filepath.Rel(root, path); err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return nil
	}
	return invalidf("the store %s is below the root %s of a chat workspace", path, w.RootPath)
}

// Workspace returns the own workspace of the directory. One that is not stored yet
// has no id.
func (h *History) Workspace(ctx context.Context) (w WorkspaceRow, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		_, _, err := tx.read(&w, rowKey(Workspace, ""))
		return err
	})
	return w, err
}

// SetWorkspace changes a workspace, or makes one: the directory's for the id
// "". It returns the row as it is stored.
func (h *History) SetWorkspace(ctx context.Context, id string, change func(w *WorkspaceRow)) (w WorkspaceRow, err error) {
	err = h.Update(ctx, func(tx *Tx) error {
		w = WorkspaceRow{}
		ok, err := tx.Get(&w, id)
		if err != nil {
			return err
		}
		own, path, inode := w.Own, w.Path, w.Inode
		change(&w)
		if id != "" && !ok {
			w.ID = id
		}
		w.Own, w.Path, w.Inode, w.UpdatedAt = own, path, inode, tx.now
		return tx.Put(&w)
	})
	return w, err
}

// record is what every answer about a run says.
func (h *History) record(question string, r *RunRow) Record {
	trace, request := TraceOf(r)
	return Record{At: r.CreatedAt, Event: question, SubjectRef: r.InitiatorRef, WorkspaceID: r.WorkspaceID, SessionID: r.SessionID,
		RunID: r.ID, ParentRunID: r.ParentRunID, TriggerType: r.TriggerType, TriggerRef: r.TriggerRef, AgentName: r.AgentName,
		EffectiveAgentName: r.EffectiveAgentName, SwitchCount: r.SwitchCount, Status: r.Status, ErrorCode: r.ErrorCode,
		ErrorMessage: r.ErrorMessage, DurationMS: r.Duration(h.now()).Milliseconds(), RequestID: request, Traceparent: trace}
}

// wants returns ctx for a transaction that will ask for these rows.
func (h *History) wants(ctx context.Context, rows ...[]byte) context.Context {
	if h.of == nil {
		return ctx
	}
	w := store.WantedOf(ctx)
	w.Records = slices.Concat(w.Records, wantedIn(tableRows, append(rows, rowKey(Workspace, ""))))
	return w.With(ctx)
}

func wantedIn(t store.Table, keys [][]byte) (list []store.WantedRecord) {
	for _, key := range keys {
		list = append(list, store.WantedRecord{Table: t, Key: key})
	}
	return list
}

// version says where a row stands, and is the row, too, when that is short.
type version struct {
	latest  int64  // the event with its newest version
	first   int64  // the event with which it came to be; the order of rows
	session string // whose session it belongs to; "" for none
	row     []byte // in its compact form; nil where it stands in the event only
}

// inlined marks the record of a row that stands in the record itself. Ids of events leave
// that bit free; older versions of this program wrote records without it only.
const inlined = 1 << 63

// encode returns the record:
//
//	latest   8 bytes, big-endian, with inlined
//	first    8 bytes
//	session  the rest; with inlined uvarint length, bytes, and the row is the rest
func (v *version) encode() []byte {
	if v.row == nil {
		b := binary.BigEndian.AppendUint64(nil, uint64(v.latest))
		b = binary.BigEndian.AppendUint64(b, uint64(v.first))
		return append(b, v.session...)
	}
	b := make([]byte, 0, 16+2+len(v.session)+len(v.row))
	b = binary.BigEndian.AppendUint64(b, uint64(v.latest)|inlined)
	b = binary.BigEndian.AppendUint64(b, uint64(v.first))
	b = append(binary.AppendUvarint(b, uint64(len(v.session))), v.session...)
	return append(b, v.row...)
}

// decodeVersion reads a record. The version keeps a part of it.
func decodeVersion(b []byte) (v version, ok bool) {
	if len(b) < 16 {
		return v, false
	}
	latest := binary.BigEndian.Uint64(b)
	v.latest, v.first = int64(latest&^inlined), int64(binary.BigEndian.Uint64(b[8:]))
	if b = b[16:]; latest&inlined == 0 {
		v.session = string(b)
		return v, true
	}
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return v, false
	}
	b = b[size:]
	v.session, v.row = string(b[:n]), b[n:]
	return v, true
}

// inlineRow returns the row in a record, nil when there is none.
func inlineRow(b []byte) []byte {
	if len(b) < 16 || b[0]&(inlined>>56) == 0 {
		return nil
	}
	n, size := binary.Uvarint(b[16:])
	if b = b[16:]; size <= 0 || n > uint64(len(b)-size) {
		return nil
	}
	return b[uint64(size)+n:]
}

var entityTags = map[Entity]byte{
	Workspace: 'w', Session: 's', Message: 'm', RunEntity: 'r', RunStep: 'p', ToolCall: 't',
	HookRun: 'h', ActionRun: 'a', Artifact: 'f', Limit: 'l',
}

// rowKey returns the key of a row. The workspace of the directory has one of its
// own: its id changes when the directory is copied.
func rowKey(e Entity, id string) []byte {
	return append([]byte{entityTags[e]}, id...)
}

func keyOf(r Row) []byte {
	if w, ok := r.(*WorkspaceRow); ok && w.Own {
		return rowKey(Workspace, "")
	}
	return rowKey(r.Entity(), *idOf(r))
}

// versionOf returns where the row with that key stands.
func (tx *Tx) versionOf(key []byte) (version, bool) { return decodeVersion(tx.rows.Get(key)) }

// event returns the history event with that id.
func (tx *Tx) event(id int64) (event.Event, bool, error) {
	if e, ok := tx.pushed[id]; ok {
		return e, true, nil
	}
	return tx.e.Event(id)
}

// read fills r with the newest version of the row of that key.
func (tx *Tx) read(r Row, key []byte) (v version, ok bool, err error) {
	if v, ok = tx.versionOf(key); !ok {
		return v, false, nil
	}
	if v.row != nil {
		return v, true, parseCompact(r, string(v.row))
	}
	e, ok, err := tx.event(v.latest)
	if err != nil {
		return v, false, err
	}
	row := rowOf(e.Content)
	if !ok || row == "" {
		return v, false, corrupt(r.Entity(), string(key[1:]))
	}
	return v, true, ParseJSON(r, []byte(row))
}

// parseCompact fills the row. The row keeps parts of text.
func parseCompact(r Row, text string) error {
	c := columns{decode: true, compact: &compact{in: text}}
	walk(r, &c)
	if c.err == nil && c.compact.in != "" {
		c.err = corrupt(r.Entity(), *idOf(r))
	}
	return c.err
}

// note keeps a record of what was written, for the log.
func (tx *Tx) note(r Row, eventID int64) error {
	if tx.h.log == nil {
		return nil
	}
	var run RunRow
	switch row := r.(type) {
	case *RunRow:
		run = *row
	case *ToolCallRow, *HookRunRow, *ActionRunRow:
		if ok, err := tx.Get(&run, runOf(r)); err != nil || !ok {
			return err
		}
	default:
		return nil
	}
	rec := tx.h.record("", &run)
	switch r := r.(type) {
	case *RunRow:
	case *ToolCallRow:
		rec.At, rec.ToolCallID, rec.SourceType, rec.ToolName, rec.Status, rec.DurationMS = r.StartedAt, r.ID, r.SourceType, r.ToolName, r.Status, r.DurationMS
	case *HookRunRow:
		rec.At, rec.HookName, rec.EventName, rec.Status, rec.ErrorMessage = r.StartedAt, r.HookName, r.EventName, r.Status, r.ErrorMessage
		rec.DurationMS = max(0, r.EndedAt.Sub(r.StartedAt)).Milliseconds()
	case *ActionRunRow:
		rec.At, rec.ActionName, rec.Status = r.StartedAt, r.ActionName, r.Status
		rec.DurationMS = max(0, r.EndedAt.Sub(r.StartedAt)).Milliseconds()
	}
	if r.Entity() != RunEntity {
		rec.ErrorCode = ""
	}
	rec.Event, rec.HistoryEventID = string(r.Entity())+" "+rec.Status, eventID
	if rec.WorkspaceID == "" {
		var own WorkspaceRow
		if _, _, err := tx.read(&own, rowKey(Workspace, "")); err != nil {
			return err
		}
		rec.WorkspaceID = own.ID
	}
	tx.notes = append(tx.notes, rec)
	return nil
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

// corrupt says that the tables and the log do not fit.
func corrupt(e Entity, id string) error {
	return fmt.Errorf("%w: the history of %s %q; thread history rebuild makes its tables again", engine.ErrCorrupt, e, id)
}
