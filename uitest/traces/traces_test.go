// Package traces tests --otlp against the receiver of the OpenTelemetry Collector. Its
// modules are why it is here.
package traces

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// patience is how long a span may take.
const patience = 90 * time.Second

var bin string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "traces")
	if err == nil {
		bin = dir
		err = build("../..", "./cmd/thread", "./cmd/thread-serve", "./cmd/thread-history")
	}
	if err == nil {
		err = build("../../bridge", "./cmd/thread-bridge")
	}
	if err == nil {
		err = build("../../net", "./cmd/thread-net")
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func build(module string, programs ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-o", bin}, programs...)...)
	cmd.Dir, cmd.Stderr, cmd.Env = module, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	return cmd.Run()
}

// collector is a receiver with all spans that it got.
type collector struct {
	testing.TB
	endpoint string
	sink     *consumertest.TracesSink
	start    func()
	stop     func()
}

func newCollector(t *testing.T) *collector {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	c := &collector{TB: t, endpoint: "http://" + address, sink: new(consumertest.TracesSink)}
	c.start = func() {
		t.Helper()
		f := otlpreceiver.NewFactory()
		config := f.CreateDefaultConfig().(*otlpreceiver.Config)
		config.Protocols.GRPC = configoptional.None[configgrpc.ServerConfig]()
		http := confighttp.NewDefaultServerConfig()
		http.NetAddr = confignet.AddrConfig{Endpoint: address, Transport: confignet.TransportTypeTCP}
		config.Protocols.HTTP = configoptional.Some(otlpreceiver.HTTPConfig{ServerConfig: http, TracesURLPath: "/v1/traces"})
		r, err := f.CreateTraces(context.Background(), receivertest.NewNopSettings(f.Type()), config, c.sink)
		if err == nil {
			err = r.Start(context.Background(), componenttest.NewNopHost())
		}
		if err != nil {
			t.Fatal(err)
		}
		c.stop = func() { _ = r.Shutdown(context.Background()) }
	}
	return c
}

// span is a span as far as the tests look at it.
type span struct {
	trace, id, parent, name string
	kind                    ptrace.SpanKind
	attributes              map[string]any
	failed                  bool
	start, end              time.Time
}

// spans returns the spans of all that was received, once each. The same id twice is the same span.
func (c *collector) spans() map[string]span {
	c.Helper()
	list := map[string]span{}
	for _, batch := range c.sink.AllTraces() {
		for _, r := range batch.ResourceSpans().All() {
			if name, _ := r.Resource().Attributes().Get("service.name"); name.Str() != "thread" {
				c.Errorf("a service is called %q", name.Str())
			}
			for _, scope := range r.ScopeSpans().All() {
				for _, s := range scope.Spans().All() {
					of, id, parent := s.TraceID(), s.SpanID(), s.ParentSpanID()
					got := span{trace: hex.EncodeToString(of[:]), id: hex.EncodeToString(id[:]), name: s.Name(), kind: s.Kind(), attributes: s.Attributes().AsRaw(),
						failed: s.Status().Code() == ptrace.StatusCodeError, start: s.StartTimestamp().AsTime(), end: s.EndTimestamp().AsTime()}
					if !s.ParentSpanID().IsEmpty() {
						got.parent = hex.EncodeToString(parent[:])
					}
					list[got.id] = got
				}
			}
		}
	}
	return list
}

// await waits for a span whose name begins so.
func (c *collector) await(name string) span {
	c.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, s := range c.spans() {
			if strings.HasPrefix(s.name, name) {
				return s
			}
		}
	}
	c.Fatalf("no span %q came:\n%s", name, c.tree())
	return span{}
}

func (c *collector) tree() string {
	var b strings.Builder
	for _, s := range c.spans() {
		fmt.Fprintf(&b, "%s %s < %s  %s %v\n", s.trace, s.id, s.parent, s.name, s.attributes)
	}
	return b.String()
}

// descends checks the chain of a span up to the parent that is not ours.
func (c *collector) descends(s span, trace, top string, names ...string) {
	c.Helper()
	for i, name := range names {
		if s.trace != trace || !strings.HasPrefix(s.name, name) {
			c.Fatalf("span %q of trace %s in the place of %q in trace %s, at %d of %q:\n%s", s.name, s.trace, name, trace, i, names, c.tree())
		}
		if s.end.Before(s.start) {
			c.Errorf("span %q ends %v before its start", s.name, s.start.Sub(s.end))
		}
		if i < len(names)-1 {
			s = c.parentOf(s)
		}
	}
	if s.parent != top {
		c.Fatalf("span %q has the parent %q, want %q:\n%s", s.name, s.parent, top, c.tree())
	}
}

// room returns a directory that is removed with the test, once exporters and supervisors
// write no more there.
func room(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "traces")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(patience); os.RemoveAll(dir) != nil; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("%s cannot be removed", dir)
				return
			}
		}
	})
	return dir
}

// parentOf waits for the parent of a span: each process exports in its own time.
func (c *collector) parentOf(s span) span {
	c.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if parent, ok := c.spans()[s.parent]; ok {
			return parent
		}
	}
	c.Fatalf("the parent %s of %q did not come:\n%s", s.parent, s.name, c.tree())
	return span{}
}

// everywhere runs a test with a thread in a directory, and with one in PostgreSQL, each called inbox.
func everywhere(t *testing.T, test func(t *testing.T, inbox string)) {
	t.Run("directory", func(t *testing.T) {
		inbox := filepath.Join(room(t), "inbox")
		thread(t, "init", inbox)
		test(t, inbox)
	})
	t.Run("address", func(t *testing.T) {
		if os.Getenv("THREAD_POSTGRES") == "" {
			conn, err := net.Dial("tcp", "127.0.0.1:5432")
			if err != nil {
				t.Skip(err)
			}
			conn.Close()
		}
		t.Setenv("XDG_STATE_HOME", room(t))
		schema := fmt.Sprintf("thread_test_%d_%d", os.Getpid(), time.Now().UnixNano())
		inbox := "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable&schema=" + schema + "&thread=inbox"
		thread(t, "init", inbox)
		t.Cleanup(func() {
			if out, err := exec.Command("psql", "-h", "127.0.0.1", "-U", "postgres", "-c", "DROP SCHEMA "+schema+" CASCADE").CombinedOutput(); err != nil {
				t.Logf("the schema stays: %v %s", err, out)
			}
		})
		test(t, inbox)
	})
}

func thread(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "thread"), args...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%v", args, err, out, stderrOf(err))
	}
	return string(out)
}

func stderrOf(err error) string {
	if e, ok := err.(*exec.ExitError); ok {
		return string(e.Stderr)
	}
	return ""
}

// background starts a program that is ended with the test, by SIGTERM.
func background(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, args[0]), args[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	log := new(strings.Builder)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%v:\n%s", args, log)
		}
	})
	return cmd
}

const (
	trace  = "0af7651916cd43dd8448eb211c80319c"
	parent = "b7ad6b7169203331"
	given  = "00-" + trace + "-" + parent + "-01"
)

// agent is a handler: a run with a call of a model and a step, and what it found as its trace.
func agent(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.sh")
	script := `set -e
printf %s "$TRACEPARENT" >"$0.trace"
R=$(thread run start --agent coder)
cat >"$0.request" <<'X'
{"request":{"model":"small-1","provider":"acme","temperature":0.5,"maxTokens":100,"messages":[]}}
X
cat >"$0.response" <<'X'
{"response":{"text":"secret words","finishReason":"stop","usage":{"inputTokens":12,"outputTokens":3}}}
X
S=$(thread run step --type model_call --name ask --input "$0.request" --output "$0.response" "$R")
thread run step --type plan --name think "$R"
thread run tool --name grep --source native --step "$S" "$R"
thread run end --status completed "$R"
`
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestServe: a handler's trace from its push to the steps of its run.
func TestServe(t *testing.T) { everywhere(t, serves) }

func serves(t *testing.T, dir string) {
	c := newCollector(t)
	c.start()
	defer func() { c.stop() }()
	script := agent(t)
	thread(t, "subscribe", "--thread", dir, "--consumer", "c", "--handler", "sh '"+script+"' && thread ack --consumer c --event-id 1")
	background(t, "thread", "serve", "--thread", dir, "--otlp", c.endpoint)
	for end := time.Now().Add(patience); exec.Command(filepath.Join(bin, "thread"), "lanes", "--thread", dir).Run() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) { // before, the push starts the handler, which exports nothing
			t.Fatal("the server does not answer")
		}
	}
	thread(t, "push", "--thread", dir, "--source", "s", "--type", "t", "--content", `{"traceparent":"`+given+`"}`)
	c.await("process c")
	c.descends(c.await("chat small-1"), trace, parent, "chat", "invoke_agent coder", "command sh", "process c", "push inbox")
}

// TestWay is the way of a message: a broker, the bridge, a delivery, a run, two steps.
func TestWay(t *testing.T) { everywhere(t, way) }

func way(t *testing.T, dir string) {
	broker, err := net.Dial("tcp", "127.0.0.1:6379")
	if err != nil {
		if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer broker.Close()
	c := newCollector(t)
	c.start()
	defer func() { c.stop() }()
	script := agent(t)
	queue := fmt.Sprintf("traces%d", time.Now().UnixNano())
	config := filepath.Join(t.TempDir(), "orders.yaml")
	text := fmt.Sprintf("queue_name: %s\nconsumer_group: inbox\nhandler: sh '%s'\nadapter: {type: redis, connection: {address: \"127.0.0.1:6379\", create: true}}\n", queue, script)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	defer fmt.Fprintf(broker, "DEL %s\r\n", queue)
	background(t, "thread-bridge", "trigger", "run", "--thread", dir, "--config", config, "--otlp", c.endpoint)
	if strings.Contains(dir, "://") {
		background(t, "thread", "serve", "--thread", dir) // there a push starts no handler
	}
	thread(t, "trigger", "send", "--thread", dir, "--config", config, "--body", `{"order":7}`, "--header", "traceparent="+given)

	chat := c.await("chat small-1")
	plan, tool := c.await("plan think"), c.await("execute_tool grep")
	c.await("process " + queue)
	way := []string{"invoke_agent coder", "process ", "push inbox", "process " + queue}
	c.descends(chat, trace, parent, append([]string{"chat small-1"}, way...)...)
	c.descends(plan, trace, parent, append([]string{"plan think"}, way...)...)
	c.descends(tool, trace, parent, append([]string{"execute_tool grep", "chat small-1"}, way...)...)
	for name, want := range map[string]any{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "acme", "gen_ai.request.model": "small-1", "gen_ai.request.temperature": 0.5,
		"gen_ai.request.max_tokens": int64(100), "gen_ai.usage.input_tokens": int64(12), "gen_ai.usage.output_tokens": int64(3)} {
		if got := chat.attributes[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if chat.kind != ptrace.SpanKindClient {
		t.Errorf("the call of a model has the kind %v", chat.kind)
	}
	if tree := c.tree(); strings.Contains(tree, "secret words") {
		t.Errorf("the answer of a model is in a span:\n%s", tree)
	}
	published(t, c, dir, broker)
	found, err := os.ReadFile(script + ".trace")
	if err != nil || !strings.HasPrefix(string(found), "00-"+trace+"-") || strings.Contains(string(found), parent) {
		t.Errorf("the command has found the trace context %q, %v", found, err)
	}
}

// published: an event that is published takes its trace along.
func published(t *testing.T, c *collector, dir string, broker net.Conn) {
	t.Helper()
	queue := fmt.Sprintf("traces%dout", time.Now().UnixNano())
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const adapter = "adapter: {type: redis, connection: {address: \"127.0.0.1:6379\", create: true}}\n"
	out := write("out.yaml", fmt.Sprintf("name: out\nqueue_name: %s\nheaders: {Traceparent: '\"mine\"'}\n", queue)+adapter)
	in := write("in.yaml", fmt.Sprintf("queue_name: %s\nconsumer_group: other\n", queue)+adapter)
	defer fmt.Fprintf(broker, "DEL %s\r\n", queue)
	other := filepath.Join(room(t), "other")
	thread(t, "init", other)
	background(t, "thread-bridge", "trigger", "run", "--thread", other, "--config", in, "--otlp", c.endpoint)
	background(t, "thread-bridge", "publish", "run", "--thread", dir, "--config", out, "--otlp", c.endpoint)
	c.descends(c.await("process "+queue), trace, parent, "process "+queue, "send "+queue, "push inbox", "process ")
}

// TestWork: the runs of a worker, with a collector that comes late.
func TestWork(t *testing.T) { everywhere(t, works) }

func works(t *testing.T, dir string) {
	c := newCollector(t)
	thread(t, "run", "enqueue", "--thread", dir, "--trigger", "message", "--agent", "coder", "--traceparent", given)
	thread(t, "run", "work", "--thread", dir, "--drain", "--otlp", c.endpoint, "--", "sh", "-c", "exit 3")
	if n := len(c.spans()); n != 0 {
		t.Fatalf("%d spans without a collector", n)
	}
	c.start()
	defer func() { c.stop() }()
	// Its exporter has ended, or is about to; the next one continues.
	thread(t, "run", "enqueue", "--thread", dir, "--id", "next", "--trigger", "message", "--agent", "reviewer", "--traceparent", given)
	thread(t, "run", "work", "--thread", dir, "--drain", "--otlp", c.endpoint, "--", "true")
	run := c.await("invoke_agent coder")
	c.descends(c.await("command sh"), trace, parent, "command sh", "invoke_agent coder")
	if !run.failed {
		t.Error("the failed run is not marked as one")
	}
	c.await("invoke_agent reviewer")
}

// TestKilled: a consume that was killed has passed on the deliveries that had ended.
func TestKilled(t *testing.T) {
	c := newCollector(t)
	c.start()
	defer func() { c.stop() }()
	dir := filepath.Join(room(t), "inbox")
	thread(t, "init", dir)
	t.Setenv("THREAD_DISPATCH", "none")
	thread(t, "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true")
	for range 3 {
		thread(t, "push", "--thread", dir, "--source", "s", "--type", "t", "--content", "x")
	}
	marker := filepath.Join(t.TempDir(), "third")
	cmd := background(t, "thread", "consume", "--thread", dir, "--consumer", "c", "--otlp", c.endpoint, "--", "sh", "-c", `if [ $THREAD_EVENT_ID = 3 ]; then touch '`+marker+`'; exec sleep 600; fi`)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(marker); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the third delivery has not begun")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		all := c.spans()
		if len(all) == 4 { // two pushes, each the root of a trace, and their deliveries
			break
		}
		if time.Now().After(end) || len(all) > 4 {
			t.Fatalf("%d spans, want 4:\n%s", len(all), c.tree())
		}
	}
}

// TestRefused: what is not an endpoint is refused before anything happens.
func TestRefused(t *testing.T) {
	dir := filepath.Join(room(t), "inbox")
	thread(t, "init", dir)
	t.Setenv("THREAD_DISPATCH", "none")
	thread(t, "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true")
	thread(t, "push", "--thread", dir, "--source", "s", "--type", "t", "--content", "x")
	for _, args := range [][]string{
		{"thread", "consume", "--thread", dir, "--consumer", "c", "--otlp", "localhost:4318", "--", "true"},
		{"thread", "run", "work", "--thread", dir, "--drain", "--otlp", "localhost:4318", "--", "true"},
		{"thread-serve", "serve", "--thread", dir, "--otlp", "http://user:pw@localhost:4318"},
	} {
		cmd := exec.Command(filepath.Join(bin, args[0]), args[1:]...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "OTLP/HTTP endpoint - give") {
			t.Errorf("%v: exit %d: %s", args, cmd.ProcessState.ExitCode(), out)
		}
	}
	if out := thread(t, "info", "--thread", dir); strings.Contains(out, "last_acked_id: 1") {
		t.Error("an event was acked")
	}
}
