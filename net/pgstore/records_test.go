package pgstore_test

import (
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"thread/internal/store"
)

type recordKey struct {
	table store.Table
	key   string
}

// record is one that was read.
type record struct{ key, value []byte }

func readRecord(r pgx.CollectableRow) (rec record, err error) {
	err = r.Scan(&rec.key, &rec.value)
	return rec, err
}

// Get implements store.Records.
func (tx *tx) Get(t store.Table, key []byte) (value []byte, err error) {
	if v, ok := tx.pending[recordKey{t, string(key)}]; ok {
		return v, tx.failed
	}
	_, err = tx.row("SELECT value FROM records WHERE thread = $1 AND tab = $2 AND key = $3", []any{tx.store.thread, string(t), bytea(key)}, &value)
	return value, err
}

// bytea keeps empty bytes from being NULL.
func bytea(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Put implements store.Records.
func (tx *tx) Put(t store.Table, key, value []byte) error {
	return tx.put(t, key, bytea(value))
}

// Delete implements store.Records.
func (tx *tx) Delete(t store.Table, key []byte) error { return tx.put(t, key, nil) }

func (tx *tx) put(t store.Table, key, value []byte) error {
	tx.pending[recordKey{t, string(key)}] = value
	if len(tx.pending) >= flushRecords {
		return tx.flushRecords()
	}
	return tx.failed
}

func (tx *tx) flushRecords() error {
	var tables, gone []string
	var keys, values, goneKeys [][]byte
	for k, v := range tx.pending {
		if v == nil {
			gone, goneKeys = append(gone, string(k.table)), append(goneKeys, []byte(k.key))
			continue
		}
		tables, keys, values = append(tables, string(k.table)), append(keys, []byte(k.key)), append(values, v)
	}
	clear(tx.pending)
	if len(goneKeys) > 0 {
		_ = tx.exec("DELETE FROM records r USING unnest($2::text[], $3::bytea[]) AS d (tab, key) WHERE r.thread = $1 AND r.tab = d.tab AND r.key = d.key", tx.store.thread, gone, goneKeys)
	}
	if len(keys) > 0 {
		_ = tx.exec(`INSERT INTO records SELECT $1, * FROM unnest($2::text[], $3::bytea[], $4::bytea[])
			ON CONFLICT (thread, tab, key) DO UPDATE SET value = excluded.value`, tx.store.thread, tables, keys, values)
	}
	return tx.failed
}

// Rows that are read at once: few at first, because most look at the first only.
const (
	firstRecords = 16
	mostRecords  = 1024
)

// Ascend implements store.Records.
func (tx *tx) Ascend(t store.Table, from []byte, fn func(key, value []byte) (more bool, err error)) error {
	const sql = "SELECT key, value FROM records WHERE thread = $1 AND tab = $2 AND key >= $3 ORDER BY key LIMIT $4"
	return tx.each(sql, t, bytea(from), func(last []byte) []byte { return append(slices.Clone(last), 0) }, fn)
}

// Descend implements store.Records.
func (tx *tx) Descend(t store.Table, before []byte, fn func(key, value []byte) (more bool, err error)) error {
	const sql = "SELECT key, value FROM records WHERE thread = $1 AND tab = $2 AND ($3::bytea IS NULL OR key < $3) ORDER BY key DESC LIMIT $4"
	return tx.each(sql, t, before, func(last []byte) []byte { return last }, fn)
}

// each calls fn for the records of a statement, so many at a time, and begins the next
// ones at what next makes of the last key.
func (tx *tx) each(sql string, t store.Table, at []byte, next func(last []byte) []byte, fn func(key, value []byte) (more bool, err error)) error {
	if err := tx.flushRecords(); err != nil {
		return err
	}
	for n := firstRecords; ; n = min(4*n, mostRecords) {
		list, err := rows(tx, sql, []any{tx.store.thread, string(t), at, n}, readRecord)
		if err != nil {
			return err
		}
		for _, r := range list {
			if more, err := fn(r.key, r.value); err != nil || !more {
				return err
			}
		}
		if len(list) < n {
			return nil
		}
		at = next(list[n-1].key)
	}
}

// Sequence implements store.Records.
func (tx *tx) Sequence(t store.Table) (uint64, error) {
	text := "0"
	if _, err := tx.row("SELECT n::text FROM sequences WHERE thread = $1 AND tab = $2", []any{tx.store.thread, string(t)}, &text); err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

// SetSequence implements store.Records.
func (tx *tx) SetSequence(t store.Table, n uint64) error {
	return tx.exec("INSERT INTO sequences VALUES ($1, $2, $3::text::numeric) ON CONFLICT (thread, tab) DO UPDATE SET n = excluded.n", tx.store.thread, string(t), strconv.FormatUint(n, 10))
}

// Drop implements store.Records.
func (tx *tx) Drop(t store.Table) error {
	_ = tx.flushRecords()
	_ = tx.exec("DELETE FROM records WHERE thread = $1 AND tab = $2", tx.store.thread, string(t))
	return tx.exec("DELETE FROM sequences WHERE thread = $1 AND tab = $2", tx.store.thread, string(t))
}
