package historymirror

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"thread/history"
)

// What a mirror knows of itself is in two tables. mirror_state is for readers: one row for
// each workspace that is mirrored, with the columns workspace_id, last_event_id,
// last_synced_at, status ("syncing", "idle" or "error") and error_message. thread_mirror
// has one row: of which directory (thread) and workspace_id the mirror is, which workspaces
// are in it, and how far it is (last_event_id); witness says which event that was, and
// states how many rows mirror_state had.

// StateSQL asks for what State is made of.
const StateSQL = `SELECT thread, workspace_id, workspaces, last_event_id, witness, states,
  (SELECT count(*) FROM mirror_state), (SELECT min(last_event_id) FROM mirror_state),
  (SELECT min(status || coalesce(error_message, '')) FROM mirror_state)
FROM thread_mirror`

// State is what a mirror knows of itself.
type State struct {
	Thread, Own string // of which directory and workspace it is
	workspaces  string
	last        int64
	witness     string
	noted       int64  // the last_event_id that witness is of
	status      string // the worst of all workspaces
}

// StateRow is the row of StateSQL. Least and Status are nil without a row in
// mirror_state.
type StateRow struct {
	Thread, Own, Workspaces, Witness string
	Last, States, Count              int64
	Least                            *int64
	Status                           *string
}

// State returns how far the mirror is. Of several numbers the smallest holds: what is
// copied again does no harm.
func (r *StateRow) State() State {
	s := State{Thread: r.Thread, Own: r.Own, workspaces: r.Workspaces, last: r.Last, witness: r.Witness, noted: r.Last}
	switch {
	case r.Count < r.States:
		s.last = 0
	case r.Least != nil:
		s.last = max(0, min(s.last, *r.Least))
	}
	if r.Status != nil {
		s.status = *r.Status
	}
	return s
}

// scope says which workspaces are mirrored, as far as they have rows: their ids, sorted.
type scope struct {
	only, chat []string
}

func (m *Mirror) scope(p *history.Page) scope {
	s := scope{only: m.workspaces}
	for i := range p.Workspaces {
		if p.Workspaces[i].Kind == "chat" {
			s.chat = append(s.chat, p.Workspaces[i].ID)
		}
	}
	slices.Sort(s.chat)
	return s
}

func (s *scope) has(workspace string) bool {
	return workspace != "" && !slices.Contains(s.chat, workspace) && (s.only == nil || slices.Contains(s.only, workspace))
}

func (s *scope) String() string {
	b, _ := json.Marshal(map[string]any{"only": s.only, "not": s.chat}) // texts always have a form
	return string(b)
}

// listed returns the ids of the workspaces that are mirrored, whether or not there are
// rows of them.
func (s *scope) listed(p *history.Page) (ids []string) {
	for i := range p.Workspaces {
		if id := p.Workspaces[i].ID; s.has(id) {
			ids = append(ids, id)
		}
	}
	for _, id := range s.only {
		if s.has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func witnessOf(event string) string {
	if event == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(event))
	return hex.EncodeToString(sum[:8])
}

// torn reports whether the log does not continue what was copied.
func (s *State) torn(p *history.Page, of *scope) bool {
	switch {
	case s.Own != p.Own || s.workspaces != of.String():
		return true
	case s.last > p.Head || s.last < p.Head && (p.Oldest == 0 || p.Oldest > s.last+1):
		return true
	}
	return s.noted == s.last && p.At != "" && s.witness != witnessOf(p.At)
}
