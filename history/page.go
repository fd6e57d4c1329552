package history

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// Page is a part of the log of one moment, and what a mirror has to know also.
type Page struct {
	Changes []PageChange // in order
	Last    int64        // how far it goes: Head, if nothing is left out behind it
	// At is the event that the page comes after, as a text that no other event has; ""
	// when it is not stored. End is At of the page that comes after this one.
	At, End string
	Oldest  int64 // the id of the oldest history event that is stored; 0 when there is none
	Head    int64 // the id of the newest one ever
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
//
// Whose the rows are is read a moment later: on a server, all of that is one question.
func (h *History) Page(ctx context.Context, after int64, events, bytes int) (p Page, err error) {
	var workspaces []string
	err = h.View(ctx, func(tx *Tx) (err error) {
		p = Page{Head: tx.e.Head(), Last: tx.e.Head()}
		workspaces = tx.ids(prefix(byWorkspaceAll))
		if p.At, err = tx.witness(after); err != nil {
			return err
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
		p.End, err = tx.witness(p.Last)
		return err
	})
	if err == nil {
		err = h.owners(ctx, &p, workspaces)
	}
	return p, err
}

// witness returns the event as a text that no other event has, "" when it is not stored.
func (tx *Tx) witness(id int64) (string, error) {
	e, ok, err := tx.e.Event(id)
	if err != nil || !ok {
		return "", err
	}
	return e.CreatedAt + " " + e.Source + " " + e.Content, nil
}

// owners notes the rows of the workspaces with these ids, and to which of them each change belongs.
// No row moves from one session, run or workspace to another, so the present ones answer for the
// past ones.
func (h *History) owners(ctx context.Context, p *Page, workspaces []string) error {
	of := make([][]byte, len(p.Changes)) // the keys of the sessions and runs
	for i := range p.Changes {
		var err error
		if of[i], err = p.Changes[i].owner(); err != nil {
			return err
		}
	}
	wanted := slices.DeleteFunc(slices.Clone(of), func(key []byte) bool { return key == nil })
	for _, id := range workspaces {
		wanted = append(wanted, rowKey(Workspace, id))
	}
	return h.View(h.wants(ctx, wanted...), func(tx *Tx) error {
		p.Own, p.Workspaces = "", nil
		for _, id := range workspaces {
			var w WorkspaceRow
			ok, err := tx.Get(&w, id)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			if w.Own {
				p.Own = w.ID
			}
			p.Workspaces = append(p.Workspaces, w)
		}
		known := map[string]string{}
		for i, key := range of {
			var err error
			if p.Changes[i].Workspace, err = tx.ownerOf(key, p.Own, known); err != nil {
				return err
			}
		}
		return nil
	})
}

// ownerOf returns the workspace of the session or run with that key, "" where there is none. known
// has those that were asked for before.
func (tx *Tx) ownerOf(key []byte, own string, known map[string]string) (string, error) {
	w, ok := known[string(key)]
	if ok || key == nil {
		return w, nil
	}
	row := NewRow(Session)
	if key[0] == entityTags[RunEntity] {
		row = NewRow(RunEntity)
	}
	_, found, err := tx.read(row, key)
	if err != nil {
		return "", err
	}
	if w = workspaceOf(row); found && w == "" {
		w = own
	}
	known[string(key)] = w
	return w, nil
}

// owner returns the key of the session or run that says to which workspace the row belongs, nil
// for none.
func (c *Change) owner() ([]byte, error) {
	switch {
	case c.Op == OpDelete || c.Entity == Workspace || c.Entity == Limit:
		return nil, nil
	case c.Session != "":
		return rowKey(Session, c.Session), nil
	case c.Entity == RunEntity:
		return rowKey(RunEntity, c.EntityID), nil
	}
	var row struct {
		RunID string `json:"run_id"`
	}
	err := json.Unmarshal(c.Row, &row)
	return rowKey(RunEntity, row.RunID), err
}
