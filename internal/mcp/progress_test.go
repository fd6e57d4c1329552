package mcp

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"thread/engine"
)

// oneThread is a host with one thread.
type oneThread struct{ t *engine.Thread }

func (h oneThread) Names() []string                                      { return []string{"inbox"} }
func (h oneThread) Thread(string) (*engine.Thread, error)                { return h.t, nil }
func (h oneThread) Pushed(*engine.Thread, engine.Batch)                  {}
func (h oneThread) Explain(_ *engine.Thread, _ string, err error) string { return err.Error() }

// TestProgress: a call that waits tells a client that wants to know that it continues, so
// that it does not give up after its 60 s; another client hears nothing.
func TestProgress(t *testing.T) {
	thread, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	defer thread.Close()
	ours, theirs := sdk.NewInMemoryTransports()
	ended := make(chan error)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { ended <- run(ctx, oneThread{thread}, Options{progress: time.Millisecond}, ours) }()
	heard := make(chan float64, 1000)
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, q *sdk.ProgressNotificationClientRequest) {
			select {
			case heard <- q.Params.Progress:
			default:
			}
		}}).Connect(ctx, theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	wait := func(token any) <-chan error {
		done := make(chan error, 1)
		p := &sdk.CallToolParams{Name: "wait", Arguments: map[string]any{"after": 0, "timeout": "10m"}}
		if token != nil {
			p.SetProgressToken(token)
		}
		go func() { _, err := c.CallTool(ctx, p); done <- err }()
		return done
	}
	quiet, loud := wait(nil), wait("token")
	for want := 1.0; want <= 3; want++ {
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("progress %v, want %v", got, want)
			}
		case <-ctx.Done():
			t.Fatal("no progress was heard of")
		}
	}
	if _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "push", Arguments: map[string]any{"type": "t", "content": ""}}); err != nil {
		t.Fatal(err)
	}
	for _, done := range []<-chan error{quiet, loud} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
