package fsck

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"thread/engine"
	"thread/internal/store"
)

// Faults is told what is wrong, and where.
type Faults func(place, format string, args ...any)

// CheckStore checks a thread that is not a directory, through the seam: the checksum and
// the form of every record, what records say of each other, and the progress against
// the events. In the same read transaction own checks what the store alone knows: its
// ids, its counters, and what its rows refer to.
//
// What it finds wrong is in the report; an error means that it could not look.
func CheckStore(ctx context.Context, t *engine.Thread, own func(tx store.Tx, fault, note Faults) error) (*Report, error) {
	t = t.WithoutRelease()
	var c *checker
	err := t.Store().View(ctx, func(tx store.Tx) error {
		c = &checker{t: t, report: new(Report)} // again when it is run again
		c.report.Events = tx.State().Stored
		if err := own(tx, c.faultf, c.note); err != nil {
			return err
		}
		return c.records(tx)
	})
	if err != nil {
		return nil, err
	}
	if len(c.report.Faults) == 0 {
		sum, err := t.Digest(ctx)
		if err != nil {
			return nil, err
		}
		c.report.Digest = hex.EncodeToString(sum[:])
	}
	return c.report, nil
}

// form is how the records of a table are read.
type form struct {
	table  store.Table
	decode func(c *checker, tx store.Tx, key, value []byte) error
}

var forms = []form{
	{store.Subscriptions, func(c *checker, _ store.Tx, key, value []byte) error {
		s, err := store.DecodeSubscription(key, value)
		if err != nil {
			return err
		}
		return c.ordinal(s)
	}},
	{store.Progress, func(c *checker, tx store.Tx, key, value []byte) error {
		p, err := store.DecodeProgress(key, value)
		if head := tx.State().Head; err == nil && (len(key) == 0 || p.LastAcked < 0 || p.Newest < 0 || p.Newest > head) {
			err = fmt.Errorf("was made at event %d, but the newest is %d", p.Newest, head)
		}
		return err
	}},
	{store.Deliveries, func(_ *checker, tx store.Tx, key, value []byte) error {
		d, err := store.DecodeDelivery(key, value)
		if given := tx.State().LastID; err == nil && (d.First > given || d.Last > given) {
			err = fmt.Errorf("is of the events %d to %d, but the newest is %d", d.First, d.Last, given)
		}
		return err
	}},
	{store.Dead, letter}, {store.Retries, letter},
	{store.Dedupe, func(_ *checker, tx store.Tx, key, value []byte) error {
		r, err := store.DecodeKeyRecord(key, value)
		if given := tx.State().LastID; err == nil && (r.ID < 1 || r.ID > given) {
			err = fmt.Errorf("is of event %d, but the newest is %d", r.ID, given)
		}
		if err != nil {
			return err
		}
		at := r.ExpiryKey()
		v, err := tx.Get(store.DedupeExpiry, at)
		if err != nil {
			return err
		}
		if _, _, of, err := store.DecodeExpiry(at, v); err != nil || !bytes.Equal(of, key) {
			return fmt.Errorf("has no entry in table %s", store.DedupeExpiry)
		}
		return nil
	}},
	{store.DedupeExpiry, func(_ *checker, tx store.Tx, key, value []byte) error {
		_, id, of, err := store.DecodeExpiry(key, value)
		if err != nil {
			return err
		}
		v, err := tx.Get(store.Dedupe, of)
		if err != nil {
			return err
		}
		if r, err := store.DecodeKeyRecord(of, v); err != nil || r.ID != id || !bytes.Equal(r.ExpiryKey(), key) {
			return fmt.Errorf("is of dedupe key %q, which is missing or another one's", of[min(1, len(of)):])
		}
		return nil
	}},
	{store.LimitsTable, func(_ *checker, _ store.Tx, _, value []byte) error {
		_, err := store.DecodeLimits(value)
		return err
	}},
}

var errDamagedRecord = errors.New("is damaged: its checksum or its form does not fit")

func letter(_ *checker, tx store.Tx, key, value []byte) error {
	_, id, err := store.SplitLetterKey(key)
	if err == nil {
		_, err = store.DecodeLetter(key, value)
	}
	if given := tx.State().LastID; err == nil && (id < 1 || id > given) {
		err = fmt.Errorf("is of event %d, but the newest is %d", id, given)
	}
	return err
}

// records checks the records of all tables that are known.
func (c *checker) records(tx store.Tx) error {
	for _, f := range forms {
		var wrong error // of the store, not of a record
		err := tx.Ascend(f.table, nil, func(key, value []byte) (bool, error) {
			if err := f.decode(c, tx, key, value); err != nil {
				if errors.Is(err, store.ErrCorrupt) {
					err = errDamagedRecord
				}
				c.faultf(fmt.Sprintf("record %q of table %s", key, f.table), "%v", err)
			}
			_, wrong = tx.Has(0) // a broken connection makes every record look bad
			return wrong == nil, wrong
		})
		if err != nil {
			return err
		}
	}
	for _, s := range []struct {
		table store.Table
		check func(key, value []byte)
	}{{store.Scheduled, c.scheduled}, {store.Schedules, c.schedule}} {
		if err := tx.Ascend(s.table, nil, func(key, value []byte) (bool, error) { s.check(key, value); return true, nil }); err != nil {
			return err
		}
	}
	c.orphanEntries()
	oldest, err := tx.Oldest()
	if err != nil {
		return err
	}
	st := tx.State()
	if oldest == 0 {
		oldest = st.Head + 1
	}
	a := newAboveProgress(st.LastID, oldest, func(id int64) bool {
		has, _ := tx.Has(id) // an error is there below, too
		return has
	})
	for _, table := range aboveTables {
		if err := tx.Ascend(table, nil, func(key, value []byte) (bool, error) {
			a.row(table, bytes.Clone(key), value)
			return true, nil
		}); err != nil {
			return err
		}
	}
	c.tell(a)
	_, err = tx.Has(oldest)
	return err
}
