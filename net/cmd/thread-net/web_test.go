//go:build !windows

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// web is a thread serve with HTTP, as a client sees it.
type web struct {
	t      *testing.T
	client *http.Client
}

// serveWeb starts thread-net serve at a unix socket.
func serveWeb(t *testing.T, h *host, args ...string) *web {
	t.Helper()
	dir, err := os.MkdirTemp("", "web")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := h.command(append([]string{"serve", "--ui", "--listen", "unix:" + socket}, args...)...)
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+t.TempDir()) // as on another host
	r, out := io.Pipe()
	cmd.Stderr, cmd.Stdout = out, out
	h.start(cmd)
	ready := make(chan struct{})
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			if strings.Contains(s.Text(), "msg=serving ") {
				close(ready)
			}
			if os.Getenv("THREAD_TEST_LOG") != "" {
				t.Log(s.Text())
			}
		}
	}()
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("it does not serve")
	}
	return webAt(t, socket)
}

// webAt is the web at a unix socket.
func webAt(t *testing.T, socket string) *web {
	return &web{t: t, client: &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}}
}

// ask returns the answer to a request, "" for another status.
func (w *web) ask(method, path, body string, accept ...string) string {
	w.t.Helper()
	q, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header["Accept"] = accept
	a, err := w.client.Do(q)
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if a.StatusCode/100 != 2 {
		w.t.Logf("%s %s: %s %s", method, path, a.Status, text)
		return ""
	}
	return string(text)
}

// await asks until all words are in the answer.
func (w *web) await(path string, words ...string) string {
	w.t.Helper()
	return w.awaitAs("", path, words...)
}

// awaitAs is await for an answer of a type.
func (w *web) awaitAs(typ, path string, words ...string) string {
	w.t.Helper()
	text := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text = w.ask("GET", path, "", typ)
		found := text != ""
		for _, word := range words {
			found = found && strings.Contains(text, word)
		}
		if found {
			return text
		}
	}
	w.t.Fatalf("%s has not %q:\n%s", path, words, text)
	return ""
}

// TestServeWeb: one process serves a thread in PostgreSQL and a directory, with the pages, the
// requests of programs, metrics and steering, as for a directory.
func TestServeWeb(t *testing.T) {
	h := newFleet(t)
	dir := filepath.Join(t.TempDir(), "near")
	h.run("init", dir)
	const handler = `echo streaming >$THREAD_STATE; read line <$THREAD_MESSAGES; echo "said $line"; thread-net consume -- true`
	for _, thread := range []string{h.url, dir} {
		h.run("subscribe", "--thread", thread, "--consumer", "chat", "--handler", handler)
	}
	w := serveWeb(t, h, "--thread", h.url, "--thread", dir, "--lane", "main=3")
	for _, name := range []string{"fleet", "near"} {
		if text := w.ask("POST", "/threads/"+name+"/events", `{"source":"s","type":"t","content":"hello"}`); !strings.Contains(text, `"ids":[1]`) {
			t.Fatalf("%s: push: %s", name, text)
		}
		w.await("/threads/"+name+"/runs.json", `"state":"running"`, `"activity":"streaming"`, `"lane":"main"`)
		w.await("/threads/"+name+"/events", "hello")
		if text := w.ask("GET", "/threads/"+name+"/stats?by=type", "", "application/json"); !strings.Contains(text, `{"counts":[{"count":1,"type":"t"}],"complete":true}`) {
			t.Errorf("%s: stats: %s", name, text)
		}
		if text := w.ask("GET", "/threads/"+name+"/outbox/messages", "", "application/json"); text != `{"messages":[],"complete":true}`+"\n" {
			t.Errorf("%s: outbox: %s", name, text)
		}
		if text := w.ask("POST", "/threads/"+name+"/outbox/messages", `{"event_id":"m","event_type":"comment.replied","thread_id":1,"comment_id":2,"target_user_id":5}`); !strings.Contains(text, `"event_id":"m","id":2,"duplicate":false`) {
			t.Errorf("%s: outbox add: %s", name, text)
		}
		w.awaitAs("application/json", "/threads/"+name+"/outbox/messages", `"status":"processed"`) // by a relay that this has started
		w.await("/threads/"+name+"/info", "chat")
		w.await("/", ">"+name+"<")
		h.run("send", "--thread", map[string]string{"fleet": h.url, "near": dir}[name], "--consumer", "chat", "go")
		w.await("/threads/"+name+"/runs.json", `"active":[]`, `"status":"completed"`)
		w.await("/threads/"+name+"/overview.json", `"pending_count":0`)
		w.ask("PUT", "/threads/"+name+"/consumers/pull", `{}`)
	}
	w.deliveries("fleet", "near")
	metrics := w.await("/metrics", `thread_served_threads 2`, `thread_lane_limit{lane="main"} 3`, `consumer="chat",thread="`+dir+`"`, `consumer="chat",thread="postgres://`)
	if secret := os.Getenv("PGPASSWORD"); secret != "" && strings.Contains(metrics, secret) {
		t.Error("the metrics have the password")
	}
}

// deliveries takes an event of each thread, and settles it by the text that was answered
// alone: neither by a number nor by the text of the other thread.
func (w *web) deliveries(names ...string) {
	w.t.Helper()
	given := map[string]string{}
	for _, name := range names {
		var d struct{ Delivery string }
		if err := json.Unmarshal([]byte(w.ask("POST", "/threads/"+name+"/consumers/pull/next", `{"lease":"1h"}`)), &d); err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
		given[d.Delivery] = name
	}
	for _, name := range names {
		own := ""
		for text, of := range given {
			if of == name {
				own = text
				continue
			}
			if got := w.ask("POST", "/threads/"+name+"/consumers/pull/ack", `{"delivery":"`+text+`"}`); got != "" {
				w.t.Errorf("%s settles by the delivery of %s: %s", name, of, got)
			}
		}
		for _, guess := range []string{`1`, `"1"`, `"1.AAAAAAAAAAAAAAAAAAAAAA"`} {
			if got := w.ask("POST", "/threads/"+name+"/consumers/pull/ack", `{"delivery":`+guess+`}`); got != "" {
				w.t.Errorf("%s settles by %s: %s", name, guess, got)
			}
		}
		if got := w.ask("POST", "/threads/"+name+"/consumers/pull/ack", `{"delivery":"`+own+`"}`); got != `{"settled":true,"last_acked_id":1}`+"\n" {
			w.t.Errorf("%s does not settle by its delivery: %s", name, got)
		}
	}
}

// TestBalanced: what one server of a thread gave out is settled at another one, with another
// state directory. Both make the key at once.
func TestBalanced(t *testing.T) {
	h := newFleet(t)
	servers := []*web{serveWeb(t, h, "--thread", h.url), serveWeb(t, h, "--thread", strings.Replace(h.url, "connect_timeout=60", "connect_timeout=59", 1))}
	given := make([]struct{ Delivery string }, len(servers))
	var all sync.WaitGroup
	at := func(i int) string { return fmt.Sprintf("/threads/fleet/consumers/c%d/", i) }
	for i := range servers {
		h.run("subscribe", "--consumer", fmt.Sprint("c", i), "--pull")
	}
	h.push(1)
	for i, w := range servers {
		all.Go(func() { _ = json.Unmarshal([]byte(w.ask("POST", at(i)+"next", `{"lease":"1h"}`)), &given[i]) }) // without an answer nothing is given
	}
	all.Wait()
	for i := range servers {
		other, body := servers[1-i], `{"delivery":"`+given[i].Delivery+`"}`
		if got := other.ask("POST", at(1-i)+"ack", body); got != "" {
			t.Errorf("the delivery of another consumer is settled: %s", got)
		}
		if got := other.ask("POST", at(i)+"extend", strings.Replace(body, "}", `,"lease":"2h"}`, 1)); got == "" {
			t.Error("the other server does not extend the lease")
		}
		if got := other.ask("POST", at(i)+"ack", body); got != `{"settled":true,"last_acked_id":1}`+"\n" {
			t.Errorf("the other server does not settle: %q", got)
		}
	}
}

// TestSteer: what steers a handler reaches the host that runs it, and all hosts answer for what
// they run.
func TestSteer(t *testing.T) {
	h := newFleet(t)
	dir := t.TempDir()
	refused := func(words string, args ...string) {
		t.Helper()
		out, err := h.command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), words) {
			t.Errorf("thread %q: %v: %s", args, err, out)
		}
	}
	refused("no thread serve runs for postgres://", "send", "--consumer", "chat", "go")
	refused("no thread serve runs for postgres://", "lanes")
	if got := h.run("abort", "--all") + h.run("wait", "--all"); got != "Aborted: 0\n" {
		t.Errorf("without a host: %q", got)
	}
	h.run("subscribe", "--consumer", "chat", "--handler", `echo streaming >$THREAD_STATE; read line <$THREAD_MESSAGES; echo "$line" >>`+filepath.Join(dir, "said")+`; thread-net consume -- true`)
	h.run("subscribe", "--consumer", "long", "--lane", "slow", "--handler", "echo >>"+filepath.Join(dir, "begun")+"; sleep 600")
	for _, own := range []string{"b", "a"} {
		serveWeb(t, h, "--thread", h.url, "--lane", "main=3", "--lane", own+"=1")
	}
	if lanes := h.run("lanes"); !strings.HasPrefix(lanes, "a\t0\t1\t0\t-\nb\t0\t1\t0\t-\nmain\t0\t6\t0\t-\n") {
		t.Errorf("the lanes are\n%s", lanes)
	}
	refused("no_active_run: the handler of 'chat' does not run", "send", "--consumer", "chat", "go")
	h.push(1)
	awaitLong(filepath.Join(dir, "begun"), 1)
	for deadline := time.Now().Add(patience); strings.Count(h.run("runs"), "running") < 2 || !strings.Contains(h.run("runs"), "streaming"); {
		if time.Now().After(deadline) {
			t.Fatalf("the runs are\n%s", h.run("runs"))
		}
	}
	h.run("send", "--consumer", "chat", "go on")
	awaitLong(filepath.Join(dir, "said"), 1)
	if data, _ := os.ReadFile(filepath.Join(dir, "said")); string(data) != "\"go on\"\n" {
		t.Errorf("the handler has read %q", data)
	}
	h.run("wait", "--consumer", "chat", "--timeout", "1m")
	refused("still runs", "wait", "--consumer", "long", "--timeout", "100ms")
	h.run("abort", "--consumer", "long")
	for deadline := time.Now().Add(patience); !strings.Contains(h.run("runs"), "waiting"); {
		if time.Now().After(deadline) {
			t.Fatalf("the runs are\n%s", h.run("runs"))
		}
	}
	if h.exec("SELECT 1 FROM turns WHERE consumer >= '\\xfe' AND (consumer < '\\xfe682f' OR consumer >= '\\xfe6830')") != 0 {
		t.Error("requests are left")
	}
}
