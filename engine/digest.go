package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
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
	s, err := t.Snapshot(ctx)
	if err != nil {
		return sum, err
	}
	d := digest{h: sha256.New()}
	d.text("thread digest 1")
	for _, n := range []int64{s.LastID, s.Stored + s.Pruned, int64(len(s.Subscriptions))} {
		d.number(n)
	}
	for i := range s.Subscriptions {
		sub := &s.Subscriptions[i]
		d.text(sub.Consumer)
		d.text(sub.Handler)
		d.optional(sub.Filter)
		d.text(string(sub.Options()))
	}
	d.number(int64(len(s.Progress)))
	for _, p := range s.Progress {
		d.text(p.Consumer)
		d.number(p.LastAcked)
		d.number(p.From())
		d.text(p.UpdatedAt)
	}
	for e, err := range t.Events(ctx, Query{}) {
		if err != nil {
			return sum, err
		}
		if e.ID > s.Head {
			break
		}
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

type digest struct {
	h   hash.Hash
	buf []byte
}

func (d *digest) number(n int64) {
	d.buf = binary.BigEndian.AppendUint64(d.buf[:0], uint64(n))
	d.h.Write(d.buf)
}

func (d *digest) text(s string) {
	d.buf = binary.BigEndian.AppendUint64(d.buf[:0], uint64(len(s)))
	for ; len(s) > longLineBytes; s = s[longLineBytes:] {
		d.h.Write(append(d.buf, s[:longLineBytes]...))
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
