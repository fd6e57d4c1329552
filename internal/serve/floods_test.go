//go:build linux

package serve

import (
	"strings"
	"testing"

	"thread/event"
	"thread/internal/floods"
)

// TestFloods: a server survives idle connections, wrong tokens, and many streams of which
// one is slow, and answers others meanwhile.
func TestFloods(t *testing.T) {
	b := newBench(t)
	t.Setenv("FLOODED", testToken)
	c := b.child()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	floods.Run(t, &floods.Server{Address: strings.TrimSpace(line), Token: testToken, PID: c.Process.Pid, Path: eventsAt, Push: func(content string) {
		if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "m", Content: content}); err != nil {
			t.Error(err)
		}
	}}, floods.Sizes())
}
