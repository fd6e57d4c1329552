package history

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"thread/engine"
	"thread/internal/store"
)

// group lets the writes of one handle that wait at the same time share a transaction. The
// first one that waits leads: when it has the database, and its own function has succeeded,
// it hands the transaction to each of the others in turn, and commits for all. A function
// that fails undoes the transaction; it is called again in one that it leads, and so its
// error is about what is stored.
type group struct {
	mu      sync.Mutex
	waiting []*shared
	leading bool
}

// shared is a write that may share its transaction. Its function is called on the goroutine of
// its caller, once or more often.
type shared struct {
	h    *History
	ctx  context.Context
	fn   func(tx *Tx) error
	lead chan struct{}   // closed: it is the next to lead
	turn chan *engine.Tx // what its function is to be called with
	ran  chan bool       // after that: whether it succeeded
	over chan error      // how the transaction ended

	tx   *Tx   // of the last call
	none error // what it returns though the transaction is committed
	gone bool  // its goroutine has ended
}

// mostShared bounds the writes that share a transaction.
const mostShared = 64

// share is Update of what may share its transaction with others: fn may be called more often
// than once, each time from the beginning.
func (h *History) share(ctx context.Context, fn func(tx *Tx) error) error {
	if _, err := h.thread(true); err != nil {
		return err
	}
	c := &shared{h: h, ctx: ctx, fn: fn, lead: make(chan struct{}), turn: make(chan *engine.Tx), ran: make(chan bool), over: make(chan error, 1)}
	h.group.add(c)
	ended := ctx.Done()
	for {
		select {
		case <-c.lead:
			return c.after(h.lead(c))
		case e := <-c.turn:
			c.take(e)
		case err := <-c.over:
			return c.after(err)
		case <-ended:
			if h.group.withdraw(c) {
				return context.Cause(ctx)
			}
			ended = nil // it is in a transaction, or leads
		}
	}
}

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

// end makes the first one that waits the next to lead, after those whose transaction was
// undone have come back.
func (g *group) end(back []*shared) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(back, g.waiting...)
	if g.leading = len(g.waiting) > 0; g.leading {
		close(g.waiting[0].lead)
	}
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

// take calls the function in the transaction of another, and says whether it succeeded. A
// function that panics is called again when it leads, where a panic is expected.
func (c *shared) take(e *engine.Tx) {
	succeeded, returned := false, false
	defer func() {
		c.gone = !returned && recover() == nil // by runtime.Goexit
		c.ran <- succeeded
	}()
	err := c.run(e)
	var none *noneReady
	if errors.As(err, &none) { // it has written nothing
		c.none, err = err, nil
	}
	succeeded, returned = err == nil, true
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
