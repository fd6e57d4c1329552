package bolt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/lock"
)

func (t *Store) write(ctx context.Context, w *write) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.ctx, w.lead, w.done = ctx, make(chan struct{}), make(chan struct{})
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return store.ErrClosed
	}
	t.waiting = append(t.waiting, w)
	if !t.writing {
		t.writing = true
		close(w.lead)
	}
	t.mu.Unlock()

	select {
	case <-w.lead:
		t.lead(w)
	case <-w.done:
	case <-ctx.Done():
		if t.withdraw(w) {
			return context.Cause(ctx)
		}
		select {
		case <-w.lead:
			t.lead(w)
		case <-w.done:
		}
	}
	return w.err
}

// withdraw takes w out of the queue. When a turn has it already, that turn is told
// to let go of it if it still can, and the answer is false, as for the leader.
func (t *Store) withdraw(w *write) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.lead:
		return false
	default:
	}
	if w.turn != nil {
		w.turn.stop()
		return false
	}
	i := slices.Index(t.waiting, w) // a turn takes it, or it is there
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}

// lead takes turns until w, the first in the queue, has its outcome.
func (t *Store) lead(w *write) {
	for !t.takeTurn(w) {
	}
}

// takeTurn takes a turn and hands the lead on, unless first is still to be carried
// out: the turn was called off for the sake of another.
func (t *Store) takeTurn(first *write) (over bool) {
	l := &turn{t: t, first: first}
	defer l.end() // a panic of the caller's function must not stop the others
	if first.until.IsZero() {
		first.until = time.Now().Add(t.LockTimeout)
	}
	ctx, cancel := context.WithDeadlineCause(first.ctx, first.until, store.ErrBusy)
	defer cancel()
	l.stop = cancel
	err := l.write(ctx)
	if l.group == nil { // the database could not be opened: the next leader tries for itself
		l.take(1)
	}
	if ctx.Err() != nil && err != nil && !errors.Is(err, store.ErrUnknownOutcome) && l.letGo() {
		l.giveBack()
		return first.err != nil
	}
	for _, w := range l.group {
		if w.err == nil {
			w.err = err
		}
	}
	return true
}

// letGo gives the pushes of the group whose context has ended the cause of that as
// their error, and reports whether there was one, and others are left over. Nothing
// was stored.
func (l *turn) letGo() bool {
	ended, others := false, false
	for _, w := range l.group {
		if w.ctx.Err() == nil {
			others = true
			continue
		}
		w.err = context.Cause(w.ctx)
		ended = true
	}
	return ended && others
}

// giveBack puts the pushes of the group that have no error back to the head of the
// queue. They have waited as long as this turn has.
func (l *turn) giveBack() {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	group := l.group
	l.group = nil
	var rest []*write
	for _, w := range group {
		if w.err != nil {
			l.group = append(l.group, w)
			continue
		}
		w.turn, w.until = nil, l.first.until
		rest = append(rest, w)
	}
	l.t.waiting = append(rest, l.t.waiting...)
}

func (l *turn) end() {
	l.t.mu.Lock()
	if len(l.t.waiting) == 0 {
		l.t.writing = false
	} else if next := l.t.waiting[0]; next != l.first {
		close(next.lead)
	}
	l.t.mu.Unlock()
	for _, w := range l.group {
		close(w.done)
	}
}

// take takes the first request out of the queue, and as many pushes behind it as
// go into one transaction, but at most that many in all.
func (l *turn) take(most int) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	waiting := l.t.waiting
	n, drafts, size := 1, len(l.first.drafts), l.first.bytes()
	for ; l.first.fn == nil && n < min(most, len(waiting)) && waiting[n].fn == nil; n++ {
		drafts, size = drafts+len(waiting[n].drafts), size+waiting[n].bytes()
		if drafts > l.t.MaxGroup || size > maxGroupBytes {
			break
		}
	}
	l.group = slices.Clone(waiting[:n])
	for _, w := range l.group {
		w.turn = l
	}
	l.t.waiting = slices.Delete(waiting, 0, n)
}

func (l *turn) write(ctx context.Context) (err error) {
	var gate *gate
	if l.first.fn == nil {
		if gate = l.t.tryGate(); gate == nil { // others push, or read: let them have ours
			l.take(math.MaxInt)
			if l.pending = l.t.leave(l.group); l.pending == nil {
				l.giveBack()
			}
		}
	}
	if l.pending != nil {
		err = l.awaitCommit(ctx)
	}
	if err == nil {
		err = l.t.lockedWrite(ctx, gate, l.first.bytes(), l.locked, l.store, l.ended)
	}
	if l.pending != nil {
		err = l.endPending(err)
	}
	return err
}

// locked is called when we have the database, and the gate still.
func (l *turn) locked() {
	if l.group == nil { // who came while we waited joins
		l.take(math.MaxInt)
	}
	if l.first.fn != nil || l.pending != nil && l.pending.state() != stateFree {
		return
	}
	if l.pending != nil {
		l.pending.close()
		l.pending = nil
	}
	l.others = l.t.takePending()
}

// ended is called when the transaction has ended, before we let go of the
// database.
func (l *turn) ended(subscribed bool, err, warning error) {
	state := byte(stateDurable)
	if errors.Is(err, store.ErrUnknownOutcome) {
		state = stateUnknown
	} else if err != nil {
		state = stateTaken
	}
	l.others.note(state)
	for _, w := range l.group {
		w.pushed.Warning = warning
		w.pushed.Subscribed = w.pushed.Subscribed || subscribed
	}
}

// store is the transaction.
func (l *turn) store(tx *Tx, s store.Session) error {
	if l.first.fn != nil {
		return store.Call(func() error { return l.first.fn(s) })
	}
	if l.pending != nil {
		if err := tx.outcome(l.pending, l.group); err != nil {
			return err
		}
	}
	return tx.pushGroup(s, l.group, &l.others)
}

// pushGroup stores the drafts of group, and with them the drafts of the other
// processes that wait.
func (tx *Tx) pushGroup(s store.Session, group []*write, others *pendingWrites) (err error) {
	createdAt := event.FormatTime(tx.t.Now())
	for _, w := range group {
		es := make([]event.Event, len(w.drafts))
		w.pushed = store.Pushed{Events: es}
		for i := range w.drafts {
			var duplicate bool
			if es[i], duplicate, err = s.Push(&w.drafts[i], createdAt); err != nil {
				return err
			}
			if duplicate {
				w.pushed.Duplicates = append(w.pushed.Duplicates, store.Duplicate{Index: int64(i), ID: es[i].ID})
				if es[i], _, err = tx.Event(es[i].ID); err != nil {
					return err
				}
			}
		}
	}
	return tx.storePending(s, others, createdAt)
}

// lockedWrite opens the database for writing, calls locked, and runs fn in one
// durable transaction. Events that fn pushes are appended to events.jsonl after
// the commit, under the same lock; when that fails the events are stored all the
// same, ended is told, and the next write heals the file. It waits at the gate
// unless it was given it, and lets go of it after locked. Fn pushes some that many
// bytes of content.
func (t *Store) lockedWrite(ctx context.Context, g *gate, bytes int, locked func(), fn func(tx *Tx, s store.Session) error, ended func(subscribed bool, err, warning error)) (err error) {
	var w store.Written
	defer func() {
		if w.Ended != nil { // after the database is closed
			w.Ended()
		}
	}()
	if g == nil {
		if g, err = t.gate(ctx, lock.Exclusive); err != nil {
			return err
		}
	}
	db, end, err := t.writer(ctx, bytes)
	if err != nil {
		g.close()
		return err
	}
	sound := false // it is not after a panic either
	defer func() { end(sound) }()
	locked()
	g.close()
	var warning error
	defer func() { ended(w.Subscribed, err, warning) }()
	err = db.guard(func() error {
		if err := t.clearBeyondHead(db); err != nil {
			return err
		}
		tx, err := t.beginWrite(db, bytes > directBytes)
		if err != nil {
			return err
		}
		defer tx.b.Rollback()
		log := lines{t: t, tx: tx}
		defer log.close()
		tx.pushed = log.add
		if w, err = t.Logic.Write(tx, false, func(s store.Session) error { return fn(tx, s) }); err != nil {
			return err
		}
		if err := tx.commit(db, true); err != nil {
			return err
		}
		warning = warnBehind(log.write())
		return nil
	})
	sound = err == nil
	return err
}

// Update implements store.Store. A panic of fn continues to the caller, and
// runtime.Goexit in fn ends the goroutine; nothing is stored then.
func (t *Store) Update(ctx context.Context, fn func(s store.Session) error) error {
	return t.write(ctx, &write{fn: fn})
}

// warnBehind words the failure to append to events.jsonl, which keeps no push
// from succeeding.
func warnBehind(err error) error {
	if err != nil {
		err = fmt.Errorf("events.jsonl is behind: %w", err)
	}
	return err
}

// directBytes is the length of a content from which on a push goes to events.db at once.
const directBytes = 32 << 10
