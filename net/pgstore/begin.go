package pgstore

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"thread/event"
	"thread/internal/store"
)

// durableSettings are the columns of settings that durabilityOf reads.
const durableSettings = "current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names')"

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

// beginWrite begins what writes, whatever a role or a database has as its defaults: behind a
// lock, what is read is to be what the one before has left there.
const beginWrite = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
