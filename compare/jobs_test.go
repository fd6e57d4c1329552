//go:build linux

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"maragu.dev/goqite"
	"maragu.dev/goqite/jobs"

	"thread/engine"
	"thread/history"
)

// jobQueue is a queue of jobs that do nothing.
type jobQueue interface {
	enqueue(n int) error
	// work works on n jobs that are there, with that many workers.
	work(n, workers int) error
	// start returns how long it took from the call that enqueues a job until a worker that
	// waited began it.
	start() (time.Duration, error)
}

// jobs compares the queue of runs with goqite on SQLite, which is as durable.
func (l *lab) jobs() error {
	t, err := engine.Init(l.path("jobs"))
	if err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	h, err := history.Open(ctx, l.path("jobs"))
	if err != nil {
		return err
	}
	defer h.Close()
	theirs, err := newGoqite(l.path("goqite.db"))
	if err != nil {
		return err
	}
	defer theirs.db.Close()
	sides := [2]jobQueue{runQueue{h}, theirs}
	const n = 160
	for _, row := range []struct {
		what    string
		measure func(q jobQueue) (time.Duration, error)
	}{
		{"enqueue a job", func(q jobQueue) (time.Duration, error) {
			d, err := timed(n, func() error { return q.enqueue(n) })
			return d, errors.Join(err, q.work(n, 1))
		}},
		{"a job, one worker", func(q jobQueue) (time.Duration, error) { return worked(q, n, 1) }},
		{"a job, 16 workers", func(q jobQueue) (time.Duration, error) { return worked(q, n, 16) }},
		{"from enqueue to the start", jobQueue.start},
	} {
		var times [2][]time.Duration
		for round := range 11 {
			for i := range sides {
				which := (i + round) % 2
				d, err := row.measure(sides[which])
				if err != nil {
					return fmt.Errorf("%s: %w", row.what, err)
				}
				times[which] = append(times[which], d)
			}
		}
		l.paired(row.what, times[0], times[1], "goqite", 1)
	}
	return nil
}

// timed returns what one of n took.
func timed(n int, do func() error) (time.Duration, error) {
	begun := time.Now()
	err := do()
	return time.Since(begun) / time.Duration(n), err
}

func worked(q jobQueue, n, workers int) (time.Duration, error) {
	if err := q.enqueue(n); err != nil {
		return 0, err
	}
	return timed(n, func() error { return q.work(n, workers) })
}

type runQueue struct{ h *history.History }

func (q runQueue) enqueue(n int) error {
	for range n {
		if _, _, err := q.h.EnqueueJob(ctx, history.RunRow{AgentName: "a"}, json.RawMessage(payloadJSON)); err != nil {
			return err
		}
	}
	return nil
}

// payloadJSON is the input of a job.
const payloadJSON = `{"order":7,"customer":"a customer of some length","lines":[{"sku":"A-1001","count":2}]}`

func (q runQueue) work(n, workers int) error {
	var done atomic.Int64
	err := q.h.Work(ctx, history.WorkOptions{Parallel: workers, Drain: true}, func(ctx context.Context, r *history.Run) (json.RawMessage, error) {
		_, err := r.Input(ctx)
		done.Add(1)
		return nil, err
	})
	if err == nil && done.Load() != int64(n) {
		err = fmt.Errorf("%d of %d runs were done", done.Load(), n)
	}
	return err
}

func (q runQueue) start() (time.Duration, error) {
	limited, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	began, ended := make(chan time.Time, 1), make(chan error, 1)
	go func() {
		ended <- q.h.Work(limited, history.WorkOptions{}, func(context.Context, *history.Run) (json.RawMessage, error) {
			began <- time.Now()
			return nil, nil
		})
	}()
	time.Sleep(50 * time.Millisecond) // until it waits
	begun := time.Now()
	if err := q.enqueue(1); err != nil {
		return 0, err
	}
	at := <-began
	time.Sleep(20 * time.Millisecond) // until it has stored the end
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return 0, err
	}
	return at.Sub(begun), nil
}

type goqiteQueue struct {
	db *sql.DB
	q  *goqite.Queue
}

func newGoqite(path string) (*goqiteQueue, error) {
	db, err := openSQLite("sqlite3", path)
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(goqiteSchema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &goqiteQueue{db, goqite.New(goqite.NewOpts{DB: db, Name: "jobs", Timeout: time.Minute})}, nil
}

func (q *goqiteQueue) enqueue(n int) error {
	for range n {
		if _, err := jobs.Create(ctx, q.q, "job", goqite.Message{Body: []byte(payloadJSON)}); err != nil {
			return err
		}
	}
	return nil
}

// work takes jobs as fast as they can be had: a jobs.Runner waits 100 ms between two looks.
func (q *goqiteQueue) work(n, workers int) error {
	var done atomic.Int64
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for {
				m, err := q.q.Receive(ctx)
				if m == nil || err != nil {
					errs[i] = err
					return
				}
				done.Add(1)
				if err := q.q.Delete(ctx, m.ID); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	if done.Load() != int64(n) {
		errs = append(errs, fmt.Errorf("%d of %d jobs were done", done.Load(), n))
	}
	return errors.Join(errs...)
}

func (q *goqiteQueue) start() (time.Duration, error) {
	limited, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	began, ended := make(chan time.Time, 1), make(chan struct{})
	r := jobs.NewRunner(jobs.NewRunnerOpts{Limit: 1, Queue: q.q})
	r.Register("job", func(context.Context, []byte) error {
		began <- time.Now()
		return nil
	})
	go func() {
		r.Start(limited)
		close(ended)
	}()
	time.Sleep(50 * time.Millisecond) // until it waits
	begun := time.Now()
	if err := q.enqueue(1); err != nil {
		return 0, err
	}
	at := <-began
	time.Sleep(20 * time.Millisecond) // until it has stored the end
	stop()
	<-ended
	return at.Sub(begun), nil
}

// goqiteSchema is schema_sqlite.sql of goqite, which does not export it.
const goqiteSchema = `
create table goqite (
  id text primary key default ('m_' || lower(hex(randomblob(16)))),
  created text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  updated text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  queue text not null,
  body blob not null,
  timeout text not null default (strftime('%Y-%m-%dT%H:%M:%fZ')),
  received integer not null default 0,
  priority integer not null default 0
) strict;

create trigger goqite_updated_timestamp after update on goqite begin
  update goqite set updated = strftime('%Y-%m-%dT%H:%M:%fZ') where id = old.id;
end;

create index goqite_queue_priority_created_idx on goqite (queue, priority desc, created);
`
