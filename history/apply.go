package history

import "bytes"

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
		if old == nil || !contains(before.list, k) || *old.id() != *row.id() { // a workspace may get another id
			if err := tx.by.Put(k, []byte(*row.id())); err != nil {
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

func contains(list [][]byte, key []byte) bool {
	for _, k := range list {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}

// settle keeps the index of ready runs after a change of a run: of each session its
// first queued run is in it, as long as no run of the session is active.
func (tx *Tx) settle(old, row Row) error {
	seen := ""
	for _, r := range []Row{old, row} {
		run, ok := r.(*RunRow)
		if !ok || run == nil || run.SessionID == "" || run.SessionID == seen || run.Ended() && old == nil {
			continue
		}
		seen = run.SessionID
		var first, id []byte
		if !tx.any(prefix(byRunActive, seen)) {
			p := prefix(byRunQueued, seen)
			for rec := range tx.by.Ascend(p, after(p)) {
				first, id = bytes.Clone(rec.Key[len(rec.Key)-8:]), bytes.Clone(rec.Value)
				break
			}
		}
		head := prefix(byReadyHead, seen)
		is := bytes.Clone(tx.by.Get(head))
		if bytes.Equal(is, first) {
			continue
		}
		if is != nil {
			if err := tx.by.Delete(append([]byte{byReady}, is...)); err != nil {
				return err
			}
		}
		if first == nil {
			if err := tx.by.Delete(head); err != nil {
				return err
			}
			continue
		}
		if err := tx.by.Put(append([]byte{byReady}, first...), id); err != nil {
			return err
		}
		if err := tx.by.Put(head, first); err != nil {
			return err
		}
	}
	return nil
}

// any reports whether an index has a key that begins with p.
func (tx *Tx) any(p []byte) bool {
	for range tx.by.Ascend(p, after(p)) {
		return true
	}
	return false
}
