//go:build linux

package main

import (
	"database/sql"
	"fmt"
	"sync"
	"time"

	"thread/engine"
	"thread/event"
)

// inProcess compares the library with the drivers, without processes.
func (l *lab) inProcess() error {
	if err := l.anythingNew(); err != nil {
		return err
	}
	if err := l.pushInProcess(); err != nil {
		return err
	}
	return l.together()
}

// alternate runs the functions in turn and returns what each took in each round.
func alternate(rounds int, fns ...func() error) ([][]time.Duration, error) {
	took := make([][]time.Duration, len(fns))
	for i := range rounds + 1 {
		for j, fn := range fns {
			start := time.Now()
			if err := fn(); err != nil {
				return nil, err
			}
			if i > 0 {
				took[j] = append(took[j], time.Since(start))
			}
		}
	}
	return took, nil
}

// anythingNew asks whether there is an unread event, where all are unread and none
// matches.
func (l *lab) anythingNew() error {
	const where = "source LIKE '%:nobody'"
	t, err := engine.Open(l.big)
	if err != nil {
		return err
	}
	ours := func() error {
		found, err := t.Peek(ctx, engine.Query{Limit: 1, Filter: where})
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("found event %d", found[0].ID)
		}
		return err
	}
	theirs := func(driver string) (func() error, func() error, error) {
		db, err := openSQLite(driver, l.sqliteBig)
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			var id int64
			err := db.QueryRow("SELECT id FROM events WHERE id > 0 AND (" + where + ") ORDER BY id LIMIT 1").Scan(&id)
			if err == sql.ErrNoRows {
				return nil
			}
			return fmt.Errorf("found event %d, %v", id, err)
		}, db.Close, nil
	}
	inC, closeC, err := theirs("sqlite3")
	if err != nil {
		return err
	}
	defer closeC()
	inGo, closeGo, err := theirs("sqlite")
	if err != nil {
		return err
	}
	defer closeGo()
	m, err := alternate(10, ours, inC, inGo)
	if err != nil {
		return err
	}
	l.paired(fmt.Sprintf("anything new? %s unread, a LIKE that matches none", thousands(l.events)), m[0], m[1], "(C)", 0.01)
	l.paired("the same next to SQLite in Go", m[0], m[2], "(Go)", 0)
	return nil
}

func (l *lab) pushInProcess() error {
	t, err := engine.Open(l.few)
	if err != nil {
		return err
	}
	kept, err := engine.Open(l.few, engine.WithKeepOpen())
	if err != nil {
		return err
	}
	defer kept.Close()
	var fns []func() error
	for _, t := range []*engine.Thread{t, kept} {
		fns = append(fns, func() error {
			_, err := t.Push(ctx, event.Draft{Source: "self", Type: "message", Content: payload})
			return err
		})
	}
	for _, driver := range []string{"sqlite3", "sqlite"} {
		db, err := openSQLite(driver, l.path("push-"+driver+".db"))
		if err != nil {
			return err
		}
		defer db.Close()
		stmt, err := db.Prepare(insert)
		if err != nil {
			return err
		}
		fns = append(fns, func() error {
			_, err := stmt.Exec("self", "message", nil, payload)
			return err
		})
	}
	m, err := alternate(2*l.rounds, fns...)
	if err != nil {
		return err
	}
	l.paired("one durable push in process, which opens and closes the file each time", m[0], m[2], "(C, kept open)", 0)
	l.paired("the same with WithKeepOpen", m[1], m[2], "(C, kept open)", 1)
	l.paired("the same next to SQLite in Go", m[1], m[3], "(Go, kept open)", 0)
	return nil
}

// together is how many durable pushes of goroutines share their syncs.
func (l *lab) together() error {
	t, err := engine.Open(l.few)
	if err != nil {
		return err
	}
	rate := func(goroutines, each int) (float64, error) {
		var wg sync.WaitGroup
		errs := make([]error, goroutines)
		start := time.Now()
		for g := range goroutines {
			wg.Go(func() {
				for range each {
					if _, err := t.Push(ctx, event.Draft{Source: "self", Type: "message", Content: payload}); err != nil {
						errs[g] = err
						return
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(start)
		for _, err := range errs {
			if err != nil {
				return 0, err
			}
		}
		return float64(goroutines*each) / took.Seconds(), nil
	}
	var one, many []int64
	for range 5 {
		r, err := rate(1, 2*l.rounds)
		if err != nil {
			return err
		}
		one = append(one, int64(r))
		if r, err = rate(64, 2*l.rounds); err != nil {
			return err
		}
		many = append(many, int64(r))
	}
	a, b := median(one), median(many)
	l.add(row{what: "durable pushes per second, library, 64 goroutines next to one", ours: fmt.Sprintf("%d/s", b), theirs: fmt.Sprintf("%d/s (one)", a), figure: float64(b) / float64(a), asked: 12, atLeast: true})
	return nil
}

// subscribeMany subscribes the consumers from first to n, whose filters match nothing.
func subscribeMany(dir string, first, n int) error {
	t, err := engine.Open(dir)
	if err != nil {
		return err
	}
	return t.Update(ctx, func(tx *engine.Tx) error {
		for i := first; i < n; i++ {
			where := fmt.Sprintf("source LIKE 'team-%d:%%' AND type = 'message'", i)
			if err := tx.Subscribe(engine.Subscription{Consumer: fmt.Sprint("consumer-", i), Handler: "false", Filter: &where}); err != nil {
				return err
			}
		}
		return nil
	})
}
