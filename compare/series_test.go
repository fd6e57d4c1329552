//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"

	"thread/engine"
)

// series measures threads with many distinct series: addresses that carry the id of
// a message, as many as there are events at the most.
func (l *lab) series() error {
	for _, n := range []int{1000, 100_000, million} {
		if n = min(n, l.events); n < 1000 {
			continue
		}
		if err := l.seriesOf(n); err != nil {
			return err
		}
		if n == l.events {
			return nil
		}
	}
	return nil
}

// writeSeries writes as many events as the large thread has, in n series.
func (l *lab) writeSeries(n int) (string, error) {
	path := l.path("series.ndjson")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range l.events {
		kind := "message"
		if i%5 == 0 {
			kind = "record"
		}
		id := i % n
		fmt.Fprintf(w, `{"source":"external:mail:%08x:dm:user%d","type":"%s","content":"payload %d %s"}`+"\n", uint32(id)*2654435761, id%1000, kind, i, payload[8:])
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return path, f.Close()
}

func (l *lab) seriesOf(n int) error {
	lines, err := l.writeSeries(n)
	if err != nil {
		return err
	}
	in := func(what string) string { return fmt.Sprintf("%s series: %s", thousands(n), what) }
	dir, db := l.path("series"), l.path("series.db")
	defer os.RemoveAll(dir)
	defer os.Remove(db)
	if err := run("", l.thread, "init", dir); err != nil {
		return err
	}
	runs, err := l.measured(1,
		command{Args: []string{l.thread, "push", "--thread", dir, "--batch", "--quiet"}, Stdin: lines},
		command{Args: []string{l.self, workerVerb, "ingest", "sqlite3", db}, Stdin: lines})
	if err != nil {
		return err
	}
	l.paired(in("ingest"), runs[0].took, runs[1].took, "(C)", 0.5)
	for _, p := range []struct{ name, where string }{
		{"page, type = 'nope'", "type = 'nope'"},
		{"page, prefix LIKE, few match", "source LIKE 'external:mail:ffff%'"},
		{"page, prefix LIKE, all match", "source LIKE 'external:mail:%'"},
		{"page, suffix LIKE", "source LIKE '%:user77'"},
		{"page, suffix LIKE, none", "source LIKE '%:nobody'"},
		{"page, prefix LIKE AND type", "source LIKE 'external:mail:%' AND type = 'nope'"},
		{"page, no filter", ""},
	} {
		args := []string{l.thread, "peek", "--thread", dir, "--last-event-id", "0", "--limit", "100"}
		if p.where != "" {
			args = append(args, "--filter", p.where)
		}
		shell := l.selecting(p.where, 100)
		shell[2] = db
		runs, err := l.measured(10, command{Args: args}, command{Args: shell})
		if err != nil {
			return err
		}
		l.paired(in(p.name), runs[0].took, runs[1].took, "(shell)", 1.5)
	}
	if err := subscribeTwenty(dir); err != nil {
		return err
	}
	check := command{Args: []string{l.thread, "check", "--thread", dir}}
	if runs, err = l.measured(3, command{Args: []string{l.thread, "info", "--thread", dir}}, check); err != nil {
		return err
	}
	took := float64(median(runs[0].took).Microseconds()) / 1000
	l.add(row{what: in("`thread info` with 20 consumers"), ours: show(median(runs[0].took)), theirs: "–", figure: took, asked: 1000, unit: "ms"})
	peak := float64(median(runs[1].peak)) / 1024
	l.add(row{what: in("peak resident memory of `thread check`"), ours: mib(median(runs[1].peak)), theirs: "–", figure: peak, asked: 200, unit: "MiB"})
	if err := run("", l.thread, "prune", "--thread", dir, "--keep-last", "1000", "--force"); err != nil {
		return err
	}
	info, err := os.Stat(dir + "/events.db")
	if err != nil {
		return err
	}
	l.add(row{what: in("database after a prune to 1,000 events"), ours: fmt.Sprintf("%.2f MB", float64(info.Size())/1e6), theirs: "–", figure: float64(info.Size()) / 1e6, unit: "MB"})
	return nil
}

// subscribeTwenty subscribes consumers without starting their handlers.
func subscribeTwenty(dir string) error {
	t, err := engine.Open(dir)
	if err != nil {
		return err
	}
	filters := []string{"source LIKE 'external:mail:%' AND type = 'message'", "source LIKE '%:user77'", "type = 'nope'", "source LIKE '%:nobody'", "source LIKE 'external:mail:ff%'"}
	return t.Update(ctx, func(tx *engine.Tx) error {
		for i := range 20 {
			if err := tx.Subscribe(engine.Subscription{Consumer: fmt.Sprint("c", i), Handler: "false", Filter: &filters[i%5]}); err != nil {
				return err
			}
		}
		return nil
	})
}
