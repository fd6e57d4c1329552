package pgstore

import (
	"encoding/binary"
	"fmt"

	"thread/index"
	"thread/internal/store"
)

// gaps are those between the ids of a thread that was imported with some. Ids that are
// given here have none, so that they are all below given, and none are known where there
// is not that record: then what is stored are the ids above the floor.
type gaps struct {
	given     int64 // the highest id that was given where the thread comes from
	missing   int64 // how many ids above the floor have no event
	uncounted int64 // how many ids up to given never counted as an event
}

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

// readGaps reads them, with what begin has read.
func (tx *tx) readGaps() error {
	b, err := tx.Get(store.Meta, gapsKey)
	if err == nil && b != nil {
		tx.gaps, err = decodeGaps(b)
	}
	return err
}

// setGaps stores them. From then on the schema has the version that says so: a program
// that does not know of gaps would give ids twice.
func (tx *tx) setGaps(g gaps) error {
	tx.gaps = g
	_ = tx.Put(store.Meta, gapsKey, g.encode())
	return tx.exec("UPDATE format SET version = $1 WHERE version < $1", int8(versionGaps))
}

// stored is how many events there are.
func (tx *tx) stored() int64 { return tx.last - tx.floor - tx.gaps.missing }

// dropThrough drops the events up to an id.
func (tx *tx) dropThrough(through int64) error {
	name := text(tx.store.thread)
	rows, err := tx.rows(`WITH gone AS (DELETE FROM events WHERE thread = $1 AND id <= $2 RETURNING 1)
		SELECT count(*) FROM gone`, name, int8(through))
	if err != nil {
		return err
	}
	if gone := through - tx.floor - number(rows[0][0]); tx.gaps.missing > 0 && gone > 0 {
		g := tx.gaps
		g.missing -= gone
		_ = tx.setGaps(g)
	}
	tx.floor = through
	return tx.exec("UPDATE threads SET floor = $2 WHERE thread = $1", name, int8(through))
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
