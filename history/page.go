package history

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// Page is a part of the log, and what a mirror has to know also, all of one moment.
type Page struct {
	Changes []PageChange // in order
	Last    int64        // how far it goes: Head, if nothing is left out behind it
	// At is the event that the page comes after, as a text that no other event has; ""
	// when it is not stored.
	At     string
	Oldest int64 // the id of the oldest history event that is stored; 0 when there is none
	Head   int64 // the id of the newest one ever
	// Own is the id of the directory's own workspace, and Workspaces are all that have
	// a row.
	Own        string
	Workspaces []WorkspaceRow
}

// PageChange is a history event, and to which workspace its row belongs: "" for a
// delete, for a workspace or a limit, and for a row of a session or run that is
// deleted by now, as it is by then itself.
type PageChange struct {
	Change
	Workspace string
}

// Page returns the history events with ids above after, at most events of them, and
// fewer when they have more than bytes bytes. It is empty where there is no history.
func (h *History) Page(ctx context.Context, after int64, events, bytes int) (p Page, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		p = Page{Head: tx.e.Head(), Last: tx.e.Head()}
		if err := tx.workspaces(&p); err != nil {
			return err
		}
		at, ok, err := tx.e.Event(after)
		if err != nil {
			return err
		}
		if ok {
			p.At = at.CreatedAt + " " + at.Source + " " + at.Content
		}
		for e, err := range tx.e.Events(0) {
			if err != nil {
				return err
			}
			p.Oldest = e.ID
			break
		}
		size, last := 0, after
		for e, err := range tx.e.Events(after) {
			if err != nil {
				return err
			}
			if len(p.Changes) == events || size > bytes {
				p.Last = last
				break
			}
			last = e.ID
			size += len(e.Content)
			c, err := ParseChange(e)
			if err != nil {
				continue // another process pushed it
			}
			c.At, c.Session, c.Row = strings.Clone(c.At), strings.Clone(c.Session), slices.Clone(c.Row)
			c.Entity = Entity(strings.Clone(string(c.Entity)))
			p.Changes = append(p.Changes, PageChange{Change: c})
		}
		of := owners{tx: tx, own: p.Own, known: map[string]string{}}
		for i := range p.Changes {
			c := &p.Changes[i]
			if c.Workspace, err = of.change(&c.Change); err != nil {
				return err
			}
		}
		return nil
	})
	return p, err
}

// workspaces notes the rows of all workspaces.
func (tx *Tx) workspaces(p *Page) error {
	for _, id := range tx.ids(prefix(byWorkspaceAll)) {
		var w WorkspaceRow
		if err := tx.must(&w, id); err != nil {
			return err
		}
		if w.Own {
			p.Own = w.ID
		}
		p.Workspaces = append(p.Workspaces, w)
	}
	return nil
}

// owners finds out whose rows are. No row moves from one session, run or workspace to
// another, so the present ones answer for the past ones.
type owners struct {
	tx    *Tx
	own   string
	known map[string]string // by the key of a session or run
}

func (o *owners) change(c *Change) (string, error) {
	switch {
	case c.Op == OpDelete || c.Entity == Workspace || c.Entity == Limit:
		return "", nil
	case c.Session != "":
		return o.of(Session, c.Session)
	case c.Entity == RunEntity:
		return o.of(RunEntity, c.EntityID)
	}
	var row struct {
		RunID string `json:"run_id"`
	}
	if err := json.Unmarshal(c.Row, &row); err != nil {
		return "", err
	}
	return o.of(RunEntity, row.RunID)
}

func (o *owners) of(e Entity, id string) (string, error) {
	key := string(rowKey(e, id))
	if w, ok := o.known[key]; ok {
		return w, nil
	}
	row := NewRow(e)
	_, ok, err := o.tx.read(row, []byte(key))
	if err != nil {
		return "", err
	}
	w := ""
	if ok {
		if w = workspaceOf(row); w == "" {
			w = o.own
		}
	}
	o.known[key] = w
	return w, nil
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

// runOf returns the run that the row hangs on.
func runOf(r Row) string {
	switch r := r.(type) {
	case *StepRow:
		return r.RunID
	case *ToolCallRow:
		return r.RunID
	case *HookRunRow:
		return r.RunID
	case *ActionRunRow:
		return r.RunID
	case *ArtifactRow:
		return r.RunID
	}
	return ""
}
