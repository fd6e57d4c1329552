//go:build linux

package serve

import (
	"os"
	"strings"
	"testing"
	"time"

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

// TestHostile: what hostile clients, and pages of other sites, send is refused.
func TestHostile(t *testing.T) {
	b := newBench(t)
	b.listen(Options{bodyTime: 2 * time.Second}) // 16 MiB come in 257 parts, while other tests run
	floods.Hostile(t, &floods.Server{Address: b.s.web.listener.Addr().String(), Token: testToken, PID: os.Getpid(), Path: eventsAt})
}

// TestHostilePages: what is in a thread never becomes markup, and a form is carried out only
// from a page of the server.
func TestHostilePages(t *testing.T) {
	b := newBench(t)
	b.listen(Options{UI: true})
	floods.HostilePages(t, &floods.Server{Address: b.s.web.listener.Addr().String(), Token: testToken, Path: eventsAt})
}
