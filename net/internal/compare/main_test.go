// This test binary measures a thread in PostgreSQL next to a table of jobs, as River has
// one, in plain SQL on the same server: what is stored is as durable, and each side has
// one connection that stays open, or many that push at once. The rounds of both alternate, so that a busy machine
// slows both.
//
//	go test ./internal/compare -args -n rows [-url postgres://…] [-rounds n]
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain measures where -n is given.
func TestMain(*testing.M) {
	url := flag.String("url", "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable", "the database; a schema is made in it and dropped")
	n := flag.Int("n", 0, "rows of a round, such as 1000")
	rounds := flag.Int("rounds", 11, "rounds of each")
	flag.Parse()
	if *n == 0 {
		return
	}
	if err := run(context.Background(), os.Stdout, *url, *n, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// side does the same work as the other one. What it is given is done when it returns.
type side interface {
	push(ctx context.Context) error
	pushBatch(ctx context.Context, n int) error
	// another returns what pushes over a separate connection, which end closes.
	another(ctx context.Context) (push func(ctx context.Context) error, end func(), err error)
	// pop takes up to n and settles them.
	pop(ctx context.Context, n int) (int, error)
	// work takes one and settles it, and says whether there was one.
	work(ctx context.Context) (bool, error)
	// waiting says whether there is something to take.
	waiting(ctx context.Context) (bool, error)
	// wake returns how long another connection waited for what was pushed.
	wake(ctx context.Context) (time.Duration, error)
	close() error
}

const content = `{"order":7,"customer":"a customer of some length","lines":[{"sku":"A-1001","count":2},{"sku":"B-2002","count":1}],"note":"what is pushed has about 230 bytes, which is what agents and shops send each other most"}`

func run(ctx context.Context, out io.Writer, url string, n, rounds int) (err error) {
	if strings.Contains(url, "?") {
		url += "&"
	} else {
		url += "?"
	}
	schema := fmt.Sprintf("thread_compare_%d", os.Getpid())
	table, err := newTable(ctx, url, schema+"_jobs")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.drop(ctx, schema)) }()
	ours, err := newThread(ctx, url+"schema="+schema+"&thread=compare")
	if err != nil {
		return err
	}
	defer ours.close()
	for _, s := range []side{ours, table} {
		if err := s.pushBatch(ctx, n); err != nil { // both know all statements
			return err
		}
		if err := empty(ctx, s); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d rows of %d bytes in a round, %d rounds of each\n", n, len(content), rounds)
	for _, row := range rows(n) {
		var times [2][]time.Duration
		for round := range rounds {
			for i := range 2 {
				which := (i + round) % 2
				d, err := row.measure(ctx, []side{ours, table}[which])
				if err != nil {
					return fmt.Errorf("%s: %w", row.name, err)
				}
				times[which] = append(times[which], d)
			}
		}
		a, b := median(times[0]), median(times[1])
		fmt.Fprintf(out, "%-28s thread %10s   table %10s   %.2f of the table's time (least %.2f)\n", row.name, a.Round(time.Microsecond), b.Round(time.Microsecond),
			float64(a)/float64(b), float64(slices.Min(times[0]))/float64(slices.Min(times[1])))
	}
	return nil
}

func median(list []time.Duration) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

type row struct {
	name    string
	measure func(ctx context.Context, s side) (time.Duration, error) // of one
}

// rows leave nothing that waits.
func rows(n int) []row {
	each := func(count int, s side, ctx context.Context, do func() error) (time.Duration, error) {
		begun := time.Now()
		for range count {
			if err := do(); err != nil {
				return 0, err
			}
		}
		d := time.Since(begun) / time.Duration(count)
		return d, empty(ctx, s)
	}
	filled := func(ctx context.Context, s side, do func() (int, error)) (time.Duration, error) {
		if err := s.pushBatch(ctx, n); err != nil {
			return 0, err
		}
		begun, done := time.Now(), 0
		for done < n {
			k, err := do()
			if err != nil {
				return 0, err
			}
			if k == 0 {
				return 0, fmt.Errorf("%d of %d were there", done, n)
			}
			done += k
		}
		d := time.Since(begun) / time.Duration(n)
		return d, empty(ctx, s)
	}
	return []row{
		{"push, one", func(ctx context.Context, s side) (time.Duration, error) {
			return each(n/10, s, ctx, func() error { return s.push(ctx) })
		}},
		{"push, in one batch", func(ctx context.Context, s side) (time.Duration, error) {
			d, err := each(1, s, ctx, func() error { return s.pushBatch(ctx, n) })
			return d / time.Duration(n), err
		}},
		{fmt.Sprintf("push, %d hosts at once", hosts), func(ctx context.Context, s side) (time.Duration, error) {
			d, err := crowd(ctx, s, n/hosts+1)
			return d, cmp.Or(err, empty(ctx, s))
		}},
		{"pop, a hundred at once", func(ctx context.Context, s side) (time.Duration, error) {
			return filled(ctx, s, func() (int, error) { return s.pop(ctx, 100) })
		}},
		{"drain, one by one", func(ctx context.Context, s side) (time.Duration, error) {
			return filled(ctx, s, func() (int, error) {
				more, err := s.work(ctx)
				if more {
					return 1, err
				}
				return 0, err
			})
		}},
		{"anything new? (no)", func(ctx context.Context, s side) (time.Duration, error) {
			return each(100, s, ctx, func() error {
				is, err := s.waiting(ctx)
				if is {
					err = cmp.Or(err, errors.New("there is"))
				}
				return err
			})
		}},
		{"wake-up, until it is read", func(ctx context.Context, s side) (time.Duration, error) {
			d, err := s.wake(ctx)
			return d, cmp.Or(err, empty(ctx, s))
		}},
	}
}

// hosts is how many push at once, each over a separate connection.
const hosts = 64

// crowd returns what a push takes while all hosts push that many one after the other.
func crowd(ctx context.Context, s side, each int) (time.Duration, error) {
	var pushes [hosts]func(context.Context) error
	for i := range pushes {
		push, end, err := s.another(ctx)
		if err != nil {
			return 0, err
		}
		defer end()
		if err := push(ctx); err != nil { // it is connected
			return 0, err
		}
		pushes[i] = push
	}
	errs := make([]error, hosts)
	var wg sync.WaitGroup
	begun := time.Now()
	for i, push := range pushes {
		wg.Go(func() {
			for range each {
				if err := push(ctx); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun) / time.Duration(hosts*each), errors.Join(errs...)
}

// empty takes what is left.
func empty(ctx context.Context, s side) error {
	for {
		if n, err := s.pop(ctx, 1000); n == 0 || err != nil {
			return err
		}
	}
}

// wakeOf returns how long it took from the moment that push was called until listen, which was
// ready, got what was pushed.
func wakeOf(ctx context.Context, listen func(ctx context.Context, ready, got func()) error, push func(ctx context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	var at time.Time
	go func() { ended <- listen(ctx, func() { close(ready) }, func() { at = time.Now() }) }()
	select {
	case <-ready:
	case err := <-ended:
		return 0, err
	}
	begun := time.Now()
	if err := push(ctx); err != nil {
		return 0, err
	}
	err := <-ended
	return at.Sub(begun), err
}
