package engine

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"thread/index"
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
	Progress
}

// Snapshot is all of a thread at one moment, except for its events: those are
// the ones with ids up to Head, and Thread.Events reads them.
type Snapshot struct {
	Head          int64 // the newest id
	LastID        int64 // the highest id ever given
	Stored        int64 // events that are here
	Pruned        int64 // events that were, once
	Subscriptions []Subscription
	Progress      []ConsumerProgress // by consumer, in byte order
	Extras        []Extra
}

// Snapshot reads all of the thread except for its events, in one transaction.
func (t *Thread) Snapshot(ctx context.Context) (s Snapshot, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		s = Snapshot{Head: tx.st.head, LastID: tx.st.lastID, Stored: tx.st.stored, Pruned: tx.st.count - tx.st.stored}
		list, err := tx.subscriptionList()
		if err != nil {
			return err
		}
		for _, sub := range list {
			s.Subscriptions = append(s.Subscriptions, *sub)
		}
		if err := index.CheckTree(tx.progress); err != nil {
			return err
		}
		err = tx.progress.ForEach(func(k, v []byte) error {
			p, err := decodeProgress(k, v)
			if err != nil || len(k) == 0 {
				return errors.Join(err, ErrCorrupt)
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
	if isOurs(name) || name == string(bucketChecked) || name == string(bucketPieces) || name == "" {
		return nil, invalidf("bucket %q is not free", name)
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

// Options returns what a subscription has besides its handler and filter, in a
// form that Restore.Subscription reads, or nil when that is nothing.
func (s *Subscription) Options() []byte {
	rest := *s
	rest.Handler, rest.Filter, rest.ordinal = "", nil, 0
	none := Subscription{Consumer: s.Consumer}
	if b := rest.encode(); string(b) != string(none.encode()) {
		return b
	}
	return nil
}

// Ordinal tells the order of subscriptions: a later one has a larger number.
func (s *Subscription) Ordinal() uint64 { return s.ordinal }
