package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"

	"thread/internal/progress"
	"thread/internal/store"
)

// Digest returns a SHA-256 of what a thread holds: the events, subscriptions
// with their options and order, the progress of all consumers, the highest id
// and the number of events ever stored. Two threads with the same digest answer
// every call alike, however their files were written. Other packages' buckets,
// events.jsonl and logs do not count.
//
// Every text is hashed with its length before it, every number as 8 big-endian
// bytes. Digest reads in slices; what is pushed meanwhile does not count.
func (t *Thread) Digest(ctx context.Context) (sum [sha256.Size]byte, err error) {
	var d digest
	var head int64
	err = t.read(ctx, func(tx *Tx) error {
		d = digest{h: sha256.New()}
		head = tx.Head()
		return d.consumers(tx)
	})
	if err != nil {
		return sum, err
	}
	far, first := progress.Of(ctx), int64(0)
	for e, err := range t.Events(ctx, Query{}) {
		if err != nil {
			return sum, err
		}
		if e.ID > head {
			break
		}
		if first == 0 {
			first = e.ID
		}
		far.Tell("hashing events", e.ID-first+1, head-first+1)
		d.number(e.ID)
		d.text(e.CreatedAt)
		d.text(e.Source)
		d.text(e.Type)
		d.optional(e.Subtype)
		d.text(e.Content)
	}
	d.h.Sum(sum[:0])
	return sum, nil
}

// consumers hashes everything but the events.
func (d *digest) consumers(tx *Tx) error {
	list, err := tx.subscriptionList()
	if err != nil {
		return err
	}
	d.text("thread digest 1")
	st := tx.s.State()
	for _, n := range []int64{st.LastID, st.Count, int64(len(list))} {
		d.number(n)
	}
	for _, s := range list {
		d.text(s.Consumer)
		d.text(s.Handler)
		d.optional(s.Filter)
		d.text(string(s.Options()))
	}
	var progress []func()
	err = tx.s.Ascend(store.Progress, nil, func(k, v []byte) (bool, error) {
		p, err := store.DecodeProgress(k, v)
		if err != nil || len(k) == 0 {
			return false, errors.Join(err, ErrCorrupt)
		}
		consumer := string(k[1:])
		progress = append(progress, func() {
			d.text(consumer)
			d.number(p.LastAcked)
			d.number(p.From())
			d.text(p.UpdatedAt)
		})
		return true, nil
	})
	d.number(int64(len(progress)))
	for _, hash := range progress {
		hash()
	}
	return err
}

type digest struct {
	h   hash.Hash
	buf []byte
}

func (d *digest) number(n int64) {
	d.buf = binary.BigEndian.AppendUint64(d.buf[:0], uint64(n))
	d.h.Write(d.buf)
}

// digestPart is how much of a text is copied at a time.
const digestPart = 64 << 10

func (d *digest) text(s string) {
	d.buf = binary.BigEndian.AppendUint64(d.buf[:0], uint64(len(s)))
	for ; len(s) > digestPart; s = s[digestPart:] {
		d.h.Write(append(d.buf, s[:digestPart]...))
		d.buf = d.buf[:0]
	}
	d.buf = append(d.buf, s...)
	d.h.Write(d.buf)
}

func (d *digest) optional(s *string) {
	if s == nil {
		d.number(-1)
		return
	}
	d.text(*s)
}
