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

// settings are the settings of one transaction: a session may be another process's next time.
//
// Of a table that was not analyzed yet a bitmap scan would read and sort all, for each
// page, and the plan that is kept for a short table would go through all of a long one. No other process's work is as durable as this has to be, so the thread asks for it.
//
// A host that stops, or is cut off, in the middle of a write has the thread's row locked
// for everybody: then the server ends its session. It is not idle while it sends an answer
// that no process takes, which would continue for a quarter of an hour, or for ever where the host
// only is stopped.
func (s *Store) settings(write bool) statement {
	idle := time.Duration(0) // for ever: a reader is in no one's way
	if write {
		idle = s.idleTimeout
	}
	return often(`SELECT set_config('search_path', $1, true), set_config('lock_timeout', $2, true), set_config('enable_bitmapscan', 'off', true),
		set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
		`+durableSettings+`, set_config('idle_in_transaction_session_timeout', $3, true),
		CASE WHEN current_setting('server_version_num')::int >= 120000 AND version() LIKE '%linux%' THEN set_config('tcp_user_timeout', $3, true) END,
		set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), pg_backend_pid()::bigint`,
		text(s.address.searchPath()), text(strconv.FormatInt(s.lockTimeout.Milliseconds(), 10)), text(strconv.FormatInt(idle.Milliseconds(), 10)))
}

// settingPID is the column of settings with the process of the server.
const settingPID = 11

// beginWrite begins what writes, whatever a role or a database has as its defaults: behind a
// lock, what is read is to be what the one before has left there.
const beginWrite = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

// errLostIdle says that a connection broke before anything was done with it.
var errLostIdle = errors.New("the connection was lost")

// begin locks the thread's row, when write is set, and reads the state in the next
// statement, which sees what others committed while this one waited.
//
// A push gives the digests of the series that it does not know, which are looked up. Who
// gives nil may look for events, and the first series are read, because their filter is
// asked about these before.
func (tx *tx) begin(write bool, digests [][]byte) error {
	tx.writable, tx.lastSeries = write, -1
	tx.series, tx.ids, tx.newSeries = map[int64]*series{}, map[digest]int64{}, map[digest]int64{}
	tx.pending, tx.unsent, tx.known = map[recordKey][]byte{}, map[store.Table]int{}, map[recordKey][]byte{}
	tx.gets, tx.numbers, tx.changed = map[store.Table]int{}, map[store.Table]uint64{}, map[store.Table]uint64{}
	name, begin := text(tx.store.thread), "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	if write {
		begin = beginWrite
	}
	list := []statement{often(begin), tx.store.settings(write)}
	if write {
		list = append(list, often("SELECT 1 FROM threads WHERE thread = $1 FOR UPDATE", name))
	}
	state := len(list)
	list = append(list,
		often("SELECT version::bigint FROM format"),
		often(`SELECT t.floor, coalesce((SELECT id FROM events e WHERE e.thread = t.thread ORDER BY id DESC LIMIT 1), 0), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
			FROM threads t WHERE t.thread = $1`, name),
		firstOnes(name))
	turn := tx.store.turn.Load()
	if write && turn != nil {
		list = append(list, turn.check(name))
	}
	if len(digests) > 0 {
		list = append(list,
			sql("SELECT coalesce(max(id), 0) FROM series WHERE thread = $1", name),
			sql("SELECT id, digest FROM series WHERE thread = $1 AND digest = ANY ($2)", name, byteas(digests)))
	}
	wanted := store.WantedOf(tx.ctx)
	if digests == nil {
		list = append(list, firstSeries(name), firstSequences(name), recordsOf(name, wanted))
		if len(wanted.From) > 0 {
			list = append(list, spansOf(name, wanted))
		}
	}
	// A server that was stopped, or is cut off, says nothing: nothing was stored yet, and
	// another one may answer.
	tx.limit = tx.store.lockTimeout + tx.store.answerTimeout
	r, err := tx.do(list...)
	if err != nil {
		if tx.ctx.Err() == nil && codeOf(err) == "" && tx.conn.IsClosed() {
			return fmt.Errorf("%w: %w", errLostIdle, err)
		}
		if tx.store.pool.isShared(tx.conn, err) {
			return fmt.Errorf("%w: %w", errLostIdle, err)
		}
		if errors.Is(err, store.ErrNotThread) {
			err = tx.store.address.whyNoTables(tx.ctx, tx.conn, err)
		}
		return err
	}
	tx.limit = statementTimeout
	tx.store.pool.mayPrepare(tx.conn, number(r[1].rows[0][settingPID]))
	if err := checkVersion(r[state]); err != nil {
		return err
	}
	if tx.durability = durabilityOf(r[1].rows[0][4:]); write {
		if err := tx.store.address.checkDurable(tx.durability); err != nil {
			return err
		}
	}
	if len(r[state+1].rows) == 0 {
		return fmt.Errorf("%w: the database has no thread %q", store.ErrNotThread, tx.store.thread)
	}
	row := r[state+1].rows[0]
	floor := number(row[0])
	if floor < 0 != tx.store.restoring {
		return wrongState(floor, tx.store.thread)
	}
	tx.floor = max(floor, notYet-floor) // either of them is negative
	tx.head = max(number(row[1]), tx.floor)
	tx.now = time.UnixMicro(number(row[2]))
	tx.createdAt = event.FormatTime(tx.now)
	tx.setPrefixes(r[state+2].rows)
	if err := tx.readGaps(); err != nil {
		return err
	}
	tx.last = max(tx.head, tx.gaps.given)
	next := state + 3
	if write && turn != nil {
		if len(r[next].rows) == 0 {
			return turn.lost()
		}
		next++
	}
	if len(digests) > 0 {
		tx.lastSeries, tx.asked = number(r[next].rows[0][0]), map[digest]bool{}
		for _, d := range digests {
			tx.asked[digest(d)] = true
		}
		for _, row := range r[next+1].rows {
			tx.ids[digest(row[1])] = number(row[0])
			tx.newSeries[digest(row[1])] = number(row[0])
		}
		next += 2
	}
	if digests == nil {
		tx.setSeries(r[next].rows)
		tx.setSequences(r[next+1].rows)
		var spans [][][]byte
		if len(wanted.From) > 0 {
			spans = r[next+3].rows
		}
		tx.setWanted(wanted, r[next+2].rows, spans)
	}
	return nil
}

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
