// This test binary measures the queue of runs of a thread in PostgreSQL next to River, on the
// same server and in turn: jobs with 1 and 16 workers, enqueueing, and from enqueue to start,
// at no and at many finished jobs.
//
//	go test ./river -args -n jobs [-url postgres://…] [-rounds n] [-finished jobs]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"thread/engine"
	"thread/history"
	"thread/internal/address"
	"thread/internal/store"
	"thread/net/pgstore"
)

var ctx = context.Background()

// TestMain measures where -n is given.
func TestMain(*testing.M) {
	url := flag.String("url", "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable", "the database; two schemas are made in it and dropped")
	n := flag.Int("n", 0, "jobs of a round, such as 200")
	rounds := flag.Int("rounds", 7, "rounds of each")
	finished := flag.Int("finished", 0, "then again with so many finished jobs, such as 1000000")
	flag.Parse()
	if *n == 0 {
		return
	}
	if err := compare(*url, *n, *rounds, *finished); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// side is a queue of jobs that do nothing.
type side interface {
	enqueue() error
	enqueueMany(n int) error // all at once
	// finish stores jobs that have ended.
	finish(n int) error
	// work starts workers, that call began for each job, and returns what stops them.
	work(workers int, began func()) (stop func() error, err error)
}

func compare(url string, n, rounds, finished int) (err error) {
	schema := fmt.Sprintf("thread_river_%d", os.Getpid())
	pool, err := pgxpool.New(ctx, url+"&search_path="+schema)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return err
	}
	defer func() {
		_, dropped := pool.Exec(ctx, fmt.Sprintf("DROP SCHEMA %s CASCADE; DROP SCHEMA IF EXISTS %[1]s_t CASCADE", schema))
		err = errors.Join(err, dropped)
	}()
	theirs, err := newRiver(pool)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "river")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	address.SetDriver(driver{dir})
	ours := url + "&schema=" + schema + "_t&thread=compare"
	if err := (driver{}).Init(ctx, ours); err != nil {
		return err
	}
	h, err := history.Open(ctx, ours)
	if err != nil {
		return err
	}
	defer h.Close()
	sides := []side{runs{h}, theirs}
	fmt.Printf("%d jobs in a round, %d rounds of each\n", n, rounds)
	if err := rows(sides, n, rounds); err != nil || finished == 0 {
		return err
	}
	for _, s := range sides {
		if err := s.finish(finished); err != nil {
			return err
		}
	}
	fmt.Printf("the same with %d finished jobs\n", finished)
	return rows(sides, n, rounds)
}

func rows(sides []side, n, rounds int) error {
	for _, row := range []struct {
		name    string
		measure func(s side) (time.Duration, error)
	}{
		{"enqueue a job", func(s side) (time.Duration, error) {
			d, err := filled(s, n)
			return d, errors.Join(err, drained(s, n, 16))
		}},
		{"enqueue 1,000 jobs", func(s side) (time.Duration, error) {
			begun := time.Now()
			err := s.enqueueMany(1000)
			d := time.Since(begun)
			return d, errors.Join(err, drained(s, 1000, 16))
		}},
		{"a job, one worker", func(s side) (time.Duration, error) { return worked(s, n, 1) }},
		{"a job, 16 workers", func(s side) (time.Duration, error) { return worked(s, n, 16) }},
		{"from enqueue to the start", started},
	} {
		var times [2][]time.Duration
		for round := range rounds {
			for i := range 2 {
				which := (i + round) % 2
				d, err := row.measure(sides[which])
				if err != nil {
					return fmt.Errorf("%s: %w", row.name, err)
				}
				times[which] = append(times[which], d)
			}
		}
		a, b := median(times[0]), median(times[1])
		fmt.Printf("%-28s thread %10s   River %10s   %.2f of River's time (least %.2f)\n", row.name, a.Round(time.Microsecond), b.Round(time.Microsecond),
			float64(a)/float64(b), float64(slices.Min(times[0]))/float64(slices.Min(times[1])))
	}
	return nil
}

func median(list []time.Duration) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// filled enqueues n jobs.
func filled(s side, n int) (time.Duration, error) {
	begun := time.Now()
	for range n {
		if err := s.enqueue(); err != nil {
			return 0, err
		}
	}
	return time.Since(begun) / time.Duration(n), nil
}

// drained works on n jobs that are there.
func drained(s side, n, workers int) error {
	var done atomic.Int64
	all := make(chan struct{})
	stop, err := s.work(workers, func() {
		if done.Add(1) == int64(n) {
			close(all)
		}
	})
	if err != nil {
		return err
	}
	select {
	case <-all:
	case <-time.After(2 * time.Minute):
		err = fmt.Errorf("%d of %d jobs", done.Load(), n)
	}
	return errors.Join(err, stop())
}

// worked returns what a job takes that is there, from the start of the workers on.
func worked(s side, n, workers int) (time.Duration, error) {
	if _, err := filled(s, n); err != nil {
		return 0, err
	}
	begun := time.Now()
	err := drained(s, n, workers)
	return time.Since(begun) / time.Duration(n), err
}

// started returns how long it takes from the call that enqueues a job until a worker begins it.
func started(s side) (time.Duration, error) {
	began := make(chan time.Time, 1)
	stop, err := s.work(1, func() { began <- time.Now() })
	if err != nil {
		return 0, err
	}
	time.Sleep(300 * time.Millisecond) // until it waits
	begun := time.Now()
	err = s.enqueue()
	d := (<-began).Sub(begun)
	return d, errors.Join(err, stop())
}

const payload = `{"order":7,"customer":"a customer of some length","lines":[{"sku":"A-1001","count":2}]}`

// driver opens threads in PostgreSQL, with their local files in a directory.
type driver struct{ dir string }

func (d driver) Open(url string, opts []engine.Option) (*engine.Thread, error) {
	a, err := pgstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return engine.OpenStore(url, store.Place{Dir: filepath.Join(d.dir, "local")}, func(l store.Logic, wait time.Duration) store.Store {
		return pgstore.Open(a, pgstore.Options{Logic: l, LockTimeout: wait})
	}, opts...), nil
}

func (driver) Init(ctx context.Context, url string) error {
	a, err := pgstore.ParseURL(url)
	if err != nil {
		return err
	}
	return pgstore.Init(ctx, a)
}

type runs struct{ h *history.History }

func (r runs) enqueue() error {
	_, _, err := r.h.EnqueueJob(ctx, history.RunRow{AgentName: "a"}, json.RawMessage(payload))
	return err
}

func (r runs) enqueueMany(n int) error {
	list := make([]history.NewJob, n)
	for i := range list {
		list[i].AgentName, list[i].Input = "a", json.RawMessage(payload)
	}
	return r.h.EnqueueJobs(ctx, list)
}

func (r runs) finish(n int) error {
	for n > 0 {
		part := min(n, 1000)
		n -= part
		err := r.h.Update(ctx, func(tx *history.Tx) error {
			for range part {
				if err := tx.Put(&history.RunRow{AgentName: "a", Status: history.Completed}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r runs) work(workers int, began func()) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- r.h.Work(ctx, history.WorkOptions{Parallel: workers}, func(ctx context.Context, run *history.Run) (json.RawMessage, error) {
			_, err := run.Input(context.WithoutCancel(ctx))
			began()
			return nil, err
		})
	}()
	return func() error {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}, nil
}

// job is a job of River.
type job struct {
	Input json.RawMessage `json:"input"`
}

func (job) Kind() string { return "job" }

type worker struct {
	river.WorkerDefaults[job]
	began func()
}

func (w *worker) Work(context.Context, *river.Job[job]) error {
	w.began()
	return nil
}

type riverQueue struct {
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
}

func newRiver(pool *pgxpool.Pool) (*riverQueue, error) {
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
	return &riverQueue{pool, c}, err
}

var quiet = slog.New(slog.DiscardHandler)

func (q *riverQueue) enqueue() error {
	_, err := q.insert.Insert(ctx, job{json.RawMessage(payload)}, nil)
	return err
}

func (q *riverQueue) enqueueMany(n int) error {
	list := make([]river.InsertManyParams, n)
	for i := range list {
		list[i].Args = job{json.RawMessage(payload)}
	}
	_, err := q.insert.InsertMany(ctx, list)
	return err
}

func (q *riverQueue) finish(n int) error {
	_, err := q.pool.Exec(ctx, `INSERT INTO river_job (args, attempt, attempted_at, finalized_at, kind, max_attempts, state)
		SELECT $1, 1, now(), now(), 'job', 25, 'completed' FROM generate_series(1, $2)`, `{"input":`+payload+`}`, n)
	return err
}

func (q *riverQueue) work(workers int, began func()) (func() error, error) {
	all := river.NewWorkers()
	river.AddWorker(all, &worker{began: began})
	c, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{Logger: quiet, Workers: all, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}})
	if err != nil {
		return nil, err
	}
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return c.Stop(ctx) }, nil
}
