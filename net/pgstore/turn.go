package pgstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"thread/internal/store"
)

// ErrTurnTaken says that another process has the consumer's turn; ErrTurnLost that it has
// taken the one of this handle, so that nothing was stored.
var (
	ErrTurnTaken = errors.New("another process works for the consumer")
	ErrTurnLost  = errors.New("another process has taken over the consumer")
)

// TakenError is an ErrTurnTaken.
type TakenError struct {
	Consumer, Holder string
	Left             time.Duration // until another process may take it
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("%v %q: %s", ErrTurnTaken, e.Consumer, e.Holder)
}

// Taken marks the error for cli.IsTaken.
func (e *TakenError) Taken() {}

func (e *TakenError) Unwrap() error { return ErrTurnTaken }

// Lease is how long a turn lasts that is not renewed. Who could not renew it for two
// thirds of that ends what it runs.
const Lease = 20 * time.Second

// TakeTurn takes the turn of a consumer, or returns a *TakenError. From then on every
// write of the handle stores nothing and returns ErrTurnLost once another process has
// taken the turn. lease is Lease but in tests.
//
// The row of the thread is locked meanwhile: a write of the holder before has ended, and
// its next one finds another fence. A turn that would continue for longer than a lease comes
// from a clock that was ahead, and has ended.
func (s *Store) TakeTurn(ctx context.Context, consumer string, lease time.Duration) error {
	name, who := text(s.thread), bytea([]byte(consumer))
	var fence int64
	err := s.run(ctx, true, nil, func(tx *tx) error {
		r, err := tx.do(sql(`INSERT INTO turns AS t (thread, consumer, fence, holder, until)
			VALUES ($1, $2, 1, $3, clock_timestamp() + $4 * interval '1 millisecond')
			ON CONFLICT (thread, consumer) DO UPDATE SET fence = t.fence + 1, holder = excluded.holder, until = excluded.until
			WHERE t.until <= clock_timestamp() OR t.until > clock_timestamp() + $5 * interval '1 millisecond'
			RETURNING fence`, name, who, text(holder()), int8(lease.Milliseconds()), int8(max(lease, Lease).Milliseconds())),
			sql("SELECT holder, (extract(epoch FROM until - clock_timestamp()) * 1000)::bigint FROM turns WHERE thread = $1 AND consumer = $2", name, who))
		if err != nil {
			return err
		}
		if len(r[0].rows) == 0 {
			taken := &TakenError{Consumer: consumer}
			if len(r[1].rows) > 0 {
				taken.Holder, taken.Left = string(r[1].rows[0][0]), time.Duration(number(r[1].rows[0][1]))*time.Millisecond
			}
			return taken
		}
		fence = number(r[0].rows[0][0])
		return nil
	})
	if err != nil {
		return err
	}
	s.turn.Store(&turn{consumer, fence})
	return nil
}

// Fence is the number of the handle's turn, 0 when it has none.
func (s *Store) Fence() int64 {
	if t := s.turn.Load(); t != nil {
		return t.fence
	}
	return 0
}

// JoinTurn makes the handle's writes a part of a turn that another handle has taken, and
// renews: once that is lost they store nothing.
func (s *Store) JoinTurn(consumer string, fence int64) { s.turn.Store(&turn{consumer, fence}) }

// RenewTurn makes the turn last for another lease. It returns ErrTurnLost when another
// process has it. It does not wait for the thread's row: a long batch of another process
// costs no process the turn.
func (s *Store) RenewTurn(ctx context.Context, lease time.Duration) error {
	return s.changeTurn(ctx, "clock_timestamp() + $4 * interval '1 millisecond'", lease)
}

// GiveTurnBack ends the turn: the next one to ask has it.
func (s *Store) GiveTurnBack(ctx context.Context) error {
	return s.changeTurn(ctx, "least(until, clock_timestamp() - $4 * interval '1 millisecond')", 0, sql("SELECT pg_notify($1, '')", text(s.channel())))
}

func (s *Store) changeTurn(ctx context.Context, until string, d time.Duration, more ...statement) error {
	t := s.turn.Load()
	if t == nil {
		return store.ErrClosed
	}
	c, _, err := s.pool.take(ctx)
	if err != nil {
		return failure(ctx, err)
	}
	defer s.pool.put(c)
	list := []statement{sql(beginWrite), s.settings(true),
		sql("UPDATE turns SET until = "+until+" WHERE thread = $1 AND consumer = $2 AND fence = $3", text(s.thread), bytea([]byte(t.consumer)), int8(t.fence), int8(d.Milliseconds()))}
	r, err := pipeline(ctx, c, nil, append(append(list, more...), sql("COMMIT"))...)
	if err != nil {
		hangUp(c)
		return failure(ctx, err)
	}
	if r[2].tag != "UPDATE 1" {
		return t.lost()
	}
	return nil
}

// check returns a row while the turn is the handle's.
func (t *turn) check(thread value) statement {
	return often("SELECT 1 FROM turns WHERE thread = $1 AND consumer = $2 AND fence = $3", thread, bytea([]byte(t.consumer)), int8(t.fence))
}

func (t *turn) lost() error { return fmt.Errorf("%w %q", ErrTurnLost, t.consumer) }

// holder names this process for people.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}
