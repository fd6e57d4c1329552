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

// seriesOf returns the id of the draft's series, a new one when there is none.
func (tx *tx) seriesOf(d *event.Draft) (int64, error) {
	sum := digestOf(d)
	if id, ok := tx.ids[sum]; ok {
		return id, nil
	}
	if id, ok := tx.store.series.get(sum, tx.epoch); ok {
		tx.ids[sum] = id
		return id, nil
	}
	if tx.lastSeries < 0 || !tx.asked[sum] {
		r, err := tx.do(
			sql("SELECT coalesce(max(id), 0) FROM series WHERE thread = $1", text(tx.store.thread)),
			sql("SELECT id FROM series WHERE thread = $1 AND digest = $2", text(tx.store.thread), bytea([]byte(sum))))
		if err != nil {
			return 0, err
		}
		tx.lastSeries = max(tx.lastSeries, number(r[0].rows[0][0]))
		if len(r[1].rows) > 0 {
			id := number(r[1].rows[0][0])
			tx.ids[sum], tx.newSeries[sum] = id, id
			return id, nil
		}
	}
	tx.lastSeries++
	s := &series{id: tx.lastSeries, digest: sum, source: d.Source, typ: d.Type}
	if d.Subtype != nil {
		s.sub, s.hasSub = *d.Subtype, true
	}
	tx.made = append(tx.made, s)
	tx.all, tx.whole = nil, false
	tx.ids[sum], tx.newSeries[sum] = s.id, s.id
	return s.id, nil
}
