package history

import (
	"fmt"
	"time"
)

// LimitRow bounds the runs of a subject or of a workspace.
type LimitRow struct {
	ID        string // scope and ref
	Scope     string // subject or workspace
	Ref       string // whose; "" for every subject that has no limit of its own, or for the own workspace
	Active    int64  // how many runs may be active at once; 0 for any number
	Rate      int64  // how many may be started or enqueued within Per; 0 for any number
	PerMS     int64
	CreatedAt time.Time
}

// Entity implements Row.
func (*LimitRow) Entity() Entity { return Limit }

func (r *LimitRow) id() *string     { return &r.ID }
func (r *LimitRow) subtype() string { return r.Scope }
func (r *LimitRow) keys(k *keys)    { k.add(byLimit) }
func (r *LimitRow) columns(c *columns) {
	c.text("id", &r.ID)
	c.text("scope", &r.Scope)
	c.text("ref", &r.Ref)
	c.some("active", &r.Active)
	c.some("rate", &r.Rate)
	c.some("per_ms", &r.PerMS)
	c.at("created_at", &r.CreatedAt)
}

func (r *LimitRow) valid() error {
	if r.Active < 0 || r.Rate < 0 || (r.Rate == 0) != (r.PerMS <= 0) {
		return invalidf("a limit of %d active runs and %d in %d ms", r.Active, r.Rate, r.PerMS)
	}
	r.ID = LimitID(r.Scope, r.Ref)
	return firstOf(oneOf("scope", r.Scope, []string{"subject", "workspace"}), indexed("ref", r.Ref))
}

// LimitID returns the id of the limit of a subject or workspace.
func LimitID(scope, ref string) string { return scope + ":" + ref }

// LimitError says which limit keeps a run from being started. It wraps [ErrLimit].
type LimitError struct {
	Scope, Ref string
	Active     int64         // the limit of active runs, 0 when it is that of the rate
	Rate       int64         // so many
	Per        time.Duration // in this time
}

func (e *LimitError) Error() string {
	who := e.Scope
	if e.Ref != "" {
		who += fmt.Sprintf(" %q", e.Ref)
	}
	if e.Active > 0 {
		return fmt.Sprintf("%s has %d active runs, which is its limit", who, e.Active)
	}
	return fmt.Sprintf("%s has had %d runs within %s, which is its limit", who, e.Rate, e.Per)
}

func (e *LimitError) Unwrap() error { return ErrLimit }

// checkLimits returns a *LimitError for a run that may not be started now. What
// counts is read from the indexes: no counter can be wrong.
func (tx *Tx) checkLimits(r *RunRow, active, rate bool) error {
	for _, c := range []struct {
		scope, ref   string
		active, runs byte
	}{
		{"workspace", r.WorkspaceID, byActiveSpace, byRunWorkspace},
		{"subject", r.InitiatorRef, byActiveSubject, byRunInitiator},
	} {
		if c.scope == "subject" && c.ref == "" {
			continue
		}
		var l LimitRow
		ok, err := tx.Get(&l, LimitID(c.scope, c.ref))
		if err == nil && !ok && c.scope == "subject" {
			ok, err = tx.Get(&l, LimitID(c.scope, ""))
		}
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if active && l.Active > 0 && tx.atLeast(prefix(c.active, c.ref), l.Active) {
			return &LimitError{Scope: c.scope, Ref: c.ref, Active: l.Active}
		}
		per := time.Duration(l.PerMS) * time.Millisecond
		if rate && l.Rate > 0 {
			if full, err := tx.within(prefix(c.runs, c.ref), l.Rate, tx.now.Add(-per)); err != nil || full {
				if err == nil {
					err = &LimitError{Scope: c.scope, Ref: c.ref, Rate: l.Rate, Per: per}
				}
				return err
			}
		}
	}
	return nil
}

// atLeast reports whether an index has n keys that begin with p.
func (tx *Tx) atLeast(p []byte, n int64) bool {
	for range tx.by.Ascend(p, after(p)) {
		if n--; n <= 0 {
			return true
		}
	}
	return false
}

// within reports whether the newest n runs of an index were all made after since.
func (tx *Tx) within(p []byte, n int64, since time.Time) (bool, error) {
	for rec := range tx.by.Descend(p, after(p)) {
		var r RunRow
		if err := tx.must(&r, string(rec.Value)); err != nil {
			return false, err
		}
		if !r.CreatedAt.After(since) {
			return false, nil
		}
		if n--; n <= 0 {
			return true, nil
		}
	}
	return false, nil
}
