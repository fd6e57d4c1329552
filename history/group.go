package history

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"thread/engine"
	"thread/internal/store"
)

// mostShared bounds the writes that share a transaction.
const mostShared = 64

// indexOf and without are in place of package slices: instances of it with a type that has a
// *History make the linker keep all methods of History in thread serve, 250 KB.
func indexOf(list []*shared, c *shared) int {
	for i, x := range list {
		if x == c {
			return i
		}
	}
	return -1
}

// without returns a new list of the writes in list that are not in some.
func without(list []*shared, some ...*shared) (rest []*shared) {
	for _, x := range list {
		if indexOf(some, x) < 0 {
			rest = append(rest, x)
		}
	}
	return rest
}

func (g *group) add(c *shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, c)
	if !g.leading {
		g.leading = true
		close(c.lead)
	}
}

// withdraw reports whether c still waited, and does not any more.
func (g *group) withdraw(c *shared) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := indexOf(g.waiting, c)
	if i < 0 || i == 0 && g.leads(c) {
		return false
	}
	g.waiting = append(g.waiting[:i:i], g.waiting[i+1:]...)
	return true
}

func (*group) leads(c *shared) bool {
	select {
	case <-c.lead:
		return true
	default:
		return false
	}
}

// begin takes the leader out of those who wait, and returns the others.
func (g *group) begin(c *shared) (others []*shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = without(g.waiting, c)
	return without(g.waiting)
}

// join takes who waits into the transaction.
func (g *group) join() []*shared {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), mostShared)
	list := append([]*shared{}, g.waiting[:n]...) // not nil
	g.waiting = without(g.waiting[n:])
	return list
}

// lead commits c, with those who wait where that succeeds.
func (h *History) lead(c *shared) error {
	var back []*shared
	defer func() { h.group.end(back) }() // after a panic, too
	before := h.group.begin(c)
	joined, undone, err := c.commit(before, true)
	switch {
	case undone != nil:
		back = without(joined, undone)
		if !undone.gone {
			back = append([]*shared{undone}, back...)
		}
		_, _, err = c.commit(nil, false)
		return err
	case errors.Is(err, engine.ErrBusy) && joined == nil:
		joined = h.group.busy(before)
	case err != nil && c.ctx.Err() != nil && !errors.Is(err, engine.ErrUnknownOutcome):
		back = joined // only the leader has left, and nothing was stored
		return err
	}
	for _, x := range joined {
		x.over <- err
	}
	return err
}

// busy takes out those who have waited as long as the leader.
func (g *group) busy(before []*shared) (list []*shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rest := without(g.waiting, before...)
	list = without(g.waiting, rest...)
	g.waiting = rest
	return list
}

// commit runs a transaction with the function of c, and then of those who join it. undone is
// the one of them whose function failed.
func (c *shared) commit(wants []*shared, others bool) (joined []*shared, undone *shared, err error) {
	err = c.h.t.Update(c.wants(wants), func(e *engine.Tx) error {
		undone = nil
		if err := c.run(e); err != nil {
			return err
		}
		if others && joined == nil { // not nil: the store begins again
			joined = c.h.group.join()
		}
		for _, x := range joined {
			x.turn <- e
			if !<-x.ran {
				undone = x
				return errUndone
			}
		}
		return nil
	})
	return joined, undone, err
}

var errUndone = errors.New("another write of the transaction failed")

// wants returns the context of the transaction, with the rows that the others will ask for.
func (c *shared) wants(others []*shared) context.Context {
	all := store.WantedOf(c.ctx)
	if c.h.of == nil {
		return c.ctx
	}
	all.Records, all.From = slices.Clip(all.Records), slices.Clip(all.From)
	for _, x := range others[:min(len(others), mostShared)] {
		more := store.WantedOf(x.ctx)
		all.Records = append(all.Records, more.Records...)
		for _, from := range more.From {
			if !slices.ContainsFunc(all.From, func(r store.WantedRecord) bool { return bytes.Equal(r.Key, from.Key) }) {
				all.From = append(all.From, from)
			}
		}
	}
	return all.With(c.ctx)
}

// run calls the function.
func (c *shared) run(e *engine.Tx) error {
	c.none = nil // of an earlier call
	tx, err := newTx(c.ctx, c.h, e)
	if err == nil {
		err = tx.ensureWorkspace()
	}
	if c.tx = tx; err != nil {
		return err
	}
	return tx.run(c.fn)
}

// after does what is to be done after the commit.
func (c *shared) after(err error) error {
	if err != nil {
		return err
	}
	for _, r := range c.tx.notes {
		c.h.log(r)
	}
	for _, id := range c.tx.steps {
		c.h.forgetStep(id)
	}
	return c.none
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
		if old == nil || !contains(before.list, k) || *idOf(old) != *idOf(row) { // a workspace may get another id
			if err := tx.by.Put(k, []byte(*idOf(row))); err != nil {
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

// replay does to the tables what the write of that history event did.
func (tx *Tx) replay(c *Change) error {
	row, old := NewRow(c.Entity), NewRow(c.Entity)
	key := rowKey(c.Entity, c.EntityID)
	if c.Op != OpDelete {
		if err := ParseJSON(row, c.Row); err != nil {
			return err
		}
		key = keyOf(row)
	}
	was, had, err := tx.read(old, key)
	if err != nil {
		return err
	}
	if !had {
		old = nil
	}
	if c.Op == OpDelete {
		if !had {
			return nil // its rows were pruned
		}
		return tx.apply(key, old, was, nil, version{})
	}
	is := version{latest: c.ID, first: c.ID, session: c.Session}
	if is.row, err = inline(c.Entity, c.Row); err != nil {
		return err
	}
	is.first = cmp.Or(c.first, is.first)
	return tx.apply(key, old, was, row, is)
}

// inline returns the row of a history event for its record, nil for one that is too
// long. It is made from the event's text, so that rebuilding the tables makes the same.
func inline(e Entity, text []byte) ([]byte, error) {
	if len(text) > maxInline {
		return nil, nil
	}
	r := NewRow(e)
	if err := ParseJSON(r, text); err != nil {
		return nil, err
	}
	return appendCompact(make([]byte, 0, len(text)), r), nil
}

// ended releases the runs that have waited for a run, which has ended.
func (tx *Tx) ended(row *RunRow) error {
	waiting := tx.ids(prefix(byAfter, row.ID))
	if job, _ := JobOf(row); job.Group != "" && !tx.any(prefix(byGroupOpen, job.Group)) {
		waiting = append(waiting, tx.ids(prefix(byGroupWaits, job.Group))...)
	}
	for _, id := range waiting {
		var w RunRow
		if err := tx.must(&w, id); err != nil {
			return err
		}
		if w.Status == Waiting {
			if err := tx.answer(&w, &Answer{Result: HasEnded, Status: row.Status}); err != nil {
				return err
			}
			continue
		}
		if err := tx.join(&w); err != nil {
			return err
		}
	}
	return nil
}

// join queues a run for which all others that it waits for have ended, or cancels it.
func (tx *Tx) join(row *RunRow) error {
	job, _ := JobOf(row)
	if !job.joins() || row.Ended() {
		return nil
	}
	if job.AfterGroup != "" && tx.any(prefix(byGroupOpen, job.AfterGroup)) {
		return nil
	}
	failed := job.AfterGroup != "" && tx.any(prefix(byGroupFailed, job.AfterGroup))
	for _, id := range job.After {
		var dep RunRow
		there, err := tx.Get(&dep, id)
		switch {
		case err != nil:
			return err
		case there && !dep.Ended():
			return nil
		}
		failed = failed || there && dep.Status != Completed
	}
	job.Joined = true
	if failed && job.CancelIfFailed {
		row.Status, row.EndedAt = Cancelled, tx.now
		row.ErrorCode, row.ErrorMessage = "join_failed", "a run that it waited for has not completed"
	}
	if err := SetJob(row, job); err != nil {
		return err
	}
	return tx.Put(row)
}

// cycle returns ErrInvalid if a run of this group that comes after these would wait for
// itself.
func (tx *Tx) cycle(id string, job *Job) error {
	if job.Group == "" {
		return nil // nothing that is stored can wait for it
	}
	seen := map[string]bool{}
	var visit func(j *Job) error
	visit = func(j *Job) error {
		if j.AfterGroup == job.Group {
			return invalidf("the run %q would wait for its group %q", id, job.Group)
		}
		ids := j.After
		if g := j.AfterGroup; g != "" && !seen["g"+g] {
			seen["g"+g] = true
			ids = append(ids[:len(ids):len(ids)], tx.ids(prefix(byGroupOpen, g))...)
		}
		for _, dep := range ids {
			if seen["r"+dep] {
				continue
			}
			seen["r"+dep] = true
			var row RunRow
			if err := tx.must(&row, dep); err != nil {
				return err
			}
			of, _ := JobOf(&row)
			if of.joins() && !row.Ended() {
				if err := visit(&of); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return visit(job)
}

// joinNew checks what a new run waits for, and joins it where all of that has ended.
func (tx *Tx) joinNew(row *RunRow, job *Job) error {
	for _, id := range job.After {
		if _, ok := tx.versionOf(rowKey(RunEntity, id)); !ok {
			return notFound(RunEntity, id)
		}
	}
	if g := job.AfterGroup; g != "" && !tx.any(prefix(byGroupOpen, g)) && !tx.any(prefix(byGroupDone, g)) && !tx.any(prefix(byGroupFailed, g)) {
		return fmt.Errorf("%w: no run is in the group %q", ErrNotFound, g)
	}
	if !job.joins() {
		return nil
	}
	if err := tx.cycle(row.ID, job); err != nil {
		return err
	}
	return tx.join(row)
}

// endWait ends the wait of a run that has ended without an answer.
func (tx *Tx) endWait(row *RunRow) error {
	job, _ := JobOf(row)
	if job.Wait == nil {
		return nil
	}
	var s StepRow
	if there, err := tx.Get(&s, job.Wait.Step); err != nil || !there || s.Status != Waiting {
		return err
	}
	s.Status, s.EndedAt = Cancelled, tx.now
	return tx.Put(&s)
}
