package pgstore

import (
	"strconv"

	"thread/internal/store"
)

// mostSequences is how many sequences a transaction reads with its first statements: a
// thread has one for each table, and tables are few.
const mostSequences = 64

func firstSequences(thread value) statement {
	return sql("SELECT tab, n::text FROM sequences WHERE thread = $1 LIMIT "+strconv.Itoa(mostSequences), thread)
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
	return sql("SELECT r.key, r.value FROM unnest($3::bytea[]) AS w (key), LATERAL (SELECT key, value FROM records WHERE thread = $1 AND tab = $2 AND key = w.key LIMIT 1) r", thread, text(string(w.Table)), byteas(w.Keys))
}

func (tx *tx) setWanted(w store.Wanted, rows [][][]byte) {
	for _, key := range w.Keys {
		tx.known[recordKey{w.Table, string(key)}] = nil
	}
	for _, r := range rows {
		tx.known[recordKey{w.Table, string(r[0])}] = notNil(r[1])
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

// sequences are the statements that send what was set.
func (tx *tx) sequences() []statement {
	if len(tx.changed) == 0 {
		return nil
	}
	var tables, numbers [][]byte
	for t, n := range tx.changed {
		tables, numbers = append(tables, []byte(t)), append(numbers, strconv.AppendUint(nil, n, 10))
	}
	clear(tx.changed)
	return []statement{sql(`INSERT INTO sequences (thread, tab, n) SELECT $1, s.tab, s.n::numeric FROM unnest($2::text[], $3::text[]) AS s (tab, n)
		ON CONFLICT (thread, tab) DO UPDATE SET n = excluded.n`, text(tx.store.thread), texts(tables), texts(numbers))}
}

// Drop implements store.Records.
func (tx *tx) Drop(t store.Table) error {
	_ = tx.flush()
	delete(tx.prefixes, t)
	delete(tx.numbers, t)
	clear(tx.known)
	_ = tx.exec("DELETE FROM records WHERE thread = $1 AND tab = $2", text(tx.store.thread), text(string(t)))
	return tx.exec("DELETE FROM sequences WHERE thread = $1 AND tab = $2", text(tx.store.thread), text(string(t)))
}
