// This test binary measures how fast messages come in from Kafka: by a trigger into a
// thread, as thread-bridge runs it by default, with the ledger and with its log in a
// file, and by a consumer as short as one can be into SQLite (C), as durable, with its
// offset in the same transaction. With random message ids the consumer has a unique
// column for them. Each run is a separate process and reads the same topic of a
// broker in this process; runs take turns, so that a busy machine slows both.
//
//	CGO_ENABLED=1 go test ./bridge -args -n messages [-rounds n] [-dir directory]
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3" // driver "sqlite3"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"thread/bridge/adapter"
	_ "thread/bridge/kafka"
	"thread/bridge/trigger"
	"thread/engine"
)

// TestMain measures where -n is given.
func TestMain(*testing.M) {
	n := flag.Int("n", 0, "messages of a run, such as 60000")
	rounds := flag.Int("rounds", 5, "runs of each, in turn")
	dir := flag.String("dir", os.Getenv("COMPARE_DIR"), "where the databases are made; by default the directory for temporary files")
	profile := flag.String("profile", "", "directory for profiles of the CPU, one for each run")
	one := flag.String("one", "", "of the program's own: the run of this process, as JSON")
	flag.Parse()
	err := error(nil)
	switch {
	case *one != "":
		err = child(*one)
	case *n > 0:
		err = measure(*n, *rounds, *dir, *profile)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// run is one run, and how it came out.
type run struct {
	Kind    string   // thread or sqlite
	Servers []string // of the broker
	Topic   string
	Path    string
	Group   string
	N, Size int
	IDs     bool
	Profile string

	Rate float64 // messages a second
	CPU  float64 // microseconds for a message
	Peak int64   // resident memory, bytes, pages of the database included
	Heap int64   // the part of Peak that is not pages of files
}

// sizes are messages in a transaction.
var sizes = []int{100, 1000, 5000}

func measure(n, rounds int, base, profile string) error {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "places", "ids"))
	if err != nil {
		return err
	}
	defer c.Close()
	dir, err := os.MkdirTemp(base, "compare-bridge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Println("| messages are known by | in a transaction | thread | SQLite | thread / SQLite | asked | CPU for a message | peak memory, without pages of files | asked |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, ids := range []bool{false, true} {
		topic := "places"
		if ids {
			topic = "ids"
		}
		if err := produce(c.ListenAddrs(), topic, n, ids); err != nil {
			return err
		}
		for _, size := range sizes {
			r := run{Servers: c.ListenAddrs(), Topic: topic, N: n, Size: size, IDs: ids}
			if err := alternate(r, rounds, dir, profile); err != nil {
				return err
			}
		}
	}
	return nil
}

// alternate runs both in turn and prints a line of the table.
func alternate(r run, rounds int, dir, profile string) error {
	var ours, theirs [][]float64
	for round := range rounds {
		var both [2]run
		for i, kind := range []string{"thread", "sqlite"} {
			one := r
			one.Kind, one.Group = kind, fmt.Sprintf("%s-%s-%d-%d", kind, r.Topic, r.Size, round)
			one.Path = filepath.Join(dir, one.Group)
			if profile != "" {
				one.Profile = filepath.Join(profile, one.Group+".pprof")
			}
			var err error
			if both[i], err = start(one); err != nil {
				return err
			}
			if err := os.RemoveAll(one.Path); err != nil {
				return err
			}
		}
		a, b := both[0], both[1]
		ours = append(ours, []float64{a.Rate, a.CPU, float64(a.Peak), float64(a.Heap), a.Rate / b.Rate})
		theirs = append(theirs, []float64{b.Rate, b.CPU, float64(b.Peak), float64(b.Heap)})
	}
	known, asked := "position", 0.9
	if r.IDs {
		known, asked = "random id", 0.8
	}
	const mib = 1 << 20
	fmt.Printf("| %s | %d | %.0f/s | %.0f/s | %.2f | ≥ %.1f%s | %.1f µs, SQLite %.1f µs | %.0f MiB, %.0f; SQLite %.0f, %.0f | ≤ 128%s |\n", known, r.Size,
		median(ours, 0), median(theirs, 0), median(ours, 4), asked, missed(median(ours, 4) < asked), median(ours, 1), median(theirs, 1),
		median(ours, 2)/mib, median(ours, 3)/mib, median(theirs, 2)/mib, median(theirs, 3)/mib, missed(median(ours, 3) > 128*mib))
	return nil
}

func missed(is bool) string {
	if is {
		return " missed"
	}
	return ""
}

// start runs r in a separate process.
func start(r run) (run, error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	ask, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	cmd := exec.Command(self, "-one", string(ask))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, err
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	r.CPU = float64((used.Utime.Nano()+used.Stime.Nano())/1e3) / float64(r.N)
	r.Peak = used.Maxrss << 10
	return r, nil
}

// child does what ask says and prints how it came out.
func child(ask string) error {
	var r run
	if err := json.Unmarshal([]byte(ask), &r); err != nil {
		return err
	}
	if r.Profile != "" {
		f, err := os.Create(r.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ended := make(chan struct{})
	heap := make(chan int64)
	go func() { heap <- anonymous(ended) }()
	do := intoSQLite
	if r.Kind == "thread" {
		do = byTrigger
	}
	err := do(&r)
	close(ended)
	r.Heap = <-heap
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(&r))
}

// anonymous returns the largest resident memory that is not pages of files.
func anonymous(ended <-chan struct{}) (most int64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return 0
		}
		_, after, _ := bytes.Cut(text, []byte("RssAnon:"))
		kb := int64(0)
		_, _ = fmt.Sscan(string(after), &kb) // without the line 0
		most = max(most, kb<<10)
		select {
		case <-ended:
			return most
		case <-tick.C:
		}
	}
}

// median is the median of a column.
func median(rows [][]float64, column int) float64 {
	var list []float64
	for _, r := range rows {
		list = append(list, r[column])
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func produce(servers []string, topic string, n int, ids bool) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(servers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	var rs []*kgo.Record
	for i := range n {
		r := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, `{"n":%d,"text":%q}`, i, strings.Repeat("x", 270))}
		if ids {
			r.Headers = []kgo.RecordHeader{{Key: trigger.HeaderMessageID, Value: []byte(rand.Text())}}
		}
		rs = append(rs, r)
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

// byTrigger is the trigger with the defaults of thread-bridge.
func byTrigger(r *run) error {
	spec, err := adapter.Find("kafka")
	if err != nil {
		return err
	}
	c := trigger.NewConfig()
	c.Name, c.Queue, c.Group, c.Adapter, c.MaxBatch = r.Group, r.Topic, r.Group, "kafka", r.Size
	c.Complete()
	src, err := spec.Source(&adapter.Settings{Name: r.Group, Queue: r.Topic, Group: r.Group, Concurrency: c.Concurrency, MaxBatch: r.Size, Keys: spec.Keys,
		Connection: map[string]string{"brokers": strings.Join(r.Servers, ",")}})
	if err != nil {
		return err
	}
	th, err := engine.Init(r.Path, engine.WithKeepOpen())
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.Path, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	var p pace
	done := make(chan error, 1)
	tr, err := trigger.New(th, src, c, trigger.Options{Log: slog.New(slog.NewTextHandler(log, nil)), OnStored: func(string, bool) {
		info, err := th.Info(context.Background())
		if err != nil {
			done <- err
			return
		}
		p.note(int(info.EventCount))
		if int(info.EventCount) == r.N {
			r.Rate = p.rate(r.N)
			done <- nil
		}
	}})
	if err != nil {
		return err
	}
	if err := tr.Start(context.Background()); err != nil {
		return err
	}
	return errors.Join(<-done, tr.Stop())
}

// schema has the columns and indexes of events, and where the consumer stands.
const schema = `
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, created_at TEXT NOT NULL DEFAULT (strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', 'now')),
  source TEXT NOT NULL, type TEXT NOT NULL, subtype TEXT, content TEXT NOT NULL, message_id TEXT%s);
CREATE INDEX idx_events_source ON events(source);
CREATE INDEX idx_events_type ON events(type);
CREATE TABLE positions (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part));`

func intoSQLite(r *run) error {
	db, err := sql.Open("sqlite3", r.Path)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	unique := ""
	if r.IDs {
		unique = " UNIQUE"
	}
	for _, s := range []string{"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", fmt.Sprintf(schema, unique)} {
		if _, err := db.Exec(s); err != nil {
			return err
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.Servers...), kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	var p pace
	for stored := 0; ; {
		fetches := cl.PollRecords(context.Background(), r.Size)
		if err := fetches.Err(); err != nil {
			return err
		}
		rs := fetches.Records()
		if len(rs) == 0 {
			continue
		}
		if err := insert(db, rs, r.IDs); err != nil {
			return err
		}
		stored += len(rs)
		p.note(stored)
		if stored == r.N {
			r.Rate = p.rate(r.N)
			return nil
		}
		if err := cl.CommitRecords(context.Background(), rs...); err != nil {
			return err
		}
	}
}

func insert(db *sql.DB, rs []*kgo.Record, ids bool) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	add, err := tx.Prepare(`INSERT INTO events (source, type, content, message_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`)
	if err != nil {
		return err
	}
	for _, r := range rs {
		var id any
		if ids {
			id = string(r.Headers[0].Value)
		}
		if _, err := add.Exec("kafka:"+r.Topic, "queue_message", string(r.Value), id); err != nil {
			return err
		}
	}
	last := rs[len(rs)-1]
	if _, err := tx.Exec(`INSERT INTO positions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next`, last.Topic, last.Partition, last.Offset+1); err != nil {
		return err
	}
	return tx.Commit()
}
