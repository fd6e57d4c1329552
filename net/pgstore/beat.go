package pgstore

import (
	"context"
	"time"
)

// A beat is a row of the table turns with the fence 1, whose time is the time of the beat. It is
// not in a separate table, so that the schema keeps its version.

// beatPrefix is not the beginning of a consumer, which is UTF-8.
const beatPrefix = "\xff"

// Beat implements store.Beating. Except for the first beat of a name it does not wait for the
// row of the thread: a long batch of another process ends no run.
func (s *Store) Beat(ctx context.Context, name string) error {
	_, err := s.apart(ctx, often(`INSERT INTO turns (thread, consumer, fence, holder, until) VALUES ($1, $2, 1, $3, clock_timestamp())
		ON CONFLICT (thread, consumer) DO UPDATE SET holder = excluded.holder, until = excluded.until`,
		text(s.thread), bytea([]byte(beatPrefix+name)), text(holder())))
	return err
}

// StopBeat implements store.Beating.
func (s *Store) StopBeat(ctx context.Context, name string) error {
	_, err := s.apart(ctx, sql("DELETE FROM turns WHERE thread = $1 AND consumer = $2", text(s.thread), bytea([]byte(beatPrefix+name))))
	return err
}

// Beats implements store.Beats. A transaction that waited for another connection could be in the
// way of all who have one, and wait for it.
func (tx *tx) Beats() (map[string]time.Duration, error) {
	rows, err := tx.rowsOf(often("SELECT consumer, (extract(epoch FROM clock_timestamp() - until) * 1000)::bigint FROM turns WHERE thread = $1 AND consumer >= $2",
		text(tx.store.thread), bytea([]byte(beatPrefix))))
	if err != nil {
		return nil, err
	}
	beats := make(map[string]time.Duration, len(rows))
	for _, row := range rows {
		beats[string(row[0][len(beatPrefix):])] = max(0, time.Duration(number(row[1]))*time.Millisecond)
	}
	return beats, nil
}
