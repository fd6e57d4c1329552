package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpClient is the client of the official SDK with a process thread mcp.
type mcpClient struct {
	*mcp.ClientSession
	t *testing.T
}

func startMCP(t *testing.T, flags ...string) *mcpClient {
	t.Helper()
	cmd := exec.Command("thread", append([]string{"mcp"}, flags...)...)
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	cmd.Stderr = os.Stderr
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.Close(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("it ended with %v", cmd.ProcessState)
		}
	})
	return &mcpClient{s, t}
}

// call calls a tool. The text of an error begins with "error: ".
func (c *mcpClient) call(tool, args string) (text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		c.t.Errorf("%s %s: an error of the protocol: %v", tool, args, err)
		return ""
	}
	for _, part := range r.Content {
		text += part.(*mcp.TextContent).Text
	}
	if r.IsError {
		return "error: " + text
	}
	if structured, err := json.Marshal(r.StructuredContent); err != nil || !jsonEqual(text, string(structured)) {
		c.t.Errorf("%s: %s is not %s (%v)", tool, structured, text, err)
	}
	return text
}

func jsonEqual(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	first, _ := json.Marshal(x)
	second, _ := json.Marshal(y)
	return string(first) == string(second)
}

func (c *mcpClient) expect(tool, args string, words ...string) {
	c.t.Helper()
	got := c.call(tool, args)
	for _, w := range words {
		if !strings.Contains(got, w) {
			c.t.Errorf("%s %s: %q is not in %s", tool, args, w, got)
		}
	}
	if !strings.HasPrefix(words[0], "error: ") && strings.HasPrefix(got, "error: ") {
		c.t.Errorf("%s %s: %s", tool, args, got)
	}
}

func (c *mcpClient) tools() (names []string) {
	c.t.Helper()
	list, err := c.ListTools(c.t.Context(), nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, tool := range list.Tools {
		schema, err := json.Marshal(tool.InputSchema)
		if err != nil || tool.Description == "" || !strings.Contains(string(schema), `"thread":{"description":`) || tool.OutputSchema == nil {
			c.t.Errorf("%s: %s %v", tool.Name, schema, err)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

func threadCommand(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("thread", args...)
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// TestMCP plays an agent that pushes, waits, and works off a queue.
func TestMCP(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	threadCommand(t, "init", dir)
	threadCommand(t, "subscribe", "--thread", dir, "--consumer", "agent", "--pull", "--max-attempts", "2", "--filter", "type = 'task'")
	threadCommand(t, "subscribe", "--thread", dir, "--consumer", "other", "--handler", "true")
	c := startMCP(t, "--thread", dir)
	if got := strings.Join(c.tools(), " "); got != "ack consume peek push wait why" {
		t.Errorf("the tools are %s", got)
	}
	c.expect("push", `{"source":"a","type":"task","content":"one","dedupe_key":"k"}`, `"id":1}`, `"duplicate":false`)
	c.expect("push", `{"thread":"inbox","source":"a","type":"task","content":"one","dedupe_key":"k"}`, `"id":1}`, `"duplicate":true`)
	c.expect("push", `{"source":"a","type":"note","subtype":"x","content":"`+strings.Repeat("é", 10_000)+`"}`, `"id":2}`)
	c.expect("peek", `{"filter":"type = 'task'"}`, `"content":"one"`, `"last_id":1`)
	c.expect("peek", `{"reverse":true,"limit":1,"content_bytes":5}`, `"content":"éé"`, `"content_bytes":20000`, `"subtype":"x"`)
	c.expect("why", `{"consumer":"agent","event_id":1}`, `"place":"pending"`)
	c.expect("why", `{"consumer":"agent","event_id":2}`, `"place":"not_matched"`)

	// what is not there yet is waited for
	waiting := make(chan string)
	go func() { waiting <- c.call("wait", `{"filter":"type = 'reply'","timeout":"50s","after":2}`) }()
	c.expect("push", `{"source":"b","type":"noise","content":""}`, `"id":3}`)
	c.expect("push", `{"source":"b","type":"reply","content":"yes"}`, `"id":4}`)
	if got := <-waiting; !strings.Contains(got, `"content":"yes"`) || !strings.Contains(got, `"timed_out":false`) || !strings.Contains(got, `"last_id":4`) {
		t.Errorf("wait: %s", got)
	}
	c.expect("wait", `{"timeout":"1ms"}`, `"timed_out":true`, `"events":[]`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "wait", Arguments: map[string]any{"timeout": "10m"}}); err == nil {
		t.Error("wait is not ended by its client")
	}

	// deliveries
	c.expect("consume", `{"consumer":"agent","lease":"10m"}`, `"delivery":1,`, `"attempt":1,`, `"content":"one"`)
	c.expect("consume", `{"consumer":"agent"}`, `"events":[]`) // it is out
	c.expect("ack", `{"consumer":"agent","delivery":1,"extend":"20m"}`, `"lease_until":"`)
	c.expect("ack", `{"consumer":"agent","delivery":1,"failed":"no route"}`, `"last_acked_id":0`)
	c.expect("why", `{"consumer":"agent","event_id":1}`, `"place":"pending"`, "Event 1 has failed, once counted")
	c.expect("ack", `{"consumer":"agent","delivery":1}`, "error: ", "not out")
	c.expect("push", `{"source":"a","type":"task","content":"two"}`, `"id":5}`)
	threadCommand(t, "seek", "--thread", dir, "--consumer", "agent", "--to", "1")
	c.expect("consume", `{"consumer":"agent","ack":true,"timeout":"10s"}`, `"content":"two"`, `"delivery":null`)
	c.expect("consume", `{"consumer":"agent"}`, `"events":[]`)
	c.expect("why", `{"consumer":"agent","event_id":5}`, `"place":"acked"`)

	// what is wrong is the tool's answer
	for _, wrong := range [][3]string{
		{"peek", `{"filter":"tpye = 1"}`, "invalid filter at line 1"},
		{"peek", `{"limit":1000}`, "limit is not from 1 to 100"},
		{"peek", `{"after":-1}`, "after"},
		{"peek", `{"limit":"many"}`, "limit"},
		{"peek", `{"nonsense":1}`, "nonsense"},
		{"push", `{"source":"a"}`, "required"},
		{"push", `{"source":"","type":"x","content":""}`, "source"},
		{"wait", `{"timeout":"soon"}`, "timeout is not a duration"},
		{"wait", `{"after":99}`, "after is not from 0 to 5"},
		{"why", `{"consumer":"nobody","event_id":1}`, "'nobody' is not subscribed"},
		{"consume", `{"consumer":"other"}`, "thread subscribe"},
		{"ack", `{"consumer":"agent","delivery":0}`, "delivery is not a number from 1"},
		{"peek", `{"thread":"../inbox"}`, "give one of inbox"},
		{"peek", `{"thread":"` + dir + `"}`, "give one of inbox"},
	} {
		c.expect(wrong[0], wrong[1], "error: ", wrong[2])
	}
}

// TestMCPRoot: the threads of a root, also those that are made later, for reading alone.
func TestMCPRoot(t *testing.T) {
	root := t.TempDir()
	threadCommand(t, "init", filepath.Join(root, "one"))
	c := startMCP(t, "--root", root, "--read-only")
	if got := strings.Join(c.tools(), " "); got != "peek wait why" {
		t.Errorf("the tools are %s", got)
	}
	threadCommand(t, "init", filepath.Join(root, "two"))
	threadCommand(t, "push", "--thread", filepath.Join(root, "two"), "--source", "s", "--type", "t", "--content", "hello")
	c.expect("peek", `{}`, "error: ", "give one of one, two")
	c.expect("peek", `{"thread":"two"}`, `"content":"hello"`)
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "push", Arguments: map[string]any{"thread": "two", "source": "s", "type": "t", "content": "x"}}); err == nil {
		t.Error("push with --read-only")
	}
	c.expect("peek", `{"thread":"two","after":1}`, `"events":[]`)
}
