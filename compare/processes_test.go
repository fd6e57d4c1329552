//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// process is what the runs of one command cost, in the order of the rounds.
type process struct {
	took          []time.Duration
	peak, written []int64
}

// command is measure.Command.
type command struct {
	Args  []string
	Stdin string
	Pipe  bool
	Env   []string
	Stamp string
	Pause time.Duration
}

// measured runs the commands in turn, each rounds times.
func (l *lab) measured(rounds int, commands ...command) ([]process, error) {
	// The log is of one size in every step: none is rotated, none is long.
	for _, dir := range []string{l.big, l.few} {
		if err := os.Remove(filepath.Join(dir, "logs", "thread.log")); dir != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	job, err := json.Marshal(struct {
		Rounds, Warm int
		Commands     []command
	}{rounds, min(3, rounds-1), commands})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(l.measure)
	cmd.Stdin = bytes.NewReader(job)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var runs [][]struct{ Nanoseconds, PeakKiB, Written int64 }
	if err := json.Unmarshal(out, &runs); err != nil {
		return nil, err
	}
	all := make([]process, len(runs))
	for i := range runs {
		for _, r := range runs[i] {
			all[i].took = append(all[i].took, time.Duration(r.Nanoseconds))
			all[i].peak = append(all[i].peak, r.PeakKiB)
			all[i].written = append(all[i].written, r.Written)
		}
	}
	return all, nil
}

// payload is the content of an event.
var payload = "payload " + strings.Repeat("x", 220)

// writeLines writes n events as NDJSON: 200 sources, 4 kinds of type and subtype.
func (l *lab) writeLines(name string, n int) (string, error) {
	path := l.path(name)
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	kinds := []string{`"message","subtype":null`, `"record","subtype":"toolcall"`, `"record","subtype":"decision"`, `"note","subtype":null`}
	random := uint32(1)
	for i := range n {
		random = random*1664525 + 1013904223 // the same events in every run
		source := fmt.Sprintf("internal:dm:default:agent%d", random>>16%199)
		if random>>16%200 == 199 {
			source = alice
		}
		fmt.Fprintf(w, `{"source":"%s","type":%s,"content":"payload %d %s"}`+"\n", source, kinds[random>>24%4], i, payload[8:])
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return path, f.Close()
}

// alice is one source in 200, and the only one that ends so.
const alice = "external:telegram:tg-main:dm:alice:alice"

func (l *lab) ingest() (err error) {
	if l.lines, err = l.writeLines("events.ndjson", l.events); err != nil {
		return err
	}
	fewLines, err := l.writeLines("few.ndjson", 1000)
	if err != nil {
		return err
	}
	l.big, l.few = l.path("big"), l.path("few")
	l.sqliteBig, l.sqlite = l.path("big.db"), l.path("small.db")
	if err := run("", l.thread, "init", l.few); err != nil {
		return err
	}
	if err := run(fewLines, l.thread, "push", "--thread", l.few, "--batch", "--quiet"); err != nil {
		return err
	}
	if err := run(fewLines, l.self, workerVerb, "ingest", "sqlite3", l.sqlite); err != nil {
		return err
	}
	if err := run("", l.thread, "init", l.big); err != nil {
		return err
	}
	push := command{Args: []string{l.thread, "push", "--thread", l.big, "--batch", "--quiet"}, Stdin: l.lines}
	inC := command{Args: []string{l.self, workerVerb, "ingest", "sqlite3", l.sqliteBig}, Stdin: l.lines}
	inGo := command{Args: []string{l.self, workerVerb, "ingest", "sqlite", l.path("modern.db")}, Stdin: l.lines}
	runs, err := l.measured(1, push, inC, inGo)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("ingest of %s events from NDJSON, one atomic batch next to transactions of 1000, whole process", thousands(l.events))
	l.paired(what, runs[0].took, runs[1].took, "(C)", 0.2)
	l.paired("the same next to SQLite in Go", runs[0].took, runs[2].took, "(Go)", 0)
	if err := os.Remove(l.path("modern.db")); err != nil {
		return err
	}
	if err := l.ingestHeap(); err != nil {
		return err
	}
	l.add(row{what: "peak resident memory of it, pages of the database included", ours: mib(runs[0].peak[0]), theirs: mib(runs[1].peak[0]) + " (C)", figure: float64(runs[0].peak[0]) / float64(runs[1].peak[0])})
	return l.fileSize()
}

func mib(kib int64) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }

// ingestHeap runs the ingest once more, with the collector telling of itself.
func (l *lab) ingestHeap() error {
	dir := l.path("heap")
	if err := run("", l.thread, "init", dir); err != nil {
		return err
	}
	in, err := os.Open(l.lines)
	if err != nil {
		return err
	}
	defer in.Close()
	cmd := exec.Command(l.thread, "push", "--thread", dir, "--batch", "--quiet")
	cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1")
	cmd.Stdin = in
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, &trace)
	}
	peak := 4 // a smaller heap is never collected
	for _, m := range regexp.MustCompile(` (\d+)->(\d+)->\d+ MB`).FindAllStringSubmatch(trace.String(), -1) {
		for _, s := range m[1:] {
			if n, err := strconv.Atoi(s); err == nil {
				peak = max(peak, n)
			}
		}
	}
	l.add(row{what: "largest heap during it", ours: fmt.Sprintf("%d MB", peak), theirs: "–", figure: float64(peak), asked: 64, unit: "MB"})
	return os.RemoveAll(dir)
}

func (l *lab) fileSize() error {
	ours, err := os.Stat(l.big + "/events.db")
	if err != nil {
		return err
	}
	if err := run("", l.shell, l.sqliteBig, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return err
	}
	theirs, err := os.Stat(l.sqliteBig)
	if err != nil {
		return err
	}
	mb := func(info os.FileInfo) string { return fmt.Sprintf("%.1f MB", float64(info.Size())/1e6) }
	l.add(row{what: "size of the database", ours: mb(ours), theirs: mb(theirs), figure: float64(ours.Size()) / float64(theirs.Size()), asked: 0.75})
	return nil
}

func pushTo(thread, dir string) command {
	return command{Args: []string{thread, "push", "--thread", dir, "--source", "self", "--type", "message", "--content", payload}}
}

func (l *lab) push() error {
	shell := command{Args: []string{l.shell, l.sqlite, "PRAGMA synchronous=FULL; INSERT INTO events (source, type, content) VALUES ('self', 'message', '" + payload + "');"}}
	runs, err := l.measured(l.rounds, pushTo(l.thread, l.few), pushTo(l.thread, l.big), shell, command{Args: []string{l.empty}}, command{Args: []string{l.thread, "--version"}})
	if err != nil {
		return err
	}
	few, big, theirs, empty := runs[0].took, runs[1].took, runs[2].took, runs[3].took
	l.paired("`thread push`, whole process, durable", few, theirs, "(shell)", 0.65)
	l.paired("the same next to an empty static Go program", few, empty, "(empty)", 2.2)
	l.paired("`thread --version` next to the empty program", runs[4].took, empty, "(empty)", 0)
	l.paired(fmt.Sprintf("push with %s events stored, next to 1,000", thousands(l.events)), big, few, "(1,000)", 1.15)
	written, other := median(runs[0].written), median(runs[2].written)
	l.add(row{what: "bytes written by a push, events.jsonl included", ours: fmt.Sprint(written), theirs: fmt.Sprint(other) + " (shell)", figure: float64(written) / float64(other), asked: 1})
	peak := median(runs[1].peak)
	l.add(row{what: "peak resident memory of a push", ours: mib(peak), theirs: mib(median(runs[2].peak)) + " (shell)", figure: float64(peak) / 1024, asked: 8, unit: "MiB"})
	return nil
}

func (l *lab) peek(more ...string) []string {
	return append([]string{l.thread, "peek", "--thread", l.big, "--last-event-id", "0"}, more...)
}

// selecting is the same page from the sqlite3 shell.
func (l *lab) selecting(where string, limit int) []string {
	if where != "" {
		where = "AND (" + where + ") "
	}
	return []string{l.shell, "-json", l.sqliteBig, fmt.Sprintf("SELECT %s FROM events WHERE id > 0 %sORDER BY id LIMIT %d", columns, where, limit)}
}

func (l *lab) pages() error {
	last := fmt.Sprintf("content LIKE '%%payload %d %%'", l.events-1)
	for _, p := range []struct {
		name, where string
		asked       float64
		rounds      int
	}{
		{"no filter", "", 0.75, l.rounds},
		{"type =", "type = 'record'", 0.75, l.rounds},
		{"source =", "source = '" + alice + "'", 0.75, l.rounds},
		{"source = AND type =", "source = '" + alice + "' AND type = 'record'", 0.15, l.rounds},
		{"source LIKE '%:alice'", "source LIKE '%:alice'", 0.75, l.rounds},
		{"source LIKE, none", "source LIKE '%:nobody'", 0, 10},
		{"content LIKE, the last one", last, 0, 10},
		{"created_at >=, none", "created_at >= '2999'", 0, 10},
	} {
		args := l.peek("--limit", "100")
		if p.where != "" {
			args = append(args, "--filter", p.where)
		}
		runs, err := l.measured(p.rounds, command{Args: args}, command{Args: l.selecting(p.where, 100)})
		if err != nil {
			return err
		}
		l.paired("page of 100, whole process: "+p.name, runs[0].took, runs[1].took, "(shell)", p.asked)
		if p.where == "" {
			peak := median(runs[0].peak)
			l.add(row{what: "peak resident memory of it", ours: mib(peak), theirs: mib(median(runs[1].peak)) + " (shell)", figure: float64(peak) / 1024, asked: 16, unit: "MiB"})
		}
	}
	return nil
}

func (l *lab) drain() error {
	all := l.events + 1000
	runs, err := l.measured(3, command{Args: l.peek("--limit", fmt.Sprint(all)), Pipe: true}, command{Args: l.selecting("", all), Pipe: true})
	if err != nil {
		return err
	}
	l.paired("drain of all events as JSON to a pipe", runs[0].took, runs[1].took, "(shell)", 0.4)
	return nil
}

// largeEvents compares events of 64 KiB and 1 MiB, pushed from a file one at a time, and
// a page of ten of them.
func (l *lab) largeEvents() error {
	for _, size := range []int{64 << 10, 1 << 20} {
		file, dir, db := l.path("large"), l.path("large-thread"), l.path("large.db")
		if err := os.WriteFile(file, []byte(strings.Repeat(payload+"\n", size/len(payload)+1)[:size]), 0o600); err != nil {
			return err
		}
		if err := errors.Join(run("", l.thread, "init", dir), run("", l.shell, db, "PRAGMA journal_mode=WAL; "+schema)); err != nil {
			return err
		}
		runs, err := l.measured(min(l.rounds, 30),
			command{Args: []string{l.thread, "push", "--thread", dir, "--source", "self", "--type", "message", "--content-file", file}},
			command{Args: []string{l.shell, db, "PRAGMA synchronous=FULL; INSERT INTO events (source, type, content) VALUES ('self', 'message', CAST(readfile('" + file + "') AS TEXT));"}})
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d KiB", size>>10)
		l.paired("push of an event of "+name+", whole process, durable", runs[0].took, runs[1].took, "(shell)", 0)
		shell := l.selecting("", 10)
		shell[2] = db
		if runs, err = l.measured(10, command{Args: []string{l.thread, "peek", "--thread", dir, "--last-event-id", "0", "--limit", "10"}}, command{Args: shell}); err != nil {
			return err
		}
		l.paired("page of ten events of "+name+", whole process", runs[0].took, runs[1].took, "(shell)", 0)
		removeSQLite(db)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// dispatch makes the subscriptions last: with them, every push starts one.
func (l *lab) dispatch() error {
	have := 0
	for _, n := range []int{1, 100, 1000, 10_000} {
		if err := subscribeMany(l.big, have, n); err != nil {
			return err
		}
		have = n
		runs, err := l.measured(10, command{Args: []string{l.thread, "dispatch", "--thread", l.big}})
		if err != nil {
			return err
		}
		took := median(runs[0].took)
		asked := 0.0
		if n == 1000 {
			asked = 15
		}
		l.add(row{what: fmt.Sprintf("`thread dispatch`, subscriptions: %s, none of %s unread events matches, whole process", thousands(n), thousands(l.events)),
			ours: shown(runs[0].took), theirs: "–", figure: float64(took.Microseconds()) / 1000, asked: asked, unit: "ms"})
		// Apart, as each starts a dispatch, which is not the next one's to pay.
		push := pushTo(l.thread, l.big)
		push.Pause = wakeUpPause + time.Duration(n)*100*time.Microsecond
		if runs, err = l.measured(10, push); err != nil {
			return err
		}
		took = median(runs[0].took)
		l.add(row{what: fmt.Sprintf("`thread push`, subscriptions: %s, whole process", thousands(n)),
			ours: shown(runs[0].took), theirs: "–", figure: float64(took.Microseconds()) / 1000, unit: "ms"})
	}
	return nil
}
