package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"thread/history"
	"thread/internal/agentday"
)

// mcpClient is the client of the official SDK with a process thread mcp.
type mcpClient struct{ *agentday.MCP }

func startMCP(t *testing.T, flags ...string) *mcpClient {
	t.Helper()
	return &mcpClient{agentday.StartMCP(t, flags...)}
}

func (c *mcpClient) expect(tool, args string, words ...string) {
	c.T.Helper()
	got := c.Call(tool, args)
	for _, w := range words {
		if !strings.Contains(got, w) {
			c.T.Errorf("%s %s: %q is not in %s", tool, args, w, got)
		}
	}
	if !strings.HasPrefix(words[0], "error: ") && strings.HasPrefix(got, "error: ") {
		c.T.Errorf("%s %s: %s", tool, args, got)
	}
}

func (c *mcpClient) tools() (names []string) {
	c.T.Helper()
	list, err := c.ListTools(c.T.Context(), nil)
	if err != nil {
		c.T.Fatal(err)
	}
	for _, tool := range list.Tools {
		schema, err := json.Marshal(tool.InputSchema)
		if err != nil || tool.Description == "" || tool.Name != "threads" && !strings.Contains(string(schema), `"thread":{"description":`) || tool.OutputSchema == nil || tool.Annotations == nil {
			c.T.Errorf("%s: %s %v", tool.Name, schema, err)
		}
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// delivery takes events and returns the name of the delivery.
func (c *mcpClient) delivery(args string, words ...string) string {
	c.T.Helper()
	text := c.Call("consume", args)
	for _, w := range words {
		if !strings.Contains(text, w) {
			c.T.Errorf("consume %s: %q is not in %s", args, w, text)
		}
	}
	var got struct{ Delivery string }
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Delivery) < 20 {
		c.T.Fatalf("consume: %s %v", text, err)
	}
	return got.Delivery
}

// TestMCP plays an agent that pushes, waits, and works off a queue.
func TestMCP(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	agentday.Command(t, "init", dir)
	agentday.Command(t, "subscribe", "--thread", dir, "--consumer", "agent", "--pull", "--max-attempts", "2", "--filter", "type = 'task'")
	agentday.Command(t, "subscribe", "--thread", dir, "--consumer", "other", "--handler", "true")
	c := startMCP(t, "--thread", dir)
	if got := strings.Join(c.tools(), " "); got != "ack add_message approvals ask consume end_run messages peek push record_step reply runs start_run threads wait why" {
		t.Errorf("the tools are %s", got)
	}
	c.expect("push", `{"type":"task","content":"one","dedupe_key":"k"}`, `"id":1}`, `"duplicate":false`)
	c.expect("push", `{"thread":"inbox","type":"task","content":"one","dedupe_key":"k"}`, `"id":1}`, `"duplicate":true`)
	c.expect("push", `{"type":"note","subtype":"x","content":"`+strings.Repeat("é", 10_000)+`"}`, `"id":2}`)
	c.expect("peek", `{"filter":"type = 'task'"}`, `"content":"one"`, `"last_id":1`)
	c.expect("peek", `{"reverse":true,"limit":1,"content_bytes":5}`, `"content":"éé"`, `"content_bytes":20000`, `"subtype":"x"`)
	c.expect("why", `{"consumer":"agent","event_id":1}`, `"place":"pending"`)
	c.expect("why", `{"consumer":"agent","event_id":2}`, `"place":"not_matched"`)

	// what is not there yet is waited for
	waiting := make(chan string)
	go func() { waiting <- c.Call("wait", `{"filter":"type = 'reply'","timeout":"50s","after":2}`) }()
	c.expect("push", `{"type":"noise","content":""}`, `"id":3}`)
	c.expect("push", `{"type":"reply","content":"yes"}`, `"id":4}`)
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
	d := c.delivery(`{"consumer":"agent","lease":"10m"}`, `"attempt":1,`, `"content":"one"`, `"source":"agent:test"`)
	startMCP(t, "--thread", dir).expect("ack", `{"consumer":"agent","delivery":"`+d+`"}`, "error: ", "not given to this client")
	c.expect("consume", `{"consumer":"agent"}`, `"events":[]`) // it is in flight
	c.expect("ack", `{"consumer":"agent","delivery":"`+d+`","extend":"20m"}`, `"lease_until":"`)
	c.expect("ack", `{"consumer":"agent","delivery":"`+d+`","failed":"no route"}`, `"last_acked_id":0`)
	c.expect("why", `{"consumer":"agent","event_id":1}`, `"place":"pending"`, "Event 1 has failed, once counted")
	c.expect("ack", `{"consumer":"agent","delivery":"`+d+`"}`, "error: ", "not in flight")
	c.expect("push", `{"type":"task","content":"two"}`, `"id":5}`)
	agentday.Command(t, "seek", "--thread", dir, "--consumer", "agent", "--to", "1")
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
		{"push", `{"type":"a"}`, "required"},
		{"push", `{"type":"","content":""}`, "type"},
		{"push", `{"source":"maintainer","type":"approval","content":""}`, "source"},
		{"wait", `{"timeout":"soon"}`, "timeout is not a duration"},
		{"wait", `{"after":99}`, "after is not from 0 to 5"},
		{"why", `{"consumer":"nobody","event_id":1}`, "'nobody' is not subscribed"},
		{"consume", `{"consumer":"other"}`, "thread subscribe"},
		{"ack", `{"consumer":"agent","delivery":0}`, "delivery"},
		{"ack", `{"consumer":"agent","delivery":"1"}`, "that delivery was not given to this client"},
		{"peek", `{"thread":"../inbox"}`, "give one of inbox"},
		{"peek", `{"thread":"` + dir + `"}`, "give one of inbox"},
	} {
		c.expect(wrong[0], wrong[1], "error: ", wrong[2])
	}
}

// TestMCPRoot: the threads of a root, also those that are made later, for reading alone.
func TestMCPRoot(t *testing.T) {
	root := t.TempDir()
	agentday.Command(t, "init", filepath.Join(root, "one"))
	c := startMCP(t, "--root", root, "--read-only")
	if got := strings.Join(c.tools(), " "); got != "approvals messages peek runs threads wait why" {
		t.Errorf("the tools are %s", got)
	}
	agentday.Command(t, "init", filepath.Join(root, "two"))
	agentday.Command(t, "push", "--thread", filepath.Join(root, "two"), "--source", "s", "--type", "t", "--content", "hello")
	c.expect("peek", `{}`, "error: ", "give one of one, two")
	c.expect("peek", `{"thread":"two"}`, `"content":"hello"`)
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "push", Arguments: map[string]any{"thread": "two", "type": "t", "content": "x"}}); err == nil {
		t.Error("push with --read-only")
	}
	c.expect("peek", `{"thread":"two","after":1}`, `"events":[]`)
}

// TestMCPHistory: a history is read, and no tool changes it.
func TestMCPHistory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	agentday.Command(t, "init", dir)
	agentday.Command(t, "init", filepath.Join(dir, "other"))
	c := startMCP(t, "--root", dir)
	agentday.Command(t, "session", "start", "--thread", dir, "--id", "s")
	c.expect("peek", `{"thread":"history"}`, `"type":"session"`)
	for _, change := range [][2]string{{"push", `{"thread":"history","type":"run","content":"{}"}`}, {"consume", `{"thread":"history","consumer":"c"}`}, {"ack", `{"thread":"history","consumer":"c","delivery":"1"}`}} {
		c.expect(change[0], change[1], "error: ", "/inbox/history is the history of ")
	}
	c.expect("peek", `{"thread":"history","after":2}`, `"events":[]`)
}

// TestMCPDay: two agents talk, one of them on the record.
func TestMCPDay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	agentday.Command(t, "init", dir)
	agentday.Command(t, "subscribe", "--thread", dir, "--consumer", "agent", "--pull", "--filter", "type = 'question'")
	c, other := startMCP(t, "--thread", dir), startMCP(t, "--thread", dir, "--source", "agent:reviewer")
	c.expect("threads", `{}`, `"name":"inbox"`, `"consumer":"agent"`, `"pull":true`)

	answered := make(chan string)
	go func() { answered <- c.Call("ask", `{"type":"question","content":"6 * 7?","timeout":"50s"}`) }()
	d := other.delivery(`{"consumer":"agent","timeout":"50s"}`, `"content":"6 * 7?"`)
	other.expect("add_message", `{"role":"user","content":"6 * 7?"}`, `"session":"`)
	var s struct{ Session, ID string }
	if err := json.Unmarshal([]byte(other.Call("add_message", `{"role":"user","content":"6 * 7?"}`)), &s); err != nil {
		t.Fatal(err)
	}
	var r struct{ Run string }
	if err := json.Unmarshal([]byte(other.Call("start_run", `{"session":"`+s.Session+`","event_id":1}`)), &r); err != nil || r.Run == "" {
		t.Fatal(r, err)
	}
	other.expect("start_run", `{"session":"`+s.Session+`"}`, "error: ", "active run")
	other.expect("record_step", `{"run":"`+r.Run+`","name":"think","input":{"a":6},"output":42}`, `"seq":1`)
	other.expect("add_message", `{"session":"`+s.Session+`","run":"`+r.Run+`","role":"assistant","content":[{"type":"text","text":"42"}]}`, `"session":"`+s.Session)
	other.expect("reply", `{"reply_to":1,"type":"answer","content":"42"}`, `"id":2`)
	if got := <-answered; !strings.Contains(got, `"text":"42"`) || !strings.Contains(got, `"source":"agent:reviewer"`) {
		t.Errorf("ask: %s", got)
	}
	other.expect("ack", `{"consumer":"agent","delivery":"`+d+`"}`, `"last_acked_id":1`)
	other.expect("end_run", `{"run":"`+r.Run+`","status":"completed"}`, `"status":"completed"`)
	other.expect("record_step", `{"run":"`+r.Run+`"}`, "error: ")
	c.expect("messages", `{"session":"`+s.Session+`"}`, `"content":"6 * 7?"`, `"text":"42"`, `"run":"`+r.Run)
	c.expect("messages", `{"session":"none"}`, "error: ")
	c.expect("ask", `{"type":"note","content":"anybody?","timeout":"1ms"}`, `"reply":null`, `"id":3`, `reply_to`)
	c.expect("reply", `{"reply_to":3,"type":"answer","content":"{\"reply_to\":1}"}`, "error: ", "reply_to 1 already")

	for uri, says := range map[string]string{"thread://inbox/events/2": `"type":"answer"`, "thread://inbox/sessions/" + s.Session: `"42"`} {
		got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil || len(got.Contents) != 1 || !strings.Contains(got.Contents[0].Text, says) {
			t.Errorf("%s: %+v %v", uri, got, err)
		}
	}
	for _, uri := range []string{"thread://inbox/events/99", "thread://inbox/events/x", "thread://inbox/sessions/none", "thread://none/events/1", "thread://inbox/run/1"} {
		if got, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri}); err == nil {
			t.Errorf("%s: %+v", uri, got.Contents)
		}
	}
	if got := strings.Join(startMCP(t, "--thread", dir, "--tools", "peek,push").tools(), " "); got != "peek push" {
		t.Errorf("the tools are %s", got)
	}
}

// TestMCPApprovals: each client sees what runs wait for; only one that was given the tool answers.
func TestMCPApprovals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	agentday.Command(t, "init", dir)
	c := startMCP(t, "--thread", dir)
	c.expect("approvals", `{}`, `"waiting":[]`)
	h, err := history.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Enqueue(t.Context(), history.RunRow{ID: "r", AgentName: "refunds"}); err != nil {
		t.Fatal(err)
	}
	r, _, err := h.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context(), "k", history.Wait{For: history.ForApproval, Ask: "80 EUR?"}); !errors.Is(err, history.ErrWaiting) {
		t.Fatal(err)
	}
	if err := r.End(t.Context(), history.End{Status: history.Waiting}); err != nil {
		t.Fatal(err)
	}
	c.expect("approvals", `{}`, `"agent":"refunds","ask":"80 EUR?","key":"k","run":"r"`)
	later := history.RunRow{ID: "later", AgentName: "report"}
	if err := history.SetJob(&later, history.Job{After: []string{"r"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Enqueue(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	c.expect("runs", `{}`, `"agent":"report","hold":"after r","run":"later","status":"queued"`)
	c.expect("runs", `{"status":"waiting"}`, `"agent":"refunds","hold":"for approval 80 EUR?","run":"r","status":"waiting"`)
	c.expect("runs", `{"status":"perhaps"}`, "error: ")
	c.expect("runs", `{"last":101}`, "error: ")
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "answer_approval", Arguments: json.RawMessage(`{"run":"r","key":"k","answer":"approved"}`)}); err == nil {
		t.Error("the agent answers without --tools")
	}
	may := startMCP(t, "--thread", dir, "--tools", "approvals,answer_approval")
	may.expect("answer_approval", `{"run":"r","key":"other","answer":"approved"}`, "error: ")
	may.expect("answer_approval", `{"run":"r","key":"k","answer":"perhaps"}`, "error: ")
	may.expect("answer_approval", `{"run":"r","key":"k","answer":"approved","data":{"limit":80}}`, `"status":"queued"`)
	may.expect("answer_approval", `{"run":"r","key":"k","answer":"denied"}`, "error: ")
	may.expect("approvals", `{}`, `"waiting":[]`)
	c.expect("runs", `{"last":1,"status":"queued"}`, `"run":"later"`)
	if r, _, err = h.Claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := r.Wait(t.Context(), "k", history.Wait{For: history.ForApproval})
	if err != nil || a.Result != history.Approved || !strings.HasPrefix(a.By, "agent:") || string(a.Data) != `{"limit":80}` {
		t.Errorf("%+v %v", a, err)
	}
}
