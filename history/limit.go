package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"thread/engine"
)

// The scopes of a limit on starts of queued runs: of all, of one agent, for one subject, with
// one unique key. An empty ref means each agent, subject or key without a separate limit.
const (
	StartsOfAll     = "starts"
	StartsOfAgent   = "starts_agent"
	StartsOfSubject = "starts_subject"
	StartsOfKey     = "starts_key"
)

// MaxRate bounds the number of a rate.
const MaxRate = 1_000_000

var limitScopes = []string{"subject", "workspace", StartsOfAll, StartsOfAgent, StartsOfSubject, StartsOfKey}

// Entity implements Row.
func (*LimitRow) Entity() Entity { return Limit }

func (r *LimitRow) keys(k *keys) { k.add(byLimit) }

func (r *LimitRow) valid() error {
	if r.Active < 0 || r.Rate < 0 || r.Rate > MaxRate || (r.Rate == 0) != (r.PerMS <= 0) {
		return invalidf("a limit of %d active runs and %d in %d ms", r.Active, r.Rate, r.PerMS)
	}
	if r.Scope != "subject" && r.Scope != "workspace" && r.Active > 0 {
		return invalidf("a limit of active runs in the scope %s", r.Scope)
	}
	r.ID = LimitID(r.Scope, r.Ref)
	return firstOf(oneOf("scope", r.Scope, limitScopes), indexed("ref", r.Ref))
}

// LimitID returns the id of the limit of a subject or workspace.
func LimitID(scope, ref string) string { return scope + ":" + ref }

// LimitError says which limit keeps a run from being started. It wraps [ErrLimit].
type LimitError struct {
	Scope, Ref string
	Active     int64         // the limit of active runs, 0 when it is the it of the rate
	Rate       int64         // that many
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
			full, err := tx.within(prefix(c.runs, c.ref), l.Rate, tx.now.Add(-per))
			if err != nil {
				return err
			}
			if full {
				return &LimitError{Scope: c.scope, Ref: c.ref, Rate: l.Rate, Per: per}
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

// tableRates has the starts of runs that limits count. It is not a part of the log: without it,
// a limit has forgotten the starts of one period.
const tableRates = "rates"

const (
	rateBuckets = 64                     // the starts of a period are counted in that many parts of it
	rateMargin  = 250 * time.Millisecond // how much longer than the period starts count at most
	uptimeStep  = 10 * time.Millisecond  // what a clock of the system shows
)

// rateState is the starts that one limit counts, on a separate time line: Now is the time of
// the newest one. The time line goes with the time since the boot of the system, which no
// change of the clock affects. The time before a reboot does not count. Where the system does
// not tell, and on a server, the time line goes with the clock, and continues from a clock
// that was set back.
type rateState struct {
	Boot   string     `json:"boot"`
	UpMS   int64      `json:"up"`
	WallMS int64      `json:"wall"`
	NowMS  int64      `json:"now"`
	Starts [][2]int64 `json:"starts"` // when the last of them was, and how many

	back bool // the clock was set back since the newest start, and the time line continues from now
}

// advance brings the time line to now.
func (s *rateState) advance(boot string, up time.Duration, wall time.Time) {
	elapsed := wall.UnixMilli() - s.WallMS
	switch {
	case s.WallMS == 0:
		elapsed = 0
	case s.Boot == boot && boot != "":
		elapsed = up.Milliseconds() - s.UpMS
	case boot != "": // at least this has passed since the boot
		elapsed = up.Milliseconds()
	case elapsed < 0:
		s.back = true
	}
	s.Boot, s.UpMS, s.WallMS = boot, up.Milliseconds(), wall.UnixMilli()
	s.NowMS += max(0, elapsed)
}

// wait returns for how long no other start may follow, 0 for a start now. Starts that are
// older than the period are forgotten.
func (s *rateState) wait(rate int64, per time.Duration) time.Duration {
	span := (per + min(per/10, rateMargin) + uptimeStep).Milliseconds()
	for len(s.Starts) > 0 && s.Starts[0][0]+span <= s.NowMS {
		s.Starts = s.Starts[1:]
	}
	n := int64(0)
	for _, b := range s.Starts {
		n += b[1]
	}
	for _, b := range s.Starts {
		if n < rate {
			return 0
		}
		if n -= b[1]; n < rate {
			return max(time.Millisecond, time.Duration(b[0]+span-s.NowMS)*time.Millisecond)
		}
	}
	return 0
}

// add counts a start now.
func (s *rateState) add(per time.Duration) {
	if n := len(s.Starts); n > 0 && s.NowMS/max(1, per.Milliseconds()/rateBuckets) == s.Starts[n-1][0]/max(1, per.Milliseconds()/rateBuckets) {
		s.Starts[n-1][0] = s.NowMS
		s.Starts[n-1][1]++
		return
	}
	s.Starts = append(s.Starts, [2]int64{s.NowMS, 1})
}

// startLimits are the limits on starts, in one transaction that claims a run.
type startLimits struct {
	tx     *Tx
	none   bool // there are no limits
	rows   map[string]*LimitRow
	states map[string]*rateState
	boot   string
	up     time.Duration
}

func (tx *Tx) startLimits() *startLimits {
	l := &startLimits{tx: tx, none: !tx.any([]byte{byLimit}), rows: map[string]*LimitRow{}, states: map[string]*rateState{}}
	if !l.none && tx.h.uptime != nil {
		l.boot, l.up = tx.h.uptime()
	}
	return l
}

// scopes returns the limits that a run of this row counts for, with the keys of their states.
func (l *startLimits) scopes(row *RunRow) (list []*LimitRow, keys []string, err error) {
	if l.none {
		return nil, nil, nil
	}
	job, _ := JobOf(row)
	for _, s := range [][2]string{{StartsOfAll, ""}, {StartsOfAgent, row.EffectiveAgentName}, {StartsOfSubject, row.InitiatorRef}, {StartsOfKey, job.Unique}} {
		if s[0] != StartsOfAll && s[1] == "" {
			continue
		}
		r, err := l.row(s[0], s[1])
		if err != nil {
			return nil, nil, err
		}
		if r != nil && r.Rate > 0 {
			list, keys = append(list, r), append(keys, LimitID(s[0], s[1]))
		}
	}
	return list, keys, nil
}

// row returns the limit of that scope, nil for none.
func (l *startLimits) row(scope, ref string) (*LimitRow, error) {
	for _, id := range []string{LimitID(scope, ref), LimitID(scope, "")} {
		r, known := l.rows[id]
		if !known {
			var row LimitRow
			ok, err := l.tx.Get(&row, id)
			if err != nil {
				return nil, err
			}
			if ok {
				r = &row
			}
			l.rows[id] = r
		}
		if r != nil {
			return r, nil
		}
	}
	return nil, nil
}

func (l *startLimits) table() (*engine.Records, error) { return l.tx.e.Records(tableRates) }

func (l *startLimits) state(key string) (*rateState, error) {
	if s := l.states[key]; s != nil {
		return s, nil
	}
	t, err := l.table()
	if err != nil {
		return nil, err
	}
	s := new(rateState)
	if text := t.Get([]byte(key)); text != nil {
		_ = json.Unmarshal(text, s) // one that cannot be read has forgotten its starts
	}
	s.advance(l.boot, l.up, l.tx.now)
	l.states[key] = s
	return s, nil
}

// when returns when the run may start, the zero time for now, and whether that is true of all
// runs.
func (l *startLimits) when(row *RunRow) (at time.Time, all bool, err error) {
	list, keys, err := l.scopes(row)
	for i, r := range list {
		s, err := l.state(keys[i])
		if err != nil {
			return at, false, err
		}
		wait := s.wait(r.Rate, time.Duration(r.PerMS)*time.Millisecond)
		if until := l.tx.now.Add(wait); wait > 0 && until.After(at) {
			at, all = until, all || r.Scope == StartsOfAll
		}
	}
	return at, all, err
}

// count counts the start of a run.
func (l *startLimits) count(row *RunRow) error {
	list, keys, err := l.scopes(row)
	if err != nil || len(list) == 0 {
		return err
	}
	t, err := l.table()
	if err != nil {
		return err
	}
	for i, r := range list {
		s, err := l.state(keys[i])
		if err != nil {
			return err
		}
		s.add(time.Duration(r.PerMS) * time.Millisecond)
		if err := s.store(t, keys[i]); err != nil {
			return err
		}
		if err := l.sweep(t, keys[i]); err != nil {
			return err
		}
	}
	return nil
}

// anchor stores the time lines of which the clock was set back: otherwise runs would be held until
// it catches up. It reports whether there are any.
func (l *startLimits) anchor() (is bool, err error) {
	for key, s := range l.states {
		if !s.back {
			continue
		}
		t, err := l.table()
		if err != nil {
			return false, err
		}
		if err := s.store(t, key); err != nil {
			return false, err
		}
		is = true
	}
	return is, nil
}

func (s *rateState) store(t *engine.Records, key string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return t.Put([]byte(key), text)
}

// sweep deletes two of the states behind that key if they count no start any more: the states of
// unique keys, which come and go, do not pile up.
func (l *startLimits) sweep(t *engine.Records, key string) error {
	var old [][]byte
	n := 0
	for rec := range t.Ascend(append([]byte(key), 0), nil) {
		scope, ref, _ := strings.Cut(string(rec.Key), ":")
		r, err := l.row(scope, ref)
		if err != nil {
			return err
		}
		var s rateState
		_ = json.Unmarshal(rec.Value, &s)
		s.advance(l.boot, l.up, l.tx.now)
		if r == nil || s.wait(r.Rate, time.Duration(r.PerMS)*time.Millisecond) == 0 && len(s.Starts) == 0 {
			old = append(old, bytes.Clone(rec.Key))
		}
		if n++; n == 2 {
			break
		}
	}
	for _, k := range old {
		if err := t.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
