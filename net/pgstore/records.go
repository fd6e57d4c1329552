package pgstore

import (
	"bytes"
	"slices"
	"strconv"

	"thread/internal/store"
)

type recordKey struct {
	table store.Table
	key   string
}

// record is one that was read.
type record struct{ key, value []byte }

// prefix is what a transaction has read of the beginning of a table with its first
// statements, because nearly every one looks at it. Of a short table, which is read whole,
// it has what the transaction puts, too. One that begins at a key, which the caller has wanted,
// always has it.
type prefix struct {
	from  []byte
	list  []record
	whole bool // there are no more
}

const (
	prefixRecords = 16
	mostInPrefix  = 64 // with what was put
)

// prefixed are the tables whose beginning is read.
var prefixed = []store.Table{store.Subscriptions, store.Scheduled, store.LimitsTable, store.Progress, store.Deliveries,
	store.Retries, store.Settled, store.Attempts, store.DedupeExpiry, store.Meta}

// quiet are the tables that no process waits for while their consumer is at work.
var quiet = []store.Table{store.Progress, store.Checked, store.Deliveries, store.Attempts, store.Settled, store.Dedupe, store.DedupeExpiry}

// firstOnes reads the beginnings.
func firstOnes(thread value) statement {
	var tables [][]byte
	for _, t := range prefixed {
		tables = append(tables, []byte(t))
	}
	return often(`SELECT t.tab, r.key, r.value FROM unnest($2::text[]) AS t (tab),
		LATERAL (SELECT key, value FROM records WHERE thread = $1 AND tab = t.tab ORDER BY key LIMIT `+strconv.Itoa(prefixRecords)+`) r`, thread, texts(tables))
}

func (tx *tx) setPrefixes(rows [][][]byte) {
	tx.prefixes = map[store.Table]*prefix{}
	for _, t := range prefixed {
		tx.prefixes[t] = &prefix{whole: true}
	}
	for _, r := range rows {
		if p := tx.prefixes[store.Table(r[0])]; p != nil {
			p.list = append(p.list, record{r[1], notNil(r[2])})
			p.whole = len(p.list) < prefixRecords
		}
	}
	for _, p := range tx.prefixes {
		p.sort()
	}
}

func (p *prefix) sort() {
	slices.SortFunc(p.list, func(a, b record) int { return bytes.Compare(a.key, b.key) })
}

// put puts a record, or deletes it when value is nil. Who goes through the list continues
// with it as it was.
func (p *prefix) put(key, value []byte) {
	i, found := p.find(key)
	j := i
	if found {
		j++
	}
	list := slices.Clone(p.list[:i])
	if value != nil {
		list = append(list, record{key, value})
	}
	p.list = append(list, p.list[j:]...)
}

// find returns where in the list key is, or would be.
func (p *prefix) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(p.list, key, func(r record, key []byte) int { return bytes.Compare(r.key, key) })
}

// has reports whether the prefix says what is stored under key.
func (p *prefix) has(key []byte) bool {
	return p != nil && bytes.Compare(p.from, key) <= 0 && (p.whole || len(p.list) > 0 && bytes.Compare(key, p.list[len(p.list)-1].key) <= 0)
}

// A transaction that reads here and there in a table is one that goes through it, as the look
// for what is due does, with a record of each consumer: then it is read from its beginning. The
// tables of other packages may be long, so that it takes more reads there.
const (
	fewGets   = 2
	manyGets  = 64
	grownBy   = 4096
	mostGrown = 8 * grownBy // beyond that, each is read by itself
)

// grow makes the prefix of a table longer until it knows of key, and reports whether it
// does. Only a transaction that reads does it: what one puts would have to be put there.
func (tx *tx) grow(t store.Table, key []byte) (bool, error) {
	p, few := tx.prefixes[t], fewGets
	if !store.Reserved(t) {
		few = manyGets
	}
	if tx.gets[t]++; tx.writable || tx.gets[t] < few {
		return false, nil
	}
	if p == nil {
		p = new(prefix)
		tx.prefixes[t] = p
	}
	for !p.has(key) {
		if len(p.list) >= mostGrown {
			return false, nil
		}
		from := []byte{}
		if n := len(p.list); n > 0 {
			from = after(p.list[n-1].key)
		}
		rows, err := tx.rowsOf(often(ascending, text(tx.store.thread), text(string(t)), bytea(from), int8(grownBy)))
		if err != nil {
			return false, err
		}
		for _, r := range rows {
			p.list = append(p.list, record{r[0], notNil(r[1])})
		}
		p.whole = len(rows) < grownBy
	}
	return true, nil
}

// Get implements store.Records.
func (tx *tx) Get(t store.Table, key []byte) ([]byte, error) {
	k := recordKey{t, string(key)}
	if v, ok := tx.pending[k]; ok {
		return v, tx.failed
	}
	if v, ok := tx.known[k]; ok {
		return v, tx.failed
	}
	if p := tx.prefixes[t]; p.has(key) {
		if i, found := p.find(key); found {
			return p.list[i].value, tx.failed
		}
		return nil, tx.failed
	}
	if p := tx.span(t, key); p != nil {
		if i, found := p.find(key); found {
			return p.list[i].value, tx.failed
		}
		return nil, tx.failed
	}
	grown, err := tx.grow(t, key)
	if err != nil {
		return nil, err
	}
	if grown {
		return tx.Get(t, key)
	}
	rows, err := tx.rowsOf(often("SELECT value FROM records WHERE thread = $1 AND tab = $2 AND key = $3", text(tx.store.thread), text(string(t)), bytea(key)))
	if err != nil {
		return nil, err
	}
	var v []byte
	if len(rows) > 0 {
		v = notNil(rows[0][0])
	}
	if len(tx.known) >= manyRecords {
		clear(tx.known)
	}
	tx.known[k] = v
	return v, nil
}

// Put implements store.Records.
func (tx *tx) Put(t store.Table, key, value []byte) error { return tx.put(t, key, notNil(value)) }

// Delete implements store.Records.
func (tx *tx) Delete(t store.Table, key []byte) error { return tx.put(t, key, nil) }

func (tx *tx) put(t store.Table, key, value []byte) error {
	k := recordKey{t, string(key)}
	if _, again := tx.pending[k]; !again {
		tx.unsent[t]++
	}
	tx.pending[k] = value
	if p := tx.prefixes[t]; p != nil && p.whole {
		if p.put(key, value); len(p.list) > mostInPrefix {
			delete(tx.prefixes, t)
		}
	}
	tx.putInSpans(t, key, value)
	tx.tell = tx.tell || tx.store.turn.Load() == nil || !slices.Contains(quiet, t)
	if len(tx.pending) >= manyRecords {
		return tx.flush()
	}
	return tx.failed
}

// putInSpans keeps what was read as the transaction changes it.
func (tx *tx) putInSpans(t store.Table, key, value []byte) {
	for _, p := range tx.spans[t] {
		if p.has(key) {
			p.put(key, value)
		}
	}
}

// fewPending is up to how many records a transaction still knows what it has sent.
const fewPending = 64

// records are the statements that send what was put.
func (tx *tx) records() (list []statement) {
	var tables, keys, values, goneTables, gone [][]byte
	for k, v := range tx.pending {
		if v == nil {
			goneTables, gone = append(goneTables, []byte(k.table)), append(gone, []byte(k.key))
		} else {
			tables, keys, values = append(tables, []byte(k.table)), append(keys, []byte(k.key)), append(values, v)
		}
		if p := tx.prefixes[k.table]; p != nil && !p.whole {
			delete(tx.prefixes, k.table)
		}
		delete(tx.known, k)
		if len(tx.pending) <= fewPending {
			tx.known[k] = v
		}
	}
	clear(tx.pending)
	clear(tx.unsent)
	name := text(tx.store.thread)
	if len(gone) > 0 {
		list = append(list, often(`DELETE FROM records WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM unnest((SELECT $2::text[]), (SELECT $3::bytea[])) AS d (tab, key),
			LATERAL (SELECT ctid FROM records WHERE thread = $1 AND tab = d.tab AND key = d.key LIMIT 1) r))`, name, texts(goneTables), byteas(gone)))
	}
	if len(keys) > 0 {
		list = append(list, often(`INSERT INTO records (thread, tab, key, value) SELECT $1, * FROM unnest($2::text[], $3::bytea[], $4::bytea[])
			ON CONFLICT (thread, tab, key) DO UPDATE SET value = excluded.value`, name, texts(tables), byteas(keys), byteas(values)))
	}
	return list
}

// Rows that are read at once: few at first, because most look at the first only.
const (
	firstRecords = 16
	mostRecords  = 1024
)

// Ascend implements store.Records.
func (tx *tx) Ascend(t store.Table, from []byte, fn func(key, value []byte) (more bool, err error)) error {
	if p := tx.prefixes[t]; p != nil && tx.failed == nil && (p.whole || tx.unsent[t] == 0) {
		if p.has(from) {
			i, _ := p.find(from)
			for _, r := range p.list[i:] {
				if more, err := fn(r.key, r.value); err != nil || !more {
					return err
				}
			}
			if p.whole {
				return nil
			}
			from = after(p.list[len(p.list)-1].key)
		}
	}
	if p := tx.span(t, from); p != nil && tx.failed == nil {
		i, _ := p.find(from)
		for _, r := range p.list[i:] {
			if more, err := fn(r.key, r.value); err != nil || !more {
				return err
			}
		}
		if p.whole {
			return nil
		}
		from = after(p.list[len(p.list)-1].key)
	}
	if p := tx.prefixes[t]; p == nil || !p.has(from) {
		if grown, err := tx.grow(t, from); err != nil {
			return err
		} else if grown {
			return tx.Ascend(t, from, fn)
		}
	}
	return tx.each(func(value) string { return ascending }, t, bytea(from), func(last []byte) []byte { return after(last) }, fn)
}

// span returns what was read around a key, nil for nothing.
func (tx *tx) span(t store.Table, key []byte) *prefix {
	for _, p := range tx.spans[t] {
		if p.has(key) {
			return p
		}
	}
	return nil
}

const ascending = "SELECT key, value FROM records WHERE thread = $1 AND tab = $2 AND key >= $3 ORDER BY key LIMIT $4"

// after is the key next to last.
func after(last []byte) []byte { return append(slices.Clone(last), 0) }

// Descend implements store.Records.
func (tx *tx) Descend(t store.Table, before []byte, fn func(key, value []byte) (more bool, err error)) error {
	return tx.each(descending, t, optional(before), func(last []byte) []byte { return last }, fn)
}

// descending is a text without OR, for which the server would go through all from the last one on.
func descending(before value) string {
	from := "key < $3"
	if before.data == nil {
		from = "$3::bytea IS NULL"
	}
	return "SELECT key, value FROM records WHERE thread = $1 AND tab = $2 AND " + from + " ORDER BY key DESC LIMIT $4"
}

// each calls fn for the records of a statement, that many at a time, and begins the next
// ones at what next makes of the last key.
func (tx *tx) each(query func(at value) string, t store.Table, at value, next func(last []byte) []byte, fn func(key, value []byte) (more bool, err error)) error {
	if tx.unsent[t] > 0 {
		if err := tx.flush(); err != nil {
			return err
		}
	}
	for n := firstRecords; ; n = min(4*n, mostRecords) {
		list, err := tx.rowsOf(often(query(at), text(tx.store.thread), text(string(t)), at, int8(int64(n))))
		if err != nil {
			return err
		}
		for _, r := range list {
			if more, err := fn(r[0], notNil(r[1])); err != nil || !more {
				return err
			}
		}
		if len(list) < n {
			return nil
		}
		at = bytea(next(list[n-1][0]))
	}
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
