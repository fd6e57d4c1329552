package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/event"
	"thread/internal/store"
)

// found is an event as it is read: its content, when that was asked for and is short.
type found struct {
	id        int64
	createdAt string
	series    int64
	content   []byte // nil: not read
}

// readAhead is what was read for a scan before it began.
type readAhead struct {
	after, upto int64
	most        int
	list        []found
}

// durability is what a server says of what it has confirmed.
type durability struct {
	fsync, fullPageWrites bool
	hosts                 int64 // that have what a COMMIT has confirmed, this one included
	unnamed               bool  // COMMIT waits for any client that streams, which may be a base backup
}

// gaps are those between the ids of a thread that was imported with some. Ids that are
// given here have none, so that they are all below given, and none are known where there
// is not that record: then what is stored are the ids above the floor.
type gaps struct {
	given     int64 // the highest id that was given where the thread comes from
	missing   int64 // how many ids above the floor have no event
	uncounted int64 // how many ids up to given never counted as an event
}

// tx is one transaction. What it appends and puts is kept until it is many, or another process
// looks, or until the COMMIT, with which it is sent: a round trip for each would be most
// of the time.
type tx struct {
	ctx      context.Context
	conn     *pgconn.PgConn // nil: given back
	store    *Store
	began    time.Time
	epoch    int64 // of the series that are known
	writable bool
	readOnly bool // the caller's function is not to write
	failed   error
	limit    time.Duration // how long the server may take to answer; 0: for ever

	now        time.Time // of the server
	createdAt  string
	durability durability
	last       int64 // the highest id ever given
	head       int64 // the newest event
	floor      int64
	gaps       gaps

	series     map[int64]*series // by id
	all        []*series         // while whole is set: all that the thread has
	whole      bool
	ids        map[digest]int64
	newSeries  map[digest]int64 // the series of this transaction, and what it looked up
	made       []*series        // of this transaction, not sent yet
	lastSeries int64            // -1: not looked up
	asked      map[digest]bool  // these were looked up by begin

	events   appended // not sent yet
	pending  map[recordKey][]byte
	unsent   map[store.Table]int // how many of pending are of that table
	known    map[recordKey][]byte
	prefixes map[store.Table]*prefix
	spans    map[store.Table][]*prefix       // of what the caller has wanted
	gets     map[store.Table]int             // reads of one record, of which a prefix did not know
	numbers  map[store.Table]uint64          // sequences that are known
	numbered bool                            // all that the thread has are in numbers
	changed  map[store.Table]uint64          // sequences that were not sent yet
	ahead    map[*store.Selection]*readAhead // of ReadAhead
	tell     bool                            // there is something that others may wait for
}

const (
	manyEvents  = 10_000
	manyBytes   = 4 << 20
	manyRecords = 10_000

	sliceTime = 50 * time.Millisecond
	// yieldTime is longer: no writer waits for a reader, and each transaction costs round trips.
	yieldTime = 500 * time.Millisecond

	// statementTimeout is how long a server that was stopped is waited for in the midst of a
	// transaction: as long as TCP tries to reach one that is cut off.
	statementTimeout = 15 * time.Minute
)

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

// do sends statements and returns what they returned.
func (tx *tx) do(list ...statement) ([]rowset, error) {
	if tx.failed != nil {
		return nil, tx.failed
	}
	ctx := tx.ctx
	if tx.limit > 0 {
		limited, cancel := context.WithTimeout(ctx, tx.limit)
		defer cancel()
		ctx = limited
	}
	r, err := pipeline(ctx, tx.conn, nil, list...)
	if err != nil && ctx.Err() != nil && tx.ctx.Err() == nil {
		err = fmt.Errorf("no answer came in %v, and nothing was stored", tx.limit)
	}
	return r, tx.fail(err)
}

func (tx *tx) exec(text string, args ...value) error {
	_, err := tx.do(sql(text, args...))
	return err
}

// rows returns the rows of a statement.
func (tx *tx) rows(text string, args ...value) ([][][]byte, error) {
	return tx.rowsOf(sql(text, args...))
}

func (tx *tx) rowsOf(s statement) ([][][]byte, error) {
	r, err := tx.do(s)
	if err != nil {
		return nil, err
	}
	return r[0].rows, nil
}

// settingPID is the column of settings with the process of the server.
const settingPID = 11

// errLostIdle says that a connection broke before anything was done with it.
var errLostIdle = errors.New("the connection was lost")

// end gives the connection back, and ends what has not ended.
func (tx *tx) end() {
	c := tx.conn
	if c == nil {
		return
	}
	tx.conn = nil
	if !c.IsClosed() && c.TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		_, _ = pipeline(ctx, c, nil, sql("ROLLBACK"))
		cancel()
	}
	tx.store.pool.put(c)
}

// Now is the clock that the thread goes by.
func (tx *tx) Now() time.Time { return tx.now }

// Writable implements store.Tx.
func (tx *tx) Writable() bool { return tx.writable && !tx.readOnly }

// State implements store.Tx.
func (tx *tx) State() store.State {
	return store.State{Head: tx.head, LastID: tx.last, Count: tx.last - tx.gaps.uncounted, Stored: tx.stored(), Visible: tx.head}
}

// stored is how many events there are.
func (tx *tx) stored() int64 { return tx.last - tx.floor - tx.gaps.missing }

// appended are events that were not sent yet, column by column.
type appended struct {
	id, createdAt, series, content [][]byte
	size                           int
}

func (a *appended) insert(thread value) statement {
	return often("INSERT INTO events (thread, id, created_at, series, content) SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::bytea[])",
		thread, int8s(a.id), texts(a.createdAt), int8s(a.series), byteas(a.content))
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
	tx.head = tx.last
	a := &tx.events
	a.id, a.series = append(a.id, int8(tx.last).data), append(a.series, int8(id).data)
	a.createdAt, a.content = append(a.createdAt, []byte(createdAt)), append(a.content, append([]byte{}, d.Content...))
	a.size += len(d.Content) + 100
	tx.tell = true
	e = event.Event{ID: tx.last, CreatedAt: createdAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
	if len(a.id) >= manyEvents || a.size >= manyBytes {
		err = tx.flush()
	}
	return e, err
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

// flush sends what was kept.
func (tx *tx) flush() error {
	list := tx.rest()
	if len(list) == 0 {
		return tx.failed
	}
	_, err := tx.do(list...)
	return err
}

// rest are the statements that send what was kept.
func (tx *tx) rest() []statement {
	return append(append(tx.restOfEvents(), tx.records()...), tx.sequences()...)
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
	return []statement{often(`INSERT INTO sequences (thread, tab, n) SELECT $1, s.tab, s.n::numeric FROM unnest($2::text[], $3::text[]) AS s (tab, n)
		ON CONFLICT (thread, tab) DO UPDATE SET n = excluded.n`, text(tx.store.thread), texts(tables), texts(numbers))}
}

// flushEvents sends the events that were kept, and their series.
func (tx *tx) flushEvents() error {
	list := tx.restOfEvents()
	if len(list) == 0 {
		return tx.failed
	}
	_, err := tx.do(list...)
	return err
}

func (tx *tx) restOfEvents() (list []statement) {
	name := text(tx.store.thread)
	if len(tx.made) > 0 {
		var id, sum, source, typ, sub [][]byte
		for _, s := range tx.made {
			id, sum = append(id, int8(s.id).data), append(sum, []byte(s.digest))
			source, typ = append(source, []byte(s.source)), append(typ, []byte(s.typ))
			if s.hasSub {
				sub = append(sub, append([]byte{}, s.sub...))
			} else {
				sub = append(sub, nil)
			}
		}
		tx.made = nil
		list = append(list, sql("INSERT INTO series (thread, id, digest, source, type, subtype) SELECT $1, * FROM unnest($2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[])",
			name, int8s(id), byteas(sum), byteas(source), byteas(typ), byteas(sub)))
	}
	if len(tx.events.id) > 0 {
		list = append(list, tx.events.insert(name))
		tx.events = appended{}
	}
	return list
}

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

// notice tells those who wait, after the commit and apart from it: inside the
// transaction the server would let one commit of this kind in at a time, in the whole database.
// It is a separate transaction, with nothing to be kept: the server would sync, and wait
// for its standby, a second time.
func (tx *tx) notice() *statement {
	if !tx.tell {
		return nil
	}
	s := sql("SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, '')", text(tx.store.channel()))
	return &s
}

// channel is where writers of the thread give notice.
func (s *Store) channel() string {
	return nameOf(s.address.Schema + "\x00" + s.thread)
}
