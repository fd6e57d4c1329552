package pgstore

import (
	"crypto/sha256"
	"encoding/binary"

	"thread/event"
)

type series struct {
	id               int64
	digest           digest
	source, typ, sub string
	hasSub           bool
}

func (s *series) subtype() *string {
	if !s.hasSub {
		return nil
	}
	return &s.sub
}

// digest names a series.
type digest string

func digestOf(d *event.Draft) digest {
	b := binary.AppendUvarint(nil, uint64(len(d.Source)))
	b = binary.AppendUvarint(append(b, d.Source...), uint64(len(d.Type)))
	b = append(b, d.Type...)
	if d.Subtype != nil {
		b = append(append(b, 1), *d.Subtype...)
	}
	sum := sha256.Sum256(b)
	return digest(sum[:])
}
