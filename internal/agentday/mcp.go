package agentday

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MCP is a client of the official SDK with a process thread mcp.
type MCP struct {
	*mcp.ClientSession
	T *testing.T
}

// StartMCP starts thread mcp.
func StartMCP(t *testing.T, flags ...string) *MCP {
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
	return &MCP{s, t}
}

// Call calls a tool. The text of an error begins with "error: ".
func (c *MCP) Call(tool, args string) (text string) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), time.Minute)
	defer cancel()
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		c.T.Errorf("%s %s: an error of the protocol: %v", tool, args, err)
		return ""
	}
	for _, part := range r.Content {
		text += part.(*mcp.TextContent).Text
	}
	if r.IsError {
		return "error: " + text
	}
	if structured, err := json.Marshal(r.StructuredContent); err != nil || !jsonEqual(text, string(structured)) {
		c.T.Errorf("%s: %s is not %s (%v)", tool, structured, text, err)
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

// mcpAgent uses the tools of thread mcp.
type mcpAgent struct{ *MCP }

func (a *mcpAgent) tool(name string, args any, answer any) {
	text, err := json.Marshal(args)
	if err != nil {
		a.T.Fatal(err)
	}
	got := a.Call(name, string(text))
	if err := json.Unmarshal([]byte(got), answer); err != nil {
		a.T.Fatalf("%s %s: %s", name, text, got)
	}
}

func (a *mcpAgent) take() (int64, string, string) {
	var d struct {
		Delivery string
		Events   []struct {
			ID      int64
			Content string
		}
	}
	a.tool("consume", map[string]string{"consumer": "agent", "lease": "10m", "timeout": "30s"}, &d)
	if len(d.Events) != 1 {
		a.T.Fatalf("%+v", d)
	}
	return d.Events[0].ID, d.Events[0].Content, d.Delivery
}

// ask waits on after the time that clients allow a call: the question stays stored.
func (a *mcpAgent) ask(content string) string {
	var asked struct {
		ID           int64
		Text, Filter string
	}
	a.tool("ask", map[string]string{"type": "doubt", "content": content, "timeout": "45s"}, &asked)
	for range 5 {
		if asked.Text != "" {
			break
		}
		var waited struct{ Events []struct{ Content string } }
		a.tool("wait", map[string]any{"after": asked.ID, "filter": asked.Filter, "timeout": "45s"}, &waited)
		if len(waited.Events) > 0 {
			asked.Text = waited.Events[0].Content
		}
	}
	return asked.Text
}

func (a *mcpAgent) read() string {
	var all json.RawMessage
	a.tool("messages", map[string]string{"session": "talk"}, &all)
	return string(all)
}

func (a *mcpAgent) start(event int64) string {
	var started struct{ Run string }
	a.tool("start_run", map[string]any{"session": "talk", "event_id": event}, &started)
	return started.Run
}

func (a *mcpAgent) step(run, name string) {
	a.tool("record_step", map[string]string{"run": run, "name": name}, new(any))
}

func (a *mcpAgent) say(run, text string) {
	a.tool("add_message", map[string]string{"session": "talk", "run": run, "role": "assistant", "content": text}, new(any))
}

func (a *mcpAgent) answer(event int64, text string) {
	a.tool("reply", map[string]any{"reply_to": event, "type": "answer", "content": text}, new(any))
}

func (a *mcpAgent) ack(delivery string) {
	a.tool("ack", map[string]string{"consumer": "agent", "delivery": delivery}, new(any))
}

func (a *mcpAgent) end(run string) {
	a.tool("end_run", map[string]string{"run": run, "status": "completed"}, new(any))
}
