package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"thread/event"
	"thread/internal/store"
)

// A thread that is being imported has notYet - floor in place of its floor, so that
// nothing reads or writes it before it is whole.
const notYet = -1

var (
	// ErrImporting says that the thread is not whole yet.
	ErrImporting = errors.New("an import into the thread has not ended")
	// ErrOther says that what is there of an import is of another thread.
	ErrOther = errors.New("what an import left there is of another thread")
)

func wrongState(floor int64, thread string) error {
	if floor < 0 {
		return fmt.Errorf("%w: %s", ErrImporting, thread)
	}
	return fmt.Errorf("%w: %s", store.ErrExists, thread)
}

// Restore builds a thread out of events that have ids and times already. Each Add is
// durable; no process sees anything before Publish. One that was interrupted continues where
// it was. It is used by one goroutine: Add, Finish, Publish.
type Restore struct {
	s      *Store
	last   int64 // the newest event that is stored
	stored int64 // how many are
}

// StartRestore begins to build the thread that snap is of, or continues with one that was begun. It makes the schema where it is missing.
// It returns store.ErrExists for a thread that is whole, and ErrOther for one that was
// begun and cannot be this one.
func StartRestore(ctx context.Context, a *Address, snap *store.Snapshot) (*Restore, error) {
	floor := snap.Floor
	err := insertThread(ctx, a, notYet-floor)
	if err != nil && !errors.Is(err, store.ErrExists) {
		return nil, err
	}
	r := &Restore{s: Open(a, Options{})}
	r.s.restoring = true
	err = r.s.run(ctx, true, nil, func(tx *tx) error {
		if r.last = tx.head; tx.head > tx.floor && (tx.floor != floor || tx.head > snap.Head) {
			return ErrOther
		}
		tx.floor = floor
		if err := r.count(tx); err != nil {
			return err
		}
		return tx.exec("UPDATE threads SET floor = $2 WHERE thread = $1", text(r.s.thread), int8(notYet-floor))
	})
	r.last = max(r.last, floor)
	if err != nil {
		return nil, errors.Join(err, r.s.Close())
	}
	return r, nil
}

// Store is the handle on the thread that is built.
func (r *Restore) Store(l store.Logic, _ time.Duration) store.Store {
	r.s.logic = l
	return r.s
}

// Last returns the id of the newest event that is stored, the floor when there is none.
func (r *Restore) Last() int64 { return r.last }

// Stored returns how many events are stored.
func (r *Restore) Stored() int64 { return r.stored }

func (r *Restore) count(tx *tx) error {
	rows, err := tx.rows("SELECT count(*) FROM events WHERE thread = $1", text(r.s.thread))
	if err != nil {
		return err
	}
	r.stored = number(rows[0][0])
	return nil
}

// Same returns ErrOther unless the newest event that is stored is e.
func (r *Restore) Same(ctx context.Context, e *event.Event) error {
	return r.s.run(ctx, false, nil, func(tx *tx) error {
		stored, ok, err := tx.Event(r.last)
		if err == nil && (!ok || stored.ID != e.ID || stored.CreatedAt != e.CreatedAt || stored.Source != e.Source || stored.Type != e.Type ||
			stored.Content != e.Content || (stored.Subtype == nil) != (e.Subtype == nil) || e.Subtype != nil && *stored.Subtype != *e.Subtype) {
			err = ErrOther
		}
		return err
	})
}

// Add stores the next events, in one transaction.
func (r *Restore) Add(ctx context.Context, list []event.Event) error {
	series := newDigests()
	for i := range list {
		e := &list[i]
		if i == 0 && e.ID <= r.last || i > 0 && e.ID <= list[i-1].ID {
			return store.Invalidf("event %d comes too late", e.ID)
		}
		if !utf8.ValidString(e.CreatedAt) || strings.ContainsRune(e.CreatedAt, 0) {
			return store.Invalidf("created_at of event %d is not text", e.ID)
		}
		r.s.note(&series, draftOf(e))
	}
	err := r.s.run(ctx, true, series.list, func(tx *tx) error {
		if tx.head != r.last {
			return fmt.Errorf("%w: another import into the thread is at work", store.ErrBusy)
		}
		for i := range list {
			tx.last = list[i].ID - 1
			if _, err := tx.Append(draftOf(&list[i]), list[i].CreatedAt); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && len(list) > 0 {
		r.last = list[len(list)-1].ID
		r.stored += int64(len(list))
	}
	return err
}

func draftOf(e *event.Event) *event.Draft {
	return &event.Draft{Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: e.Content}
}

// Finish stores everything but the events, in place of what an earlier try stored.
func (r *Restore) Finish(ctx context.Context, snap *store.Snapshot) error {
	name := text(r.s.thread)
	return r.s.run(ctx, true, nil, func(tx *tx) error {
		if err := tx.exec("DELETE FROM records WHERE thread = $1", name); err != nil {
			return err
		}
		if err := tx.exec("DELETE FROM sequences WHERE thread = $1", name); err != nil {
			return err
		}
		clear(tx.prefixes)
		if err := r.count(tx); err != nil {
			return err
		}
		g := gaps{given: snap.LastID, missing: snap.LastID - snap.Floor - r.stored, uncounted: snap.LastID - snap.Pruned - snap.Stored}
		if g.missing != 0 || g.uncounted != 0 {
			if err := tx.setGaps(g); err != nil {
				return err
			}
		}
		for i := range snap.Subscriptions {
			s := &snap.Subscriptions[i]
			if err := tx.Put(store.Subscriptions, store.ConsumerKey(s.Consumer), s.Encode()); err != nil {
				return err
			}
		}
		for _, p := range snap.Progress {
			key := store.ConsumerKey(p.Consumer)
			if err := tx.Put(store.Progress, key, p.Encode(key)); err != nil {
				return err
			}
		}
		for _, x := range snap.Extras {
			if x.Key != nil {
				if err := tx.Put(tableOf(x.Bucket), x.Key, x.Value); err != nil {
					return err
				}
			} else if err := tx.SetSequence(tableOf(x.Bucket), x.Sequence); err != nil {
				return err
			}
		}
		return tx.failed
	})
}

// Publish makes the thread one like others.
func (r *Restore) Publish(ctx context.Context) error {
	err := r.s.run(ctx, true, nil, func(tx *tx) error {
		return tx.exec("UPDATE threads SET floor = $2 WHERE thread = $1", text(r.s.thread), int8(tx.floor))
	})
	if err != nil {
		return err
	}
	r.s.restoring = false
	return nil
}

// Close ends it. What is stored stays, for the next one.
func (r *Restore) Close() error { return r.s.Close() }

// Abandon drops what was stored, of a thread that was never whole.
func Abandon(ctx context.Context, a *Address) error {
	s := Open(a, Options{})
	s.restoring = true
	err := s.run(ctx, true, nil, func(tx *tx) error {
		for _, table := range []string{"events", "series", "records", "sequences"} {
			_ = tx.exec("DELETE FROM "+table+" WHERE thread = $1", text(s.thread))
		}
		return tx.exec("UPDATE threads SET floor = $2 WHERE thread = $1", text(s.thread), int8(notYet))
	})
	return errors.Join(err, s.Close())
}

// nestedTable begins the names of tables that are buckets in buckets of a directory,
// which nothing here looks into.
const nestedTable = "bucket/"

func tableOf(path []string) store.Table {
	if len(path) == 1 {
		return store.Table(path[0])
	}
	names := make([]string, len(path))
	for i, n := range path {
		names[i] = url.PathEscape(n)
	}
	return store.Table(nestedTable + strings.Join(names, "/"))
}

// pathOf is the inverse of tableOf.
func pathOf(t string) []string {
	rest, nested := strings.CutPrefix(t, nestedTable)
	if !nested {
		return []string{t}
	}
	var path []string
	for _, n := range strings.Split(rest, "/") {
		name, err := url.PathUnescape(n)
		if err != nil || name == "" {
			return []string{t}
		}
		path = append(path, name)
	}
	return path
}

// Read calls fn with what a thread holds at one moment: everything but the events, and a
// function that reads those with an id above after, in order. An event is valid during
// the call. Both are valid during fn.
func (s *Store) Read(ctx context.Context, fn func(snap *store.Snapshot, each func(after int64, fn func(e *event.Event) error) error) error) error {
	return s.run(ctx, false, nil, func(tx *tx) error {
		st := tx.State()
		snap := &store.Snapshot{Head: st.Head, LastID: st.LastID, Stored: st.Stored, Pruned: st.Count - st.Stored, Floor: tx.floor}
		if err := tx.snapshot(snap); err != nil {
			return err
		}
		return fn(snap, tx.EventsAfter)
	})
}

// Snapshot implements store.Whole.
func (s *Store) Snapshot(ctx context.Context) (snap store.Snapshot, err error) {
	err = s.Read(ctx, func(whole *store.Snapshot, _ func(int64, func(e *event.Event) error) error) error {
		snap = *whole
		return nil
	})
	return snap, err
}

func (tx *tx) snapshot(snap *store.Snapshot) error {
	tables, err := tx.rows("SELECT tab FROM records WHERE thread = $1 UNION SELECT tab FROM sequences WHERE thread = $1 ORDER BY 1", text(tx.store.thread))
	if err != nil {
		return err
	}
	var subs []*store.Subscription
	for _, row := range tables {
		table := store.Table(row[0])
		if table == store.Meta || table == store.Checked { // the store's own, and advice
			continue
		}
		path := pathOf(string(table))
		n, err := tx.Sequence(table)
		if err != nil {
			return err
		}
		if !store.Essential(table) {
			snap.Extras = append(snap.Extras, store.Extra{Bucket: path, Sequence: n})
		}
		err = tx.Ascend(table, nil, func(key, value []byte) (bool, error) {
			switch table {
			case store.Subscriptions:
				s, err := store.DecodeSubscription(key, value)
				subs = append(subs, s)
				return true, err
			case store.Progress:
				p, err := store.DecodeProgress(key, value)
				if err == nil && len(key) > 0 {
					snap.Progress = append(snap.Progress, store.ConsumerProgress{Consumer: string(key[1:]), ProgressRecord: p})
				}
				return true, err
			default:
				snap.Extras = append(snap.Extras, store.Extra{Bucket: path, Key: key, Value: value})
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	store.SortSubscriptions(subs)
	for _, s := range subs {
		snap.Subscriptions = append(snap.Subscriptions, *s)
	}
	return nil
}
