package engine

import (
	"math"

	"thread/internal/store"
)

const maxID = math.MaxInt64

// attempt returns what is known of an event, and whether anything is.
func (tx *Tx) attempt(consumer string, id int64) (a store.Attempt, ok bool, err error) {
	key := store.LetterKey(consumer, id)
	v, err := tx.s.Get(store.Attempts, key)
	if v == nil || err != nil {
		return a, false, err
	}
	a, err = store.DecodeAttempt(key, v)
	return a, err == nil, err
}

// putAttempt stores what is known of an event, or deletes it where nothing is.
func (tx *Tx) putAttempt(consumer string, id int64, a *store.Attempt) error {
	key := store.LetterKey(consumer, id)
	if a.Void() {
		return tx.s.Delete(store.Attempts, key)
	}
	return tx.s.Put(store.Attempts, key, a.Encode(key))
}

// eachAttempt calls fn for what is known of a consumer's events, in their order.
func (tx *Tx) eachAttempt(consumer string, fn func(id int64, a store.Attempt) (more bool, err error)) error {
	return tx.eachLetter(store.Attempts, consumer, func(k, v []byte) (bool, error) {
		_, id, err := store.SplitLetterKey(k)
		if err != nil {
			return false, err
		}
		a, err := store.DecodeAttempt(k, v)
		if err != nil {
			return false, err
		}
		return fn(id, a)
	})
}
