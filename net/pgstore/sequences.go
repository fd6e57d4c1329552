package pgstore

import (
	"strconv"

	"thread/internal/store"
)

// mostSequences is how many sequences a transaction reads with its first statements: a
// thread has one for each table, and tables are few.
const mostSequences = 64

func firstSequences(thread value) statement {
	return often("SELECT tab, n::text FROM sequences WHERE thread = $1 LIMIT "+strconv.Itoa(mostSequences), thread)
}

func (tx *tx) setSequences(rows [][][]byte) {
	tx.numbered = len(rows) < mostSequences
	for _, r := range rows {
		if n, err := strconv.ParseUint(string(r[1]), 10, 64); err == nil {
			tx.numbers[store.Table(r[0])] = n
		}
	}
}

// recordsOf reads the records that the caller wants. By key = ANY, the server reads the whole table
// through the index until it has been analyzed.
func recordsOf(thread value, w store.Wanted) statement {
	tables, keys := columnsOf(w.Records)
	return often("SELECT w.tab, r.key, r.value FROM unnest((SELECT $2::text[]), (SELECT $3::bytea[])) AS w (tab, key), LATERAL (SELECT key, value FROM records WHERE thread = $1 AND tab = w.tab AND key = w.key LIMIT 1) r", thread, tables, keys)
}

// wantedRecords is how many records are read from a wanted place on.
const wantedRecords = 8

// spansOf reads the first records from the places that the caller wants.
func spansOf(thread value, w store.Wanted) statement {
	tables, keys := columnsOf(w.From)
	return often(`SELECT w.n, r.key, r.value FROM unnest((SELECT $2::text[]), (SELECT $3::bytea[])) WITH ORDINALITY AS w (tab, key, n),
		LATERAL (SELECT key, value FROM records WHERE thread = $1 AND tab = w.tab AND key >= w.key ORDER BY key LIMIT `+strconv.Itoa(wantedRecords)+`) r`, thread, tables, keys)
}

func columnsOf(list []store.WantedRecord) (tables, keys value) {
	var t, k [][]byte
	for _, r := range list {
		t, k = append(t, []byte(r.Table)), append(k, r.Key)
	}
	return texts(t), byteas(k)
}

func (tx *tx) setWanted(w store.Wanted, rows, spans [][][]byte) {
	for _, r := range w.Records {
		tx.known[recordKey{r.Table, string(r.Key)}] = nil
	}
	for _, r := range rows {
		tx.known[recordKey{store.Table(r[0]), string(r[1])}] = notNil(r[2])
	}
	tx.spans = map[store.Table][]*prefix{}
	list := make([]*prefix, len(w.From))
	for i, r := range w.From {
		list[i] = &prefix{from: r.Key, whole: true}
		tx.spans[r.Table] = append(tx.spans[r.Table], list[i])
	}
	for _, r := range spans {
		p := list[number(r[0])-1]
		p.list = append(p.list, record{r[1], notNil(r[2])})
		p.whole = len(p.list) < wantedRecords
	}
	for _, p := range list {
		p.sort()
	}
}

// Sequence implements store.Records.
func (tx *tx) Sequence(t store.Table) (uint64, error) {
	if n, ok := tx.numbers[t]; ok || tx.numbered {
		return n, tx.failed
	}
	rows, err := tx.rows("SELECT n::text FROM sequences WHERE thread = $1 AND tab = $2", text(tx.store.thread), text(string(t)))
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return strconv.ParseUint(string(rows[0][0]), 10, 64)
}

// SetSequence implements store.Records.
func (tx *tx) SetSequence(t store.Table, n uint64) error {
	if was, ok := tx.numbers[t]; !ok || was != n {
		tx.numbers[t], tx.changed[t] = n, n
	}
	return tx.failed
}

// Drop implements store.Records.
func (tx *tx) Drop(t store.Table) error {
	_ = tx.flush()
	delete(tx.prefixes, t)
	delete(tx.numbers, t)
	clear(tx.known)
	clear(tx.spans)
	_ = tx.exec("DELETE FROM records WHERE thread = $1 AND tab = $2", text(tx.store.thread), text(string(t)))
	return tx.exec("DELETE FROM sequences WHERE thread = $1 AND tab = $2", text(tx.store.thread), text(string(t)))
}
