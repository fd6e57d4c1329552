package bolt

import (
	"context"
	"errors"
	"fmt"

	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// eachPiece calls fn for the pieces of event id, which has some. Unless all are
// there and fit, it returns an error in the end.
func (tx *Tx) eachPiece(id int64, r *disk.Record, fn func(k, v []byte) error) error {
	bad := fmt.Errorf("%w: content of event %d", store.ErrCorrupt, id)
	b, err := tx.bucket(disk.BucketPieces)
	if err != nil {
		return err
	}
	if b == nil {
		return bad
	}
	a := disk.Assembly{Size: r.Size, Want: r.Sum}
	err = index.Range(b, disk.EventKey(id), func(k, v []byte) (bool, error) {
		at, n, crc, ok := disk.SplitPieceKey(k, v)
		if !ok || at != id || !a.Add(n, crc, len(v)) {
			return false, bad
		}
		return a.Have < a.Size, fn(k, v)
	})
	if err == nil && !a.Whole() {
		err = bad
	}
	return err
}

// content returns the content of event id: for a large one in separate memory,
// else in the database's pages. The length comes from a record whose checksum fits.
func (tx *Tx) content(id int64, r *disk.Record) ([]byte, error) {
	if !r.Pieces {
		return r.Content, nil
	}
	content := make([]byte, 0, r.Size)
	err := tx.eachPiece(id, r, func(_, v []byte) error {
		content = append(content, v...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return content, nil
}

// snapshot is a store.Snapshot that is being made.
type snapshot struct{ store.Snapshot }

// Snapshot implements store.Whole.
func (t *Store) Snapshot(ctx context.Context) (store.Snapshot, error) {
	var s snapshot
	err := t.read(ctx, func(tx *Tx) error {
		s = snapshot{store.Snapshot{Head: tx.st.Head, LastID: tx.st.LastID, Stored: tx.st.Stored, Pruned: tx.st.Count - tx.st.Stored}}
		oldest, err := tx.Oldest()
		if err != nil {
			return err
		}
		if s.Floor = s.Head; oldest > 0 {
			s.Floor = oldest - 1
		}
		var subs []*store.Subscription
		err = tx.Ascend(store.Subscriptions, nil, func(k, v []byte) (bool, error) {
			sub, err := store.DecodeSubscription(k, v)
			subs = append(subs, sub)
			return true, err
		})
		if err != nil {
			return err
		}
		store.SortSubscriptions(subs)
		for _, sub := range subs {
			s.Subscriptions = append(s.Subscriptions, *sub)
		}
		progress, err := tx.table(store.Progress)
		if err != nil {
			return err
		}
		if err := index.CheckTree(progress); err != nil {
			return err
		}
		err = progress.ForEach(func(k, v []byte) error {
			p, err := store.DecodeProgress(k, v)
			if err != nil || len(k) == 0 {
				return errors.Join(err, store.ErrCorrupt)
			}
			s.Progress = append(s.Progress, store.ConsumerProgress{Consumer: string(k[1:]), ProgressRecord: p})
			return nil
		})
		if err != nil {
			return err
		}
		names, err := index.BucketNames(tx.b, tx.over)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !extra(name) {
				continue
			}
			b, err := tx.bucket([]byte(name))
			if err != nil {
				return err
			}
			if err := s.addExtras([]string{name}, b); err != nil {
				return err
			}
		}
		return nil
	})
	return s.Snapshot, err
}

// Oldest implements store.Tx.
func (tx *Tx) Oldest() (int64, error) {
	events, err := tx.eventBucket()
	if err != nil {
		return 0, err
	}
	if err := index.CheckPath(events, nil); err != nil {
		return 0, err
	}
	first, _ := events.Cursor().First()
	if first == nil {
		return 0, nil
	}
	return disk.EventID(first)
}

// BeforeNewest implements store.Tx. It counts in the columns: to read the events themselves,
// which lie far apart, made pushes wait for seconds where a million of them were to stay.
func (tx *Tx) BeforeNewest(n int64) (int64, error) {
	if n >= tx.st.Stored {
		return 0, nil
	}
	if err := tx.groups.flush(); err != nil {
		return 0, err
	}
	columns, err := tx.columnBucket()
	if err != nil {
		return 0, err
	}
	last, _, err := index.LastBlock(columns)
	if err != nil {
		return 0, err
	}
	var tail []int64 // behind the blocks
	next := tx.eventCursor()
	for err = next.from(last.Last + 1); err == nil; {
		var more bool
		if more, err = next.next(); !more || next.g.ID > tx.st.Head {
			break
		}
		if next.g.ID > last.Last { // a group may begin before it
			tail = append(tail, next.g.ID)
		}
	}
	if err != nil {
		return 0, err
	}
	if n < int64(len(tail)) {
		return tail[len(tail)-1-int(n)], nil
	}
	n -= int64(len(tail))
	if err := index.CheckTree(columns); err != nil {
		return 0, err
	}
	c := columns.Cursor()
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		b, err := index.DecodeBlock(k, v)
		if err != nil {
			return 0, err
		}
		count := min(b.Count, max(0, b.After(tx.st.Head))) // the rest is of a batch that did not end
		if n < int64(count) {
			return b.ID(count - 1 - int(n)), nil
		}
		n -= int64(count)
	}
	return 0, fmt.Errorf("%w: the columns have fewer events than are stored", store.ErrCorrupt)
}

// extra reports whether Snapshot and Restore carry a bucket as it is.
func extra(name string) bool {
	t := store.Table(name)
	return name != "" && !store.Essential(t) && t != store.Checked && t != store.Pieces
}

func (s *snapshot) addExtras(path []string, b *index.Bucket) error {
	if err := index.CheckTree(b); err != nil {
		return err
	}
	s.Extras = append(s.Extras, store.Extra{Bucket: path, Sequence: b.Sequence()})
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return s.addExtras(append(path[:len(path):len(path)], string(k)), b.Nested(k))
		}
		s.Extras = append(s.Extras, store.Extra{Bucket: path, Key: append([]byte{}, k...), Value: append([]byte{}, v...)})
		return nil
	})
}
