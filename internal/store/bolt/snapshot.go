package bolt

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/store"
)

// Extra is an entry of a bucket that not every thread has: dead letters, dedupe
// keys, what other packages of this program keep.
type Extra struct {
	Bucket   []string // path of names, from the top
	Key      []byte   // nil: the entry is the bucket itself, with its Sequence
	Value    []byte
	Sequence uint64
}

// ConsumerProgress is the progress of one consumer, subscribed or not.
type ConsumerProgress struct {
	Consumer string
	store.ProgressRecord
}

// Snapshot is all of a thread at one moment, except for its events: those are
// the ones with ids up to Head, and Thread.Events reads them.
type Snapshot struct {
	Head          int64 // the newest id
	LastID        int64 // the highest id ever given
	Stored        int64 // events that are here
	Pruned        int64 // events that were, once
	Floor         int64 // the id before the oldest event; Head when there is none
	Subscriptions []store.Subscription
	Progress      []ConsumerProgress // by consumer, in byte order
	Extras        []Extra
}

// TakeSnapshot reads all of the thread except for its events, in one transaction.
func TakeSnapshot(ctx context.Context, t *Store) (s Snapshot, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		s = Snapshot{Head: tx.st.Head, LastID: tx.st.LastID, Stored: tx.st.Stored, Pruned: tx.st.Count - tx.st.Stored}
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
			s.Progress = append(s.Progress, ConsumerProgress{string(k[1:]), p})
			return nil
		})
		if err != nil {
			return err
		}
		if err := index.CheckTree(tx.b.Cursor().Bucket()); err != nil {
			return err
		}
		return tx.b.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			if b, err := tx.extraBucket(string(name)); err == nil {
				return s.addExtras([]string{string(name)}, b)
			}
			return nil
		})
	})
	return s, err
}

// extraBucket is Bucket for whatever Snapshot and Restore carry as it is.
func (tx *Tx) extraBucket(name string) (*bbolt.Bucket, error) {
	if name == "" || store.Essential(store.Table(name)) || name == string(store.Checked) || name == string(store.Pieces) {
		return nil, store.Invalidf("bucket %q is not free", name)
	}
	if !tx.b.Writable() {
		return tx.b.Bucket([]byte(name)), nil
	}
	return tx.b.CreateBucketIfNotExists([]byte(name))
}

func (s *Snapshot) addExtras(path []string, b *bbolt.Bucket) error {
	if err := index.CheckTree(b); err != nil {
		return err
	}
	s.Extras = append(s.Extras, Extra{Bucket: path, Sequence: b.Sequence()})
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return s.addExtras(append(path[:len(path):len(path)], string(k)), b.Bucket(k))
		}
		s.Extras = append(s.Extras, Extra{Bucket: path, Key: append([]byte{}, k...), Value: append([]byte{}, v...)})
		return nil
	})
}
