package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
)

// The tables, which Rebuild makes again from the log.
const (
	tableRows = "rows" // entity and id -> the history event with the newest version of the row
	tableBy   = "by"   // the indexes
)

// The kinds of change.
const (
	OpUpsert  = "upsert"
	OpDelete  = "delete"
	OpReplace = "replace" // the row again, unchanged, because the older event goes
)

// Tx is one transaction on a history. It is valid only during the function it was
// given to, and only on that goroutine.
type Tx struct {
	h        *History
	e        *engine.Tx
	rows, by *engine.Records
	pushed   map[int64]event.Event // what this transaction has written
	now      time.Time
}

func newTx(h *History, e *engine.Tx) (*Tx, error) {
	tx := &Tx{h: h, e: e, now: h.now().UTC().Truncate(time.Millisecond)}
	var err error
	if tx.rows, err = e.Records(tableRows); err == nil {
		tx.by, err = e.Records(tableBy)
	}
	return tx, err
}

// version says where a row stands.
type version struct {
	latest  int64  // the event with its newest version
	first   int64  // the event with which it came to be; the order of rows
	session string // whose session it belongs to; "" for none
}

func (v *version) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(v.latest))
	b = binary.BigEndian.AppendUint64(b, uint64(v.first))
	return append(b, v.session...)
}

func decodeVersion(b []byte) (v version, ok bool) {
	if len(b) < 16 {
		return v, false
	}
	return version{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:])), string(b[16:])}, true
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
	return rowKey(r.Entity(), *r.id())
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
	_, ok, err := tx.read(r, key)
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
		if at := tx.h.beatOf(run.ID); at.After(run.HeartbeatAt) {
			run.HeartbeatAt = at
		}
	}
}

// rowOf returns the row in the content of a history event, "" where there is none.
// A quote inside of a text is escaped, so the first of these is the member.
func rowOf(content string) string {
	if _, row, ok := strings.Cut(content, `,"row":`); ok && strings.HasSuffix(row, "}}") {
		return row[:len(row)-1]
	}
	return ""
}

// Put stores the row in place of an earlier one with its id, with its history event.
// An id, a status and times that are missing are set in r.
//
// Put returns [ErrInvalid], [ErrNotFound] where the row names another one that is not
// there, and [ErrExists] for a step whose seq another one of its run has.
func (tx *Tx) Put(r Row) error {
	fill(r, tx.now)
	if step, ok := r.(*StepRow); ok && step.Seq == 0 {
		step.Seq = tx.nextSeq(step.RunID)
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
	old := newRow(r.Entity())
	was, had, err := tx.read(old, key)
	if err != nil {
		return err
	}
	if !had {
		old = nil
	}
	b := event.AppendString(append(append([]byte(`{"op":"`), op...), `","id":`...), *r.id())
	if had {
		b = fmt.Appendf(b, `,"first":%d`, was.first)
	}
	if b, err = appendRow(append(b, `,"row":`...), r, false); err != nil {
		return err
	}
	e, err := tx.push(r.Entity(), r.subtype(), session, string(append(b, '}')))
	if err != nil {
		return err
	}
	is := version{latest: e.ID, first: e.ID, session: session}
	if had {
		is.first = was.first
	}
	return tx.apply(key, old, was, r, is)
}

func (tx *Tx) push(entity Entity, subtype, session, content string) (event.Event, error) {
	d := event.Draft{Source: source(session), Type: string(entity), Content: content}
	if subtype != "" {
		d.Subtype = &subtype
	}
	e, err := tx.e.Push(d)
	if err == nil {
		if tx.pushed == nil {
			tx.pushed = map[int64]event.Event{}
		}
		tx.pushed[e.ID] = e
	}
	return e, err
}

// Delete deletes the row, with its history event, and not what hangs on it. It
// returns [ErrNotFound].
func (tx *Tx) Delete(entity Entity, id string) error {
	key := rowKey(entity, id)
	old := newRow(entity)
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
	return tx.apply(key, old, was, nil, version{})
}

// apply brings the tables from the old version of a row to the new one. Either may
// be nil. Everything in the tables comes through here, from a write as from the log.
func (tx *Tx) apply(key []byte, old Row, was version, row Row, is version) error {
	var before, now keys
	if old != nil {
		before.first, before.latest = was.first, was.latest
		old.keys(&before)
	}
	if row != nil {
		now.first, now.latest = is.first, is.latest
		row.keys(&now)
	}
	for _, k := range before.list {
		if !contains(now.list, k) {
			if err := tx.by.Delete(k); err != nil {
				return err
			}
		}
	}
	for _, k := range now.list {
		if old == nil || !contains(before.list, k) || *old.id() != *row.id() { // a workspace may get another id
			if err := tx.by.Put(k, []byte(*row.id())); err != nil {
				return err
			}
		}
	}
	if row == nil {
		if err := tx.rows.Delete(key); err != nil {
			return err
		}
	} else if err := tx.rows.Put(key, is.encode()); err != nil {
		return err
	}
	return tx.settle(old, row)
}

func contains(list [][]byte, key []byte) bool {
	for _, k := range list {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}

// settle keeps the index of ready runs after a change of a run: of each session its
// first queued run is in it, as long as no run of the session is active.
func (tx *Tx) settle(old, row Row) error {
	seen := ""
	for _, r := range []Row{old, row} {
		run, ok := r.(*RunRow)
		if !ok || run == nil || run.SessionID == "" || run.SessionID == seen || run.Ended() && old == nil {
			continue
		}
		seen = run.SessionID
		var first, id []byte
		if !tx.any(prefix(byRunActive, seen)) {
			p := prefix(byRunQueued, seen)
			for rec := range tx.by.Ascend(p, after(p)) {
				first, id = bytes.Clone(rec.Key[len(rec.Key)-8:]), bytes.Clone(rec.Value)
				break
			}
		}
		head := prefix(byReadyHead, seen)
		is := bytes.Clone(tx.by.Get(head))
		if bytes.Equal(is, first) {
			continue
		}
		if is != nil {
			if err := tx.by.Delete(append([]byte{byReady}, is...)); err != nil {
				return err
			}
		}
		if first == nil {
			if err := tx.by.Delete(head); err != nil {
				return err
			}
			continue
		}
		if err := tx.by.Put(append([]byte{byReady}, first...), id); err != nil {
			return err
		}
		if err := tx.by.Put(head, first); err != nil {
			return err
		}
	}
	return nil
}

// any reports whether an index has a key that begins with p.
func (tx *Tx) any(p []byte) bool {
	for range tx.by.Ascend(p, after(p)) {
		return true
	}
	return false
}

// newRow returns an empty row of that entity, nil for an unknown one.
func newRow(e Entity) Row {
	switch e {
	case Workspace:
		return new(WorkspaceRow)
	case Session:
		return new(SessionRow)
	case Message:
		return new(MessageRow)
	case RunEntity:
		return new(RunRow)
	case RunStep:
		return new(StepRow)
	case ToolCall:
		return new(ToolCallRow)
	case HookRun:
		return new(HookRunRow)
	case ActionRun:
		return new(ActionRunRow)
	case Artifact:
		return new(ArtifactRow)
	case Limit:
		return new(LimitRow)
	}
	return nil
}

// NewRow returns an empty row of that entity, nil for an unknown one.
func NewRow(e Entity) Row { return newRow(e) }

// IDOf returns the id of the row.
func IDOf(r Row) string { return *r.id() }

// Belongs makes a row that hangs on a run one of that run, with that id if it is not
// "". It returns [ErrExists] for one of another run.
func Belongs(r Row, run, id string) error {
	var of *string
	switch r := r.(type) {
	case *StepRow:
		of = &r.RunID
	case *ToolCallRow:
		of = &r.RunID
	case *HookRunRow:
		of = &r.RunID
	case *ActionRunRow:
		of = &r.RunID
	case *ArtifactRow:
		of = &r.RunID
	default:
		return invalidf("a %s hangs on no run", r.Entity())
	}
	if *of != "" && *of != run {
		return fmt.Errorf("%w: %s %q of run %q", ErrExists, r.Entity(), id, *of)
	}
	*of = run
	orElse(r.id(), id)
	return nil
}

// Change is one history event.
type Change struct {
	ID       int64  // rises; the cursor of a mirror
	At       string // event.TimeLayout
	Session  string // "" for a row that belongs to none
	Entity   Entity
	EntityID string
	Op       string          // OpUpsert, OpDelete or OpReplace
	Row      json.RawMessage // all columns that are not null; nil for OpDelete

	first int64
}

// ParseChange reads a history event. It returns [ErrInvalid] for any other event.
func ParseChange(e *event.Event) (Change, error) {
	c := Change{ID: e.ID, At: e.CreatedAt, Entity: Entity(e.Type)}
	c.Session, _ = strings.CutPrefix(e.Source, "session:")
	if c.Session == e.Source {
		c.Session = ""
	}
	row := rowOf(e.Content)
	head := e.Content
	if row != "" {
		c.Row = json.RawMessage(row)
		head = e.Content[:len(e.Content)-len(`,"row":}`)-len(row)] + "}"
	}
	var in struct {
		Op    string `json:"op"`
		ID    string `json:"id"`
		First int64  `json:"first"`
	}
	if err := json.Unmarshal([]byte(head), &in); err != nil || newRow(c.Entity) == nil || (row == "") != (in.Op == OpDelete) {
		return c, invalidf("event %d is no history event", e.ID)
	}
	c.Op, c.EntityID, c.first = in.Op, in.ID, in.First
	return c, nil
}
