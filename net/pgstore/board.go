package pgstore

import (
	"context"
	"time"

	"thread/internal/store"
)

// notePrefix is not the beginning of a consumer, which is UTF-8, nor of a beat. A note is a row
// of the table turns whose holder is its text, so that the schema keeps its version.
const notePrefix = "\xfe"

// PutNote implements store.Board. It does not wait for the row of the thread.
func (s *Store) PutNote(ctx context.Context, name, note string, wake bool) error {
	list := []statement{sql(`INSERT INTO turns (thread, consumer, fence, holder, until) VALUES ($1, $2, 1, $3, clock_timestamp())
		ON CONFLICT (thread, consumer) DO UPDATE SET holder = excluded.holder, until = excluded.until`,
		text(s.thread), bytea([]byte(notePrefix+name)), text(note))}
	if wake {
		list = append(list, sql("SELECT pg_notify($1, '')", text(s.channel())))
	}
	_, err := s.apart(ctx, list...)
	return err
}

// Notes implements store.Board.
func (s *Store) Notes(ctx context.Context, prefix string) (map[string]store.Note, error) {
	r, err := s.apart(ctx, sql(`SELECT consumer, holder, (extract(epoch FROM clock_timestamp() - until) * 1000)::bigint FROM turns
		WHERE thread = $1 AND consumer >= $2 AND substring(consumer FROM 1 FOR length($2)) = $2`, text(s.thread), bytea([]byte(notePrefix+prefix))))
	if err != nil {
		return nil, err
	}
	notes := make(map[string]store.Note, len(r.rows))
	for _, row := range r.rows {
		notes[string(row[0][len(notePrefix):])] = store.Note{Text: string(row[1]), Age: max(0, time.Duration(number(row[2]))*time.Millisecond)}
	}
	return notes, nil
}

// RemoveNotes implements store.Board.
func (s *Store) RemoveNotes(ctx context.Context, prefix string, older time.Duration) error {
	_, err := s.apart(ctx, sql(`DELETE FROM turns WHERE thread = $1 AND consumer >= $2 AND consumer < $3 AND substring(consumer FROM 1 FOR length($2)) = $2
		AND until <= clock_timestamp() - $4 * interval '1 millisecond'`,
		text(s.thread), bytea([]byte(notePrefix+prefix)), bytea([]byte(beatPrefix)), int8(older.Milliseconds())))
	return err
}

// Holder implements store.Board.
func (s *Store) Holder(ctx context.Context, consumer string) (string, error) {
	r, err := s.apart(ctx, sql("SELECT holder FROM turns WHERE thread = $1 AND consumer = $2 AND until > clock_timestamp()", text(s.thread), bytea([]byte(consumer))))
	if err != nil || len(r.rows) == 0 {
		return "", err
	}
	return string(r.rows[0][0]), nil
}
