package pgstore

import (
	"fmt"

	"thread/event"
	"thread/internal/fsck"
	"thread/internal/store"
)

// mostFaults bounds how many faults of one kind are named: one lost row can be the
// first of thousands.
const mostFaults = 100

// Check checks what only this store knows, in a transaction of it: that ids have no gaps but those they came with,
// that every event has its series, that every series is what its digest says, and that no
// record is of a thread or turn that cannot be.
func Check(of store.Tx, fault, note fsck.Faults) error {
	tx := of.(*tx)
	name, dense := text(tx.store.thread), int64(0)
	if tx.gaps.missing > 0 {
		dense = tx.gaps.given
	}
	r, err := tx.do(
		// A gap is before an id whose neighbour below is missing. Up to dense there may be some.
		sql(`SELECT id, greatest(below, $4) FROM (SELECT id, coalesce(lag(id) OVER (ORDER BY id), $2) AS below FROM events WHERE thread = $1) e
			WHERE id <> greatest(below, $4) + 1 AND (id > $4 OR id <= $2) ORDER BY id LIMIT $3`, name, int8(tx.floor), int8(mostFaults), int8(dense)),
		sql("SELECT count(*) FROM events WHERE thread = $1", name),
		sql(`SELECT min(e.id), e.series FROM events e LEFT JOIN series s ON s.thread = e.thread AND s.id = e.series
			WHERE e.thread = $1 AND s.id IS NULL GROUP BY e.series ORDER BY 1 LIMIT $2`, name, int8(mostFaults)),
		sql("SELECT id, digest, source, type, subtype FROM series WHERE thread = $1 ORDER BY id", name),
		sql("SELECT consumer FROM turns WHERE thread = $1 AND fence < 1 LIMIT $2", name, int8(mostFaults)),
		sql("SELECT current_setting('data_checksums')"))
	if err != nil {
		return err
	}
	for _, row := range r[0].rows {
		id, below := number(row[0]), number(row[1])
		switch {
		case id <= tx.floor:
			fault(fmt.Sprintf("event %d", id), "was dropped, and is there: all up to %d were", tx.floor)
		case below+2 == id:
			fault(fmt.Sprintf("event %d", id-1), "is missing")
		default:
			fault(fmt.Sprintf("events %d to %d", max(below, tx.floor)+1, id-1), "are missing")
		}
	}
	if n := number(r[1].rows[0][0]); n != tx.stored() && len(r[0].rows) == 0 {
		fault("thread", "%d events are there, the counters say %d", n, tx.stored())
	}
	for _, row := range r[2].rows {
		fault(fmt.Sprintf("event %d", number(row[0])), "belongs to series %d, which is missing", number(row[1]))
	}
	for _, row := range r[3].rows {
		d := event.Draft{Source: string(row[2]), Type: string(row[3])}
		if row[4] != nil {
			d.Subtype = event.Text(string(row[4]))
		}
		if string(digestOf(&d)) != string(row[1]) {
			fault(fmt.Sprintf("series %d", number(row[0])), "is not what its digest says")
		}
	}
	for _, row := range r[4].rows {
		fault(fmt.Sprintf("turn of %q", row[0]), "has no fence")
	}
	if string(r[5].rows[0][0]) != "on" {
		note("server", "data_checksums is off: a page that a disk has changed may go unnoticed")
	}
	return nil
}
