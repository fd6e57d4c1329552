package bolt

import (
	"context"
	"errors"

	"thread/index"
	"thread/internal/store"
)

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
			b, err := tx.extraBucket(name)
			if err != nil || b == nil {
				continue
			}
			if err := s.addExtras([]string{name}, b); err != nil {
				return err
			}
		}
		return nil
	})
	return s.Snapshot, err
}

// extraBucket is Bucket for whatever Snapshot and Restore carry as it is.
func (tx *Tx) extraBucket(name string) (*index.Bucket, error) {
	if name == "" || store.Essential(store.Table(name)) || name == string(store.Checked) || name == string(store.Pieces) {
		return nil, store.Invalidf("bucket %q is not free", name)
	}
	if !tx.Writable() {
		return tx.bucket([]byte(name))
	}
	return index.CreateBucket(tx.b, tx.over, []byte(name))
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
