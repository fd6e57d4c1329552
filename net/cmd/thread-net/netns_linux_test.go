package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/internal/store"
	"thread/net/pgstore"
)

// worker is a host that serves.
type worker struct {
	n     int
	serve *exec.Cmd
}

// fleet is a server and its workers, each in a namespace.
type fleet struct {
	*network
	*host   // that the test asks and pushes by, over the server's socket
	server  *server
	lease   time.Duration
	workers []*worker
	pids    map[string]*worker // who served as which process
	dir     string
	total   int           // events that were pushed
	worst   time.Duration // until a turn was taken over
}

// What the handlers of all workers do: each event waits for the gate.
const netnsHandler = `thread-net consume --max-attempts 1000 --backoff 1ms --backoff-factor 1 -- sh -c '
	echo $THREAD_EVENT_ID >>begun.$WORKER
	until test -e gate; do sleep 0.05; done
	echo $THREAD_EVENT_ID >>done.$WORKER'
echo $? >>exits.$WORKER`

// The server notes who stores progress, and whose turn it is then.
const auditSQL = `SET search_path = thread;
CREATE TABLE audit (n bigserial PRIMARY KEY, worker text, holder text, value bytea);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO audit (worker, holder, value) SELECT current_setting('application_name'), holder, NEW.value FROM turns WHERE consumer = 'c';
	RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON records FOR EACH ROW WHEN (NEW.tab = 'progress') EXECUTE FUNCTION note()`

// newNetnsFleet starts the server and its workers, which run the handler in a directory.
func newNetnsFleet(t *testing.T, hosts int, lease time.Duration, handler string) *fleet {
	t.Helper()
	s := newServers(t)
	f := &fleet{network: newNetwork(t, 1+hosts), lease: lease, pids: map[string]*worker{}, dir: t.TempDir()}
	f.server = s.at(0, 0)
	f.server.netns = f.network.host(0)
	s.run("initdb", "-D", f.server.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	hba, err := os.OpenFile(filepath.Join(f.server.data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = hba.WriteString("host all all 10.213.77.0/24 trust\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = hba.Close()
	f.server.start()
	f.server.sql("1", "SELECT 1")
	f.host = &host{t: t, url: "postgres://postgres@/postgres?sslmode=disable&host=" + f.server.socket + "&thread=fleet"}
	f.run("init", f.url)
	f.run("subscribe", "--consumer", "c", "--handler", "cd "+f.dir+"\n"+handler)
	c, _, err := plainConn(f.url + "&schema=thread")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.Exec(context.Background(), auditSQL).ReadAll(); err != nil {
		t.Fatal(err)
	}
	for i := range hosts {
		w := &worker{n: 1 + i}
		f.workers = append(f.workers, w)
		f.start(w)
	}
	return f
}

func (f *fleet) start(w *worker) {
	f.host.t.Helper()
	name := fmt.Sprint("w", w.n)
	w.serve = exec.Command("ip", "netns", "exec", f.network.host(w.n), "thread-net", "serve", "--ui", "--listen", "unix:"+f.in(name+".sock"))
	w.serve.Env = append(os.Environ(), "WORKER="+name, envLease+"="+f.lease.String(),
		"THREAD_DIR=postgres://postgres@"+address(0)+"/postgres?sslmode=disable&application_name="+name+"&thread=fleet")
	log, err := os.OpenFile(f.in("log."+name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		f.host.t.Fatal(err)
	}
	w.serve.Stdout, w.serve.Stderr = log, log
	f.host.start(w.serve)
	f.pids[strconv.Itoa(w.serve.Process.Pid)] = w
	_ = log.Close()
}

// die ends a worker as a host dies: no process is told.
func (f *fleet) die(w *worker) {
	f.network.cut(w.n)
	f.end(w.n)
	_ = w.serve.Wait()
}

// page is what a worker serves to browsers.
func (f *fleet) page(w *worker) *web { return webAt(f.host.t, f.in(fmt.Sprint("w", w.n, ".sock"))) }

func (f *fleet) in(name string) string { return filepath.Join(f.dir, name) }

// ask returns the columns of all rows.
func (f *fleet) ask(query string) (rows [][]string) {
	f.host.t.Helper()
	c, _, err := plainConn(f.url + "&schema=thread")
	if err != nil {
		f.host.t.Fatal(err)
	}
	defer c.Close(context.Background())
	r := c.ExecParams(context.Background(), query, nil, nil, nil, nil).Read()
	if r.Err != nil {
		f.host.t.Fatal(r.Err)
	}
	for _, row := range r.Rows {
		var list []string
		for _, v := range row {
			list = append(list, string(v))
		}
		rows = append(rows, list)
	}
	return rows
}

// until waits until something is so.
func (f *fleet) until(what string, so func() bool) {
	f.host.t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			logs := ""
			for _, w := range f.workers {
				data, _ := os.ReadFile(f.in(fmt.Sprint("log.w", w.n)))
				logs += fmt.Sprintf("worker %d:\n%s", w.n, data)
			}
			f.host.t.Fatalf("%v, and not yet: %s\n%q\n%s", patience, what, f.ask("SELECT fence, holder, until - clock_timestamp() FROM turns"), logs)
		}
	}
}

// holder is the worker whose turn it is, nil for none.
func (f *fleet) holder() (w *worker, fence string) {
	rows := f.ask("SELECT fence, holder FROM turns WHERE consumer = 'c' AND until > clock_timestamp()")
	if len(rows) == 0 {
		return nil, ""
	}
	return f.holding(rows[0][1]), rows[0][0]
}

// holding is the worker that is called so in a turn.
func (f *fleet) holding(holder string) *worker {
	_, pid, _ := strings.Cut(holder, ", process ")
	return f.pids[pid]
}

// lines are the lines of a file of each worker.
func (f *fleet) lines(name string) (list []string) {
	for _, w := range f.workers {
		data, _ := os.ReadFile(f.in(fmt.Sprint(name, ".w", w.n)))
		list = append(list, strings.Fields(string(data))...)
	}
	return list
}

// gate lets deliveries end.
func (f *fleet) gate(open bool) {
	if !open {
		_ = os.Remove(f.in("gate"))
	} else if err := os.WriteFile(f.in("gate"), nil, 0o600); err != nil {
		f.host.t.Fatal(err)
	}
}

// settled waits until all is.
func (f *fleet) settled() {
	f.host.t.Helper()
	last := fmt.Sprintf(`"last_acked_id": %d`, f.total)
	f.until("all is settled", func() bool {
		return strings.Contains(f.run("info", "--json"), last)
	})
}

// trouble does something to the worker whose handler has an event. Another one takes its
// turn, and the worker comes back.
func (f *fleet) trouble(kind string, early bool) {
	f.host.t.Helper()
	f.gate(false)
	f.push(3)
	f.total += 3
	first := strconv.Itoa(f.total - 2)
	var victim *worker
	var fence string
	f.until("a handler has event "+first, func() bool {
		victim, fence = f.holder()
		return victim != nil && slices.Contains(f.lines("begun"), first)
	})
	began := time.Now()
	switch kind {
	case "kill":
		f.die(victim)
	case "stop":
		f.stop(victim.n)
	case "cut":
		f.network.cut(victim.n)
	}
	f.gate(early) // what it had begun may end before another one has its turn
	f.until("another worker has the turn", func() bool {
		w, now := f.holder()
		return w != nil && w != victim && now != fence
	})
	f.worst = max(f.worst, time.Since(began))
	f.gate(true)
	switch kind {
	case "kill":
		f.connect(victim.n)
		f.start(victim)
	case "stop":
		// Its handler continues first, as if the turn still were its own.
		exits := f.in(fmt.Sprint("exits.w", victim.n))
		before, _ := os.ReadFile(exits)
		f.signal(victim.n, syscall.SIGCONT, victim.serve.Process.Pid)
		f.until("the handler that was stopped ends", func() bool {
			now, _ := os.ReadFile(exits)
			return len(now) > len(before)
		})
		if now, _ := os.ReadFile(exits); bytes.Equal(now[len(before):], []byte("0\n")) {
			f.host.t.Errorf("the handler that was stopped has ended well")
		}
		f.signal(victim.n, syscall.SIGCONT, 0)
	case "cut":
		f.connect(victim.n)
	}
	f.settled()
}

// TestNamespaces: four hosts serve a thread over a network; the one whose turn it is dies,
// is stopped, or is cut off, so that its packets vanish. Another one has its turn within 30
// s, and a stale turn stores nothing: every event is delivered and settled once, by the
// worker whose turn it is. With THREAD_KILLS it is a twentieth as often, with the lease of the
// program, else shortly with a shorter one.
func TestNamespaces(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv("THREAD_KILLS"))
	long := err == nil
	rounds, lease := max(3, kills/20), pgstore.Lease
	if !long {
		rounds, lease = 3, 5*time.Second
	}
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("THREAD_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("THREAD_SEED=%d, %d rounds, a lease of %v", seed, rounds, lease)
	r := rand.New(rand.NewPCG(seed, 3))
	f := newNetnsFleet(t, 4, lease, netnsHandler)
	kinds := []string{"cut", "stop", "kill"}
	for i := range rounds {
		f.trouble(kinds[i%len(kinds)], r.IntN(2) == 0)
	}
	// Each of them works on, also when it is the only one left.
	back := f.workers[r.IntN(len(f.workers))]
	for _, w := range f.workers {
		if w != back {
			f.end(w.n)
			_ = w.serve.Wait()
		}
	}
	f.push(1)
	f.total++
	f.settled()

	delivered := f.lines("done")
	var stored []string
	for _, row := range f.ask("SELECT worker, holder, encode(value, 'hex') FROM audit ORDER BY n") {
		var value []byte
		if _, err := fmt.Sscanf(row[2], "%x", &value); err != nil {
			t.Fatal(err)
		}
		p, err := store.DecodeProgress(store.ConsumerKey("c"), value)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, fmt.Sprint(p.LastAcked))
		if w := f.holding(row[1]); w == nil || fmt.Sprint("w", w.n) != row[0] {
			t.Errorf("%s has stored %d in the turn of %s", row[0], p.LastAcked, row[1])
		}
	}
	for i := range f.total {
		id := strconv.Itoa(i + 1)
		if !slices.Contains(delivered, id) {
			t.Errorf("event %s was not delivered", id)
		}
		if i >= len(stored) || stored[i] != id {
			t.Fatalf("progress was stored as %v, want each of 1 to %d once", stored, f.total)
		}
	}
	if len(stored) != f.total {
		t.Errorf("progress was stored %d times for %d events", len(stored), f.total)
	}
	if long && f.worst > 30*time.Second {
		t.Errorf("a turn was taken over after %v", f.worst)
	}
	t.Logf("%d troubles: %d events, %d deliveries, %d stored; a turn was taken over after at most %v",
		rounds, f.total, len(delivered), len(stored), f.worst.Round(time.Millisecond))
}

// What a bot does for each event: it records a step, thinks until the gate opens, and answers
// in the session.
const botHandler = `echo $WORKER >>begun.$WORKER
thread-net run step --type thinking >>steps.$WORKER
until test -e gate; do sleep 0.05; done
thread-net consume --content-only -- sh -c 'thread-net message add --session talk --role assistant --content "answer to $(cat), from $WORKER"'`

// TestStory: a bot answers in a session on two hosts. One of them dies in a run. The other one
// continues the conversation within 30 s, every question is answered once, and its pages show
// the answers and the runs of both.
func TestStory(t *testing.T) {
	f := newNetnsFleet(t, 2, pgstore.Lease, botHandler)
	f.run("session", "start", "--id", "talk", "--subject", "user:7")
	ask := func(text string) {
		t.Helper()
		f.run("message", "add", "--session", "talk", "--role", "user", "--content", text)
		f.run("push", "--source", "user:7", "--type", "message", "--content", text)
	}
	var said []string
	answered := func(text string, by *worker) {
		t.Helper()
		said = append(said, text, fmt.Sprintf("answer to %s, from w%d", text, by.n))
		var now []string
		f.until(text+" is answered", func() bool {
			var list []struct{ Content string }
			if err := json.Unmarshal([]byte(f.run("message", "list", "--session", "talk", "--json")), &list); err != nil {
				t.Fatal(err)
			}
			now = nil
			for _, m := range list {
				now = append(now, m.Content)
			}
			return len(now) >= len(said)
		})
		if !slices.Equal(now, said) {
			t.Fatalf("the messages are %q, want %q", now, said)
		}
	}
	thinking := func(runs int) (w *worker) {
		f.until("the bot thinks", func() bool {
			w, _ = f.holder()
			return w != nil && len(f.lines("begun")) == runs && len(f.lines("steps")) == runs
		})
		return w
	}
	ask("one")
	first := thinking(1)
	f.gate(true)
	answered("one", first)
	f.gate(false)
	f.until("no worker has the turn", func() bool { w, _ := f.holder(); return w == nil })
	ask("two")
	killed := thinking(2)
	other := f.workers[0]
	if other == killed {
		other = f.workers[1]
	}
	f.page(killed).await("/threads/fleet/runs.json", `"status":"running"`)
	began := time.Now()
	f.die(killed)
	if w := thinking(3); w != other {
		t.Fatalf("worker %d continues", w.n)
	}
	away := time.Since(began)
	f.gate(true)
	answered("two", other)
	ask("three")
	answered("three", other)
	f.page(other).await("/threads/fleet/runs.json", `"error_code":"worker_recovery_failed"`, `"status":"completed"`, `"active":[]`)
	f.page(other).await("/threads/fleet/session.json?id=talk", said...)
	if away > 30*time.Second {
		t.Errorf("the other host continues after %v", away)
	}
	t.Logf("the other host continued after %v: %q", away.Round(time.Millisecond), said)
}
