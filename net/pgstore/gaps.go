package pgstore

import (
	"encoding/binary"
	"fmt"

	"thread/index"
	"thread/internal/store"
)

var gapsKey = []byte("gaps")

func (g gaps) encode() []byte {
	var b []byte
	for _, n := range []int64{g.given, g.missing, g.uncounted} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return index.AppendSum(b, gapsKey)
}

func decodeGaps(value []byte) (g gaps, err error) {
	b, ok := index.CheckSum(gapsKey, value)
	if !ok || len(b) != 24 {
		return g, fmt.Errorf("%w: the record of gaps", store.ErrCorrupt)
	}
	return gaps{number(b[:8]), number(b[8:16]), number(b[16:24])}, nil
}

// Has implements store.Tx.
func (tx *tx) Has(id int64) (bool, error) {
	within := id > tx.floor && id <= tx.head
	if !within || tx.gaps.missing == 0 || id > tx.gaps.given {
		return within, tx.failed
	}
	rows, err := tx.rows("SELECT 1 FROM events WHERE thread = $1 AND id = $2", text(tx.store.thread), int8(id))
	return len(rows) > 0, err
}

// Oldest implements store.Tx.
func (tx *tx) Oldest() (int64, error) {
	switch {
	case tx.head == tx.floor:
		return 0, tx.failed
	case tx.gaps.missing == 0:
		return tx.floor + 1, tx.failed
	}
	return tx.oneID("SELECT coalesce(min(id), 0) FROM events WHERE thread = $1")
}

// BeforeNewest implements store.Tx.
func (tx *tx) BeforeNewest(n int64) (int64, error) {
	if n >= tx.stored() {
		return 0, tx.failed
	}
	if tx.gaps.missing == 0 {
		return tx.head - n, tx.failed
	}
	return tx.oneID("SELECT id FROM events WHERE thread = $1 ORDER BY id DESC OFFSET $2 LIMIT 1", int8(n))
}

func (tx *tx) oneID(query string, args ...value) (int64, error) {
	if err := tx.flushEvents(); err != nil {
		return 0, err
	}
	rows, err := tx.rows(query, append([]value{text(tx.store.thread)}, args...)...)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return number(rows[0][0]), nil
}
