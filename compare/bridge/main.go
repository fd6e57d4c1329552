// Command bridge measures how fast messages come in from Kafka: by a trigger into a
// thread, and by a consumer as short as one can be into SQLite (C), as durable, with
// its offset in the same transaction. Both read the same topic of a broker in this
// process, in turn, so that a busy machine slows both. The time of the CPU, which the
// broker has a part in, says more on a busy machine than rates do.
//
//	CGO_ENABLED=1 go run ./bridge [-n messages] [-rounds n]
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	_ "github.com/mattn/go-sqlite3" // driver "sqlite3"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"thread/bridge/adapter"
	_ "thread/bridge/kafka"
	"thread/bridge/trigger"
	"thread/engine"
)

func main() {
	n := flag.Int("n", 60_000, "messages of a run")
	rounds := flag.Int("rounds", 5, "runs of each, in turn")
	flag.Parse()
	if err := measure(*n, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func measure(n, rounds int) error {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := produce(c.ListenAddrs(), n); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "compare-bridge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, size := range []int{1000, 5000} {
		var ours, ledger, theirs []float64
		var beside, cost []float64
		spent := map[string][]float64{} // microseconds of CPU for a message, the broker's in this process included
		for round := range rounds {
			run := func(name string, fn func(servers []string, path, group string, n, size int) (float64, error)) (float64, error) {
				id := fmt.Sprintf("%s-%d-%d", name, size, round)
				before := cpu()
				rate, err := fn(c.ListenAddrs(), filepath.Join(dir, id), id, n, size)
				spent[name] = append(spent[name], float64((cpu()-before).Nanoseconds())/1e3/float64(n))
				return rate, err
			}
			a, err := run("thread", byTrigger(false))
			if err != nil {
				return err
			}
			b, err := run("sqlite", intoSQLite)
			if err != nil {
				return err
			}
			l, err := run("ledger", byTrigger(true))
			if err != nil {
				return err
			}
			ours, theirs, ledger = append(ours, a), append(theirs, b), append(ledger, l)
			beside, cost = append(beside, a/b), append(cost, 100*(1-l/a))
		}
		fmt.Printf("%5d per transaction: %.0f/s, with the ledger %.0f/s; SQLite %.0f/s: %.2f times that; the ledger costs %.0f %% (medians of %d)\n",
			size, median(ours), median(ledger), median(theirs), median(beside), median(cost), rounds)
		fmt.Printf("      CPU for a message: %.1f µs, with the ledger %.1f; SQLite %.1f\n", median(spent["thread"]), median(spent["ledger"]), median(spent["sqlite"]))
	}
	return nil
}

// cpu is the user and system time of this process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // of oneself: no error
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func produce(servers []string, n int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(servers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: "orders", Value: fmt.Appendf(nil, `{"n":%d,"text":%q}`, i, strings.Repeat("x", 270))})
	}
	return cl.ProduceSync(context.Background(), rs...).FirstErr()
}

// pace measures from the first transaction on: to join a group takes a while.
type pace struct {
	begun time.Time
	first int
}

func (p *pace) note(stored int) {
	if p.begun.IsZero() {
		p.begun, p.first = time.Now(), stored
	}
}

func (p *pace) rate(n int) float64 { return float64(n-p.first) / time.Since(p.begun).Seconds() }

func byTrigger(ledger bool) func([]string, string, string, int, int) (float64, error) {
	return func(servers []string, path, group string, n, size int) (rate float64, err error) {
		spec, err := adapter.Find("kafka")
		if err != nil {
			return 0, err
		}
		c := trigger.NewConfig()
		c.Name, c.Queue, c.Group, c.Adapter, c.MaxBatch, c.Ledger = group, "orders", group, "kafka", size, ledger
		c.Complete()
		src, err := spec.Source(&adapter.Settings{Name: group, Queue: "orders", Group: group, Concurrency: c.Concurrency, MaxBatch: size, Keys: spec.Keys,
			Connection: map[string]string{"brokers": strings.Join(servers, ",")}})
		if err != nil {
			return 0, err
		}
		th, err := engine.Init(path, engine.WithKeepOpen()) // as thread-bridge does
		if err != nil {
			return 0, err
		}
		var p pace
		done := make(chan error, 1)
		tr, err := trigger.New(th, src, c, trigger.Options{OnStored: func(string, bool) {
			info, err := th.Info(context.Background())
			if err != nil {
				done <- err
				return
			}
			p.note(int(info.EventCount))
			if int(info.EventCount) == n {
				rate = p.rate(n)
				done <- nil
			}
		}})
		if err != nil {
			return 0, err
		}
		if err := tr.Start(context.Background()); err != nil {
			return 0, err
		}
		if err := <-done; err != nil {
			return 0, err
		}
		return rate, tr.Stop()
	}
}

// schema has the columns and indexes of events, and where the consumer stands.
const schema = `
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  source TEXT NOT NULL, type TEXT NOT NULL, subtype TEXT, content TEXT NOT NULL);
CREATE INDEX idx_events_source ON events(source);
CREATE INDEX idx_events_type ON events(type);
CREATE TABLE positions (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part));`

func intoSQLite(servers []string, path, group string, n, size int) (float64, error) {
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range []string{"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", schema} {
		if _, err := db.Exec(s); err != nil {
			return 0, err
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	var p pace
	for stored := 0; ; {
		fetches := cl.PollRecords(context.Background(), size)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		rs := fetches.Records()
		if len(rs) == 0 {
			continue
		}
		if err := insert(db, rs); err != nil {
			return 0, err
		}
		stored += len(rs)
		p.note(stored)
		if stored == n {
			return p.rate(n), nil
		}
		if err := cl.CommitRecords(context.Background(), rs...); err != nil {
			return 0, err
		}
	}
}

func insert(db *sql.DB, rs []*kgo.Record) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	add, err := tx.Prepare(`INSERT INTO events (source, type, content) VALUES (?, ?, ?)`)
	if err != nil {
		return err
	}
	for _, r := range rs {
		if _, err := add.Exec("kafka:"+r.Topic, "queue_message", string(r.Value)); err != nil {
			return err
		}
	}
	last := rs[len(rs)-1]
	if _, err := tx.Exec(`INSERT INTO positions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next`, last.Topic, last.Partition, last.Offset+1); err != nil {
		return err
	}
	return tx.Commit()
}
