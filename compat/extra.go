package compat

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"

	"thread/engine"
	"thread/internal/store"
)

// The table thread_extra carries what a SQLite thread has no columns for. Its
// column bucket says what a row is:
//
//	options       key: a consumer, value: the options of its subscription
//	progress      key: a consumer, value: last_acked_id and the newest id when it
//	              was set, 8 bytes each; only for an id ahead of its time, and
//	              void once last_acked_id is another
//	pruned        key: NULL, value: 8 bytes, how many events are not here any more
//	bucket/a/b    key and value: an entry of the bucket b in the top-level bucket
//	              a, the names percent-encoded; key NULL: value is the bucket's
//	              sequence, 8 bytes
//
// Integers are big-endian. The table is there only if it has a row.
const (
	extraOptions  = "options"
	extraProgress = "progress"
	extraPruned   = "pruned"
	extraBucket   = "bucket/"
)

type extraRow struct {
	bucket     string
	key, value []byte
}

func be(ns ...int64) (b []byte) {
	for _, n := range ns {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func fromBE(b []byte, i int) int64 { return int64(binary.BigEndian.Uint64(b[i*8:])) }

// The bucket "sqlite" keeps what an import found and only an export needs:
//
//	schema    8 bytes, rising → kind, name, table and SQL, each ended by 0x00
//	progress  consumer → rowid, 8 bytes: the order of the rows
//	pragma    user_version, application_id → 8 bytes
const (
	keptBucket   = "sqlite"
	keptSchema   = "schema"
	keptProgress = "progress"
	keptPragma   = "pragma"
)

var pragmas = []string{"user_version", "application_id"}

func (o object) encode() []byte {
	return []byte(o.kind + "\x00" + o.name + "\x00" + o.table + "\x00" + o.sql + "\x00")
}

func decodeObject(b []byte) (o object, ok bool) {
	f := strings.Split(string(b), "\x00")
	if len(f) != 5 {
		return o, false
	}
	return object{f[0], f[1], f[2], f[3]}, true
}

// kept is the bucket "sqlite", decoded.
type kept struct {
	schema []object
	rowids map[string]int64
	pragma map[string]int64
}

// splitExtras separates what is kept for SQLite from the rest of a snapshot.
func splitExtras(s *store.Snapshot) (k kept, rest []extraRow, err error) {
	k = kept{rowids: map[string]int64{}, pragma: map[string]int64{}}
	for i := range s.Subscriptions {
		if o := s.Subscriptions[i].Options(); o != nil {
			rest = append(rest, extraRow{extraOptions, []byte(s.Subscriptions[i].Consumer), o})
		}
	}
	for _, p := range s.Progress {
		if p.From() != min(p.LastAcked, s.Head) {
			rest = append(rest, extraRow{extraProgress, []byte(p.Consumer), be(p.LastAcked, p.Newest)})
		}
	}
	if s.Pruned > 0 {
		rest = append(rest, extraRow{bucket: extraPruned, value: be(s.Pruned)})
	}
	for _, x := range s.Extras {
		if x.Bucket[0] != keptBucket {
			rest = append(rest, newExtraRow(x))
			continue
		}
		if len(x.Bucket) != 2 || x.Key == nil {
			continue
		}
		ok := len(x.Value) == 8
		switch x.Bucket[1] {
		case keptSchema:
			var o object
			o, ok = decodeObject(x.Value)
			k.schema = append(k.schema, o)
		case keptProgress:
			if ok {
				k.rowids[string(x.Key)] = fromBE(x.Value, 0)
			}
		case keptPragma:
			if ok {
				k.pragma[string(x.Key)] = fromBE(x.Value, 0)
			}
		}
		if !ok {
			return k, nil, fmt.Errorf("%w: bucket %q", engine.ErrCorrupt, x.Bucket)
		}
	}
	if k.schema == nil {
		k.schema = schema
	}
	return k, rest, nil
}

func newExtraRow(x store.Extra) extraRow {
	names := make([]string, len(x.Bucket))
	for i, n := range x.Bucket {
		names[i] = url.PathEscape(n)
	}
	row := extraRow{bucket: extraBucket + strings.Join(names, "/"), key: x.Key, value: x.Value}
	if x.Key == nil {
		row.value = be(int64(x.Sequence))
	}
	return row
}

// extra is the inverse of newExtraRow.
func (row *extraRow) extra() (x store.Extra, ok bool) {
	path, ok := strings.CutPrefix(row.bucket, extraBucket)
	if !ok {
		return x, false
	}
	for _, n := range strings.Split(path, "/") {
		name, err := url.PathUnescape(n)
		if err != nil || name == "" {
			return x, false
		}
		x.Bucket = append(x.Bucket, name)
	}
	if len(row.key) > 0 {
		x.Key, x.Value = row.key, row.value
		return x, x.Bucket[0] != keptBucket
	}
	if len(row.value) != 8 {
		return x, false
	}
	x.Sequence = uint64(fromBE(row.value, 0))
	return x, x.Bucket[0] != keptBucket
}

// extras is the table thread_extra, decoded.
type extras struct {
	options, progress map[string][]byte
	pruned            int64
	buckets           []store.Extra
}

func readExtras(ctx context.Context, q querier, r *Report) (x extras, err error) {
	x = extras{options: map[string][]byte{}, progress: map[string][]byte{}}
	rows, err := q.QueryContext(ctx, `SELECT bucket, key, value FROM thread_extra ORDER BY rowid`)
	if err != nil {
		return x, err
	}
	defer rows.Close()
	for rows.Next() {
		var row extraRow
		if err := rows.Scan(&row.bucket, &row.key, &row.value); err != nil {
			return x, err
		}
		ok := true
		switch row.bucket {
		case extraOptions:
			x.options[string(row.key)] = row.value
		case extraProgress:
			if ok = len(row.value) == 16; ok {
				x.progress[string(row.key)] = row.value
			}
		case extraPruned:
			if ok = len(row.value) == 8 && fromBE(row.value, 0) >= 0; ok {
				x.pruned = fromBE(row.value, 0)
			}
		default:
			var e store.Extra
			if e, ok = row.extra(); ok {
				x.buckets = append(x.buckets, e)
			}
		}
		if !ok {
			r.fault(extraTable, row.bucket, "is not what an export writes")
		}
	}
	return x, rows.Err()
}
