package store

import (
	"context"
	"errors"
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
	ProgressRecord
}

// Snapshot is all of a thread at one moment, except for its events: those are
// the ones with ids up to Head, and Thread.Events reads them.
type Snapshot struct {
	Head          int64 // the newest id
	LastID        int64 // the highest id ever given
	Stored        int64 // events that are here
	Pruned        int64 // events that were, once
	Floor         int64 // the id before the oldest event; Head when there is none
	Subscriptions []Subscription
	Progress      []ConsumerProgress // by consumer, in byte order
	Extras        []Extra
}

// Whole is a store of which all but the events can be read at one moment.
type Whole interface {
	Snapshot(ctx context.Context) (Snapshot, error)
}

// TakeSnapshot reads all of a thread except for its events, in one transaction.
func TakeSnapshot(ctx context.Context, s Store) (Snapshot, error) {
	if of, ok := s.(Whole); ok {
		return of.Snapshot(ctx)
	}
	return Snapshot{}, errors.ErrUnsupported
}
