// Package agentday has an agent's day through the command line, HTTP and MCP, for the tests of
// thread and of thread-net. It has no other purpose.
package agentday

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// agent is how an agent does its work: one of three interfaces, see Run.
type agent interface {
	take() (event int64, content, delivery string)
	ask(content string) (reply string)
	read() (contents string) // of the messages of the session
	start(event int64) (run string)
	step(run, name string)
	say(run, text string)
	answer(event int64, text string)
	ack(delivery string)
	end(run string)
}

// dayWait is how long the answer to the agent's question takes.
func dayWait() time.Duration {
	if os.Getenv("THREAD_DAY") == "full" {
		return 90 * time.Second
	}
	return time.Second
}

// Run is the day: an agent takes what waits, reads the session, asks, waits for the answer (90 s
// with THREAD_DAY=full), records steps, answers and ends its run. The same day by the
// command line, by HTTP and by MCP leaves the same. address returns where to make the thread
// of that name.
func Run(t *testing.T, address func(name string) string) {
	for name, start := range map[string]func(t *testing.T, at place) agent{
		"command": func(t *testing.T, at place) agent { return &commandAgent{T: t, dir: at.thread} },
		"http":    newHTTPAgent,
		"mcp":     func(t *testing.T, at place) agent { return &mcpAgent{StartMCP(t, "--thread", at.thread)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := place{name, address(name), filepath.Join(t.TempDir(), "s")}
			Command(t, "init", at.thread)
			Command(t, "subscribe", "--thread", at.thread, "--consumer", "agent", "--pull", "--filter", "type = 'question'")
			Command(t, "session", "start", "--thread", at.thread, "--id", "talk", "--agent", "coder")
			Command(t, "message", "add", "--thread", at.thread, "--session", "talk", "--role", "user", "--content", "you know numbers")
			Command(t, "push", "--thread", at.thread, "--source", "user", "--type", "question", "--content", "6 * 7?", "--quiet")
			serve(t, at)
			day(t, at.thread, start(t, at))
		})
	}
}

// place is a thread that is served.
type place struct{ name, thread, socket string }

// Command runs a command of thread.
func Command(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("thread", args...)
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// serve has thread serve recover the runs of agents that are gone, and answer at a socket.
func serve(t *testing.T, at place) {
	cmd := exec.Command("thread", "serve", "--thread", at.thread, "--listen", "unix:"+at.socket)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // the test has its results
	})
	for exec.Command("thread", "lanes", "--thread", at.thread).Run() != nil && t.Context().Err() == nil { // it is not ready
	}
}

// beating does beat every 5 s during f: recovery ends a run that is silent for 15 s.
func beating(beat, f func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				beat()
			case <-done:
				return
			}
		}
	}()
	f()
	close(done)
	<-ended
}

func day(t *testing.T, dir string, a agent) {
	cmd := &commandAgent{T: t, dir: dir}
	event, content, delivery := a.take()
	if event != 1 || content != "6 * 7?" {
		t.Fatalf("event %d: %s", event, content)
	}
	if got := a.read(); !strings.Contains(got, "you know numbers") {
		t.Errorf("the session: %s", got)
	}
	run := a.start(event)
	a.step(run, "think")
	human := make(chan string, 1)
	go func() {
		doubt := cmd.run("tail", "--last-event-id", "1", "--limit", "1", "--timeout", "60s", "--json")
		time.Sleep(dayWait()) // the answer takes that long: the wait is what is tested
		human <- doubt + cmd.run("push", "--source", "human", "--type", "answer", "--reply-to", "2", "--content", `{"base":"ten"}`, "--quiet")
	}()
	if got := a.ask("in which base?"); !strings.Contains(got, "ten") {
		t.Errorf("the reply: %s", got)
	}
	if doubt := <-human; !strings.Contains(doubt, "in which base?") {
		t.Errorf("the question: %s", doubt)
	}
	a.step(run, "calculate")
	a.say(run, "it is 42")
	a.answer(event, "42")
	a.ack(delivery)
	a.end(run)

	for _, want := range []struct {
		args []string
		has  []string
	}{
		{[]string{"info", "--json"}, []string{`"last_acked_id": 1,`}},
		{[]string{"peek", "--last-event-id", "3"}, []string{`"id":4`, "42", "reply_to"}},
		{[]string{"message", "list", "--session", "talk", "--run", run, "--json"}, []string{"it is 42"}},
		{[]string{"run", "show", run, "--json"}, []string{`"status":"completed"`, "think", "calculate"}},
	} {
		got := cmd.run(want.args...)
		for _, part := range want.has {
			if !strings.Contains(got, part) {
				t.Errorf("%q: %s is not in %s", want.args, part, got)
			}
		}
	}
}

// commandAgent uses the command line.
type commandAgent struct {
	*testing.T
	dir, started string
}

func (a *commandAgent) run(args ...string) string {
	cmd := exec.Command("thread", args...)
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none", "THREAD_DIR="+a.dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		a.Errorf("%q: %v\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

func (a *commandAgent) take() (int64, string, string) {
	var e struct {
		ID, Delivery int64
		Content      string
	}
	text := a.run("next", "--consumer", "agent", "--lease", "10m", "--timeout", "30s")
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		a.Fatalf("%s: %v", text, err)
	}
	return e.ID, e.Content, fmt.Sprint(e.Delivery)
}

func (a *commandAgent) ask(content string) (reply string) {
	beating(func() { a.run("run", "beat", a.started) }, func() {
		reply = a.run("ask", "--source", "agent", "--type", "doubt", "--content", content, "--timeout", "3m")
	})
	return reply
}

func (a *commandAgent) read() string {
	return a.run("message", "list", "--session", "talk", "--json")
}

func (a *commandAgent) start(event int64) string {
	a.started = a.run("run", "start", "--session", "talk", "--trigger", "message", "--ref", fmt.Sprint("event:", event))
	return a.started
}

func (a *commandAgent) step(run, name string) { a.run("run", "step", run, "--name", name) }

func (a *commandAgent) say(run, text string) {
	a.run("message", "add", "--session", "talk", "--run", run, "--role", "assistant", "--content", text)
}

func (a *commandAgent) answer(event int64, text string) {
	a.run("push", "--source", "agent", "--type", "answer", "--reply-to", fmt.Sprint(event), "--content", text, "--quiet")
}

func (a *commandAgent) ack(delivery string) {
	a.run("ack", "--consumer", "agent", "--delivery", delivery)
}
func (a *commandAgent) end(run string) { a.run("run", "end", run, "--status", "completed") }

// httpAgent uses the socket of thread serve.
type httpAgent struct {
	*testing.T
	threads string // the path of the thread
	client  http.Client
	started string
}

func newHTTPAgent(t *testing.T, at place) agent {
	return &httpAgent{T: t, threads: "http://localhost/threads/" + at.name + "/", client: http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", at.socket)
	}}}}
}

func (a *httpAgent) do(method, path string, body any, answer any) *http.Response {
	text, err := json.Marshal(body)
	if err != nil {
		a.Fatal(err)
	}
	q, err := http.NewRequest(method, a.threads+path, bytes.NewReader(text))
	if err != nil {
		a.Fatal(err)
	}
	if q.Header.Set("Content-Type", "application/json"); body == nil {
		q.Body, q.ContentLength = http.NoBody, 0
	}
	if answer == nil {
		q.Header.Set("Accept", "text/event-stream")
	}
	r, err := a.client.Do(q)
	if err != nil {
		a.Fatal(err)
	}
	if r.StatusCode >= http.StatusBadRequest {
		a.Errorf("%s %s: %d", method, path, r.StatusCode)
	}
	if answer == nil {
		return r // a stream
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(answer); err != nil {
		a.Errorf("%s %s: %v", method, path, err)
	}
	return nil
}

func (a *httpAgent) take() (int64, string, string) {
	var d struct {
		Delivery string
		Events   []struct {
			ID      int64
			Content string
		}
	}
	a.do("POST", "consumers/agent/next", map[string]string{"lease": "10m", "timeout": "30s"}, &d)
	if len(d.Events) != 1 {
		a.Fatalf("%+v", d)
	}
	return d.Events[0].ID, d.Events[0].Content, d.Delivery
}

func (a *httpAgent) push(typ, content string) int64 {
	var stored struct{ IDs []int64 }
	a.do("POST", "events", map[string]string{"source": "agent", "type": typ, "content": content}, &stored)
	if len(stored.IDs) != 1 {
		a.Fatalf("%+v", stored)
	}
	return stored.IDs[0]
}

func (a *httpAgent) ask(content string) string {
	id := a.push("doubt", content)
	r := a.do("GET", fmt.Sprintf("events?after=%d&filter=json_valid(content)%%20AND%%20json_extract(content,'$.reply_to')=%d", id, id), nil, nil)
	defer r.Body.Close()
	data, found := "", false
	beating(func() { a.do("POST", "runs/"+a.started+"/beat", nil, new(any)) }, func() {
		for lines := bufio.NewScanner(r.Body); !found && lines.Scan(); {
			data, found = strings.CutPrefix(lines.Text(), "data: ")
		}
	})
	return data
}

func (a *httpAgent) read() string {
	var all json.RawMessage
	a.do("GET", "sessions/talk/messages", nil, &all)
	return string(all)
}

func (a *httpAgent) start(event int64) string {
	var run struct{ ID string }
	a.do("POST", "runs/start", map[string]string{"session_id": "talk", "trigger_type": "message", "trigger_ref": fmt.Sprint("event:", event)}, &run)
	a.started = run.ID
	return run.ID
}

func (a *httpAgent) step(run, name string) {
	a.do("POST", "runs/"+run+"/steps", map[string]string{"name": name}, new(any))
}

func (a *httpAgent) say(run, text string) {
	a.do("POST", "sessions/talk/messages", map[string]string{"run_id": run, "role": "assistant", "content": text}, new(any))
}

func (a *httpAgent) answer(event int64, text string) {
	a.push("answer", fmt.Sprintf(`{"reply_to":%d,"text":%q}`, event, text))
}

func (a *httpAgent) ack(delivery string) {
	a.do("POST", "consumers/agent/ack", map[string]string{"delivery": delivery}, new(any))
}

func (a *httpAgent) end(run string) {
	a.do("POST", "runs/"+run+"/end", map[string]string{"status": "completed"}, new(any))
}
