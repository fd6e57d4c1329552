package pgstore_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"thread/event"
	"thread/internal/store"
)

// tx is one transaction. What it appends and puts is kept until it is many, or somebody
// looks: a round trip for each would be most of the time of a batch.
type tx struct {
	ctx      context.Context
	pg       pgx.Tx
	store    *pgStore
	began    time.Time
	writable bool
	readOnly bool // the caller's function is not to write
	failed   error

	createdAt   string
	last, floor int64

	series     map[int64]*series // by id
	ids        map[[sha256.Size]byte]int64
	lastSeries int64 // -1: not looked up

	events  [][]any // that were appended
	size    int
	pending map[recordKey][]byte // records that were put, nil: deleted
}

const (
	flushEvents  = 10_000
	flushBytes   = 4 << 20
	flushRecords = 10_000

	sliceTime = 50 * time.Millisecond
)

type series struct {
	id               int64
	source, typ, sub string
	hasSub           bool
}

func (s *series) subtype() *string {
	if !s.hasSub {
		return nil
	}
	return &s.sub
}

// fail keeps the first error: nothing that comes after it counts.
func (tx *tx) fail(err error) error {
	if err == nil {
		return nil
	}
	if tx.failed == nil {
		tx.failed = failure(tx.ctx, err)
	}
	return tx.failed
}

func (tx *tx) exec(sql string, args ...any) error {
	if tx.failed != nil {
		return tx.failed
	}
	_, err := tx.pg.Exec(tx.ctx, sql, args...)
	return tx.fail(err)
}

// row reads one row; found is false when there is none.
func (tx *tx) row(sql string, args []any, to ...any) (found bool, err error) {
	if tx.failed != nil {
		return false, tx.failed
	}
	err = tx.pg.QueryRow(tx.ctx, sql, args...).Scan(to...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, tx.fail(err)
}

// rows reads all rows, before fn of the caller is called: it may use the connection.
func rows[T any](tx *tx, sql string, args []any, read func(r pgx.CollectableRow) (T, error)) ([]T, error) {
	if tx.failed != nil {
		return nil, tx.failed
	}
	r, err := tx.pg.Query(tx.ctx, sql, args...)
	if err != nil {
		return nil, tx.fail(err)
	}
	list, err := pgx.CollectRows(r, read)
	if err != nil {
		return nil, tx.fail(err)
	}
	return list, nil
}

// begin locks the thread's row, when write is set, and reads the state in the next
// statement, which sees what others committed while this one waited.
func (tx *tx) begin(write bool) error {
	tx.writable, tx.lastSeries = write, -1
	tx.series, tx.ids = map[int64]*series{}, map[[sha256.Size]byte]int64{}
	tx.pending = map[recordKey][]byte{}
	const state = `SELECT t.floor, coalesce((SELECT max(id) FROM events e WHERE e.thread = t.thread), 0), clock_timestamp()
		FROM threads t WHERE t.thread = $1`
	b := &pgx.Batch{}
	if write {
		b.Queue("SELECT set_config('lock_timeout', $1, true)", strconv.FormatInt(tx.store.lockTimeout.Milliseconds(), 10))
		b.Queue("SELECT FROM threads WHERE thread = $1 FOR UPDATE", tx.store.thread)
	}
	b.Queue(state, tx.store.thread)
	r := tx.pg.SendBatch(tx.ctx, b)
	for range b.Len() - 1 {
		if _, err := r.Exec(); err != nil {
			_ = r.Close()
			return tx.fail(err)
		}
	}
	var now time.Time
	err := r.QueryRow().Scan(&tx.floor, &tx.last, &now)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotThread
	}
	tx.last = max(tx.last, tx.floor)
	tx.createdAt = event.FormatTime(now)
	return tx.fail(err)
}

// flush stores what was kept.
func (tx *tx) flush() error {
	if len(tx.events) > 0 && tx.failed == nil {
		_, err := tx.pg.CopyFrom(tx.ctx, pgx.Identifier{"events"}, []string{"thread", "id", "created_at", "series", "content"}, pgx.CopyFromRows(tx.events))
		clear(tx.events)
		tx.events, tx.size = tx.events[:0], 0
		_ = tx.fail(err)
	}
	return tx.flushRecords()
}

// Writable implements store.Tx.
func (tx *tx) Writable() bool { return tx.writable && !tx.readOnly }

// State implements store.Tx.
func (tx *tx) State() store.State {
	return store.State{Head: tx.last, LastID: tx.last, Count: tx.last, Stored: tx.last - tx.floor, Visible: tx.last}
}

// Append implements store.Tx.
func (tx *tx) Append(d *event.Draft, createdAt string) (e event.Event, err error) {
	if tx.failed != nil {
		return e, tx.failed
	}
	if tx.last == math.MaxInt64 {
		return e, store.ErrIDsExhausted
	}
	id, err := tx.seriesOf(d)
	if err != nil {
		return e, err
	}
	tx.last++
	tx.events = append(tx.events, []any{tx.store.thread, tx.last, createdAt, id, []byte(d.Content)})
	tx.size += len(d.Content) + 100
	e = event.Event{ID: tx.last, CreatedAt: createdAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
	if len(tx.events) >= flushEvents || tx.size >= flushBytes {
		err = tx.flush()
	}
	return e, err
}

func digest(d *event.Draft) [sha256.Size]byte {
	b := binary.AppendUvarint(nil, uint64(len(d.Source)))
	b = binary.AppendUvarint(append(b, d.Source...), uint64(len(d.Type)))
	b = append(b, d.Type...)
	if d.Subtype != nil {
		b = append(append(b, 1), *d.Subtype...)
	}
	return sha256.Sum256(b)
}

// seriesOf returns the id of the draft's series, a new one when there is none.
func (tx *tx) seriesOf(d *event.Draft) (int64, error) {
	sum := digest(d)
	if id, ok := tx.ids[sum]; ok {
		return id, nil
	}
	var id int64
	found, err := tx.row("SELECT id FROM series WHERE thread = $1 AND digest = $2", []any{tx.store.thread, sum[:]}, &id)
	if err != nil {
		return 0, err
	}
	if !found {
		if tx.lastSeries < 0 {
			if _, err := tx.row("SELECT coalesce(max(id), 0) FROM series WHERE thread = $1", []any{tx.store.thread}, &tx.lastSeries); err != nil {
				return 0, err
			}
		}
		tx.lastSeries++
		id = tx.lastSeries
		var sub []byte
		if d.Subtype != nil {
			sub = append([]byte{}, *d.Subtype...)
		}
		if err := tx.exec("INSERT INTO series VALUES ($1, $2, $3, $4, $5, $6)", tx.store.thread, id, sum[:], []byte(d.Source), []byte(d.Type), sub); err != nil {
			return 0, err
		}
	}
	tx.ids[sum] = id
	return id, nil
}

// readSeries returns the series with these ids, nil for all there are.
func (tx *tx) readSeries(ids []int64) ([]*series, error) {
	return rows(tx, "SELECT id, source, type, subtype FROM series WHERE thread = $1 AND ($2::bigint[] IS NULL OR id = ANY ($2)) ORDER BY id", []any{tx.store.thread, ids}, func(r pgx.CollectableRow) (*series, error) {
		s := &series{}
		var source, typ, sub []byte
		err := r.Scan(&s.id, &source, &typ, &sub)
		s.source, s.typ, s.sub, s.hasSub = string(source), string(typ), string(sub), sub != nil
		if err == nil {
			tx.series[s.id] = s
		}
		return s, err
	})
}

// SeriesCount implements store.Tx.
func (tx *tx) SeriesCount() (n int64, err error) {
	_, err = tx.row("SELECT count(*) FROM series WHERE thread = $1", []any{tx.store.thread}, &n)
	return n, err
}

// Event implements store.Tx.
func (tx *tx) Event(id int64) (e event.Event, stored bool, err error) {
	e.ID = id
	if id <= tx.floor || id > tx.last {
		return e, false, tx.failed
	}
	rs, err := tx.read(span{after: id - 1, upto: id, contents: true}, 1)
	if err != nil || len(rs) == 0 {
		return e, false, err
	}
	e, err = tx.event(rs[0])
	return e, err == nil, err
}

// Has implements store.Tx: ids are dense.
func (tx *tx) Has(id int64) (bool, error) { return id > tx.floor && id <= tx.last, tx.failed }

// Oldest implements store.Tx.
func (tx *tx) Oldest() (int64, error) {
	if tx.last == tx.floor {
		return 0, tx.failed
	}
	return tx.floor + 1, tx.failed
}

// BeforeNewest implements store.Tx.
func (tx *tx) BeforeNewest(n int64) (int64, error) {
	if n >= tx.last-tx.floor {
		return 0, tx.failed
	}
	return tx.last - n, tx.failed
}

// Yield implements store.Tx. Writers do not wait for readers, but a server keeps what a
// long transaction may still look at.
func (tx *tx) Yield() bool { return time.Since(tx.began) >= sliceTime }

// Size implements store.Tx: of the contents and the records of the thread.
func (tx *tx) Size() (n int64) {
	_ = tx.flush()
	_, _ = tx.row(`SELECT coalesce((SELECT sum(octet_length(content)) FROM events WHERE thread = $1), 0)::bigint +
		coalesce((SELECT sum(octet_length(key) + octet_length(value)) FROM records WHERE thread = $1), 0)::bigint`, []any{tx.store.thread}, &n)
	return n
}
